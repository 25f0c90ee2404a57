package host

import (
	"strings"
	"testing"
	"time"

	pb "bigfleet-providers/proto/bigfleet/v1alpha1"
	"bigfleet-providers/provider/e2e/host/hosttest"
)

// joinBlob is a blob that the default hook runs: it leaves a mark of the
// membership, and counts.
const joinBlob = `#!/bin/sh
set -eu
echo "$BIGFLEET_COMMAND_ID $BIGFLEET_ATTEMPT" >>/var/lib/joins
echo "$BIGFLEET_CLUSTER_ID" >/var/lib/member-of
`

// TestLife: a machine is created, joined, rebooted, drained and given back, and
// its host gets the agent from the channel.
func TestLife(t *testing.T) {
	t.Parallel()
	w := hosttest.NewWorld(t, hosttest.Options{})
	packages := t.TempDir()
	hosttest.AgentPackage(t, packages, "0.1.0")
	p := w.NewProvider(t, hosttest.ProviderOptions{Install: "channel", Args: []string{"--agent-packages=" + packages}})
	m := p.Machine(t)

	began := time.Now()
	m.Do(t, hosttest.Create, "")
	t.Logf("Create took %s", time.Since(began).Round(100*time.Millisecond))
	g := m.Guest(t)
	if status := g.AwaitBooted(t); !strings.Contains(status, "done") || !strings.Contains(status, "Scaleway") {
		t.Errorf("cloud-init says\n%s", status)
	}
	t.Logf("%s", g.Run(t, "systemctl is-system-running; systemctl --failed --no-legend; systemctl show -P StatusText bigfleet-agent; systemd-analyze || true"))

	began = time.Now()
	m.Do(t, hosttest.Configure, joinBlob)
	t.Logf("Configure took %s", time.Since(began).Round(100*time.Millisecond))
	if got := g.Run(t, "cat /var/lib/member-of"); got != "c1" {
		t.Errorf("the host is a member of %q", got)
	}

	boot := g.Run(t, "cat /proc/sys/kernel/random/boot_id; stat -c %Y /proc/1")
	g.Run(t, "systemd-run --quiet --on-active=0.1 systemctl reboot")
	hosttest.Await(t, time.Minute, "the guest boots again", func() bool {
		return g.Holds(t, "test \"$(stat -c %Y /proc/1)\" != "+strings.Fields(boot)[1]) && g.Holds(t, "systemctl is-active --quiet bigfleet-agent")
	})
	if state := m.Get(t).GetState(); state != pb.MachineState_MACHINE_STATE_CONFIGURED {
		t.Errorf("after a reboot it is %s", state)
	}
	if joins := g.Run(t, "cat /var/lib/joins"); strings.Count(joins, "\n") != 0 {
		t.Errorf("joined more than once:\n%s", joins)
	}

	m.Do(t, hosttest.Drain, "")
	m.Do(t, hosttest.Delete, "")
	hosttest.Await(t, 30*time.Second, "the server is gone", func() bool { return len(w.Cloud.Servers()) == 0 })
	if leaks := w.Cloud.Leaks(); len(leaks) > 0 {
		t.Errorf("left: %+v", leaks)
	}
}
