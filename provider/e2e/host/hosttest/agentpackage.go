package hosttest

import (
	"path/filepath"
	"testing"
)

const standInUnit = `[Unit]
Description=BigFleet agent
Wants=network-online.target
After=network-online.target
StartLimitIntervalSec=0

[Service]
Type=notify
ExecStart=/usr/bin/bigfleet-agent run
Restart=always
RestartSec=5
KillMode=process
WatchdogSec=180

[Install]
WantedBy=multi-user.target
`

// AgentPackage builds the agent's package with a version into a folder.
func AgentPackage(t *testing.T, dir, version string) string {
	t.Helper()
	return BuildPackage(t, dir, DebianPackage{
		Name: "bigfleet-agent", Version: version,
		Files: map[string]string{"/lib/systemd/system/bigfleet-agent.service": standInUnit},
		Copies: map[string]string{
			"/usr/bin/bigfleet-agent":           Built(t, "bigfleet-agent"),
			"/usr/lib/bigfleet-agent/bootstrap": filepath.Join(Checkout(), "packaging/hooks/bootstrap"),
		},
	})
}
