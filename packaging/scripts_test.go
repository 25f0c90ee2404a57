package packaging

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"gopkg.in/yaml.v3"
)

// scripts returns the shell scripts that run on hosts.
func scripts(t *testing.T) []string {
	t.Helper()
	found, err := filepath.Glob("scripts/*")
	if err != nil || len(found) == 0 {
		t.Fatalf("no maintainer scripts: %v", err)
	}
	for _, hook := range []string{"bootstrap", "kubeadm", "k3s"} {
		if _, err := os.Stat("hooks/" + hook); err == nil {
			found = append(found, "hooks/"+hook)
		}
	}
	return found
}

func TestScriptsAreForDash(t *testing.T) {
	need(t, "dash", "shellcheck")
	for _, script := range scripts(t) {
		text, err := os.ReadFile(script)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.HasPrefix(text, []byte("#!/bin/sh\n")) {
			t.Errorf("%s does not begin with #!/bin/sh", script)
		}
		run(t, exec.Command("dash", "-n", script))
		run(t, exec.Command("shellcheck", "--shell=dash", script))
	}
	// What builds runs where Go does.
	build, err := filepath.Glob("[a-z]*")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range build {
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() && info.Mode().Perm()&0o100 != 0 {
			run(t, exec.Command("shellcheck", path))
		}
	}
}

// The unit's own exposure; hooks run in units of their own.
func TestUnitIsHardened(t *testing.T) {
	need(t, "systemd-analyze")
	out := run(t, exec.Command("systemd-analyze", "security", "--offline=true", "--no-pager", "systemd/bigfleet-agent.service"))
	found := regexp.MustCompile(`exposure level for bigfleet-agent.service: ([0-9.]+)`).FindStringSubmatch(out)
	if found == nil {
		t.Fatal(out)
	}
	score, err := strconv.ParseFloat(found[1], 64)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("exposure level %.1f", score)
	if score > 3 {
		t.Errorf("exposure level %.1f, the limit is 3\n%s", score, out)
	}
}

func TestUnit(t *testing.T) {
	text, err := os.ReadFile("systemd/bigfleet-agent.service")
	if err != nil {
		t.Fatal(err)
	}
	for _, setting := range []string{
		"Type=notify", "ExecStart=/usr/bin/bigfleet-agent run",
		"Restart=always", "StartLimitIntervalSec=0", // no number of failures strands it
		"KillMode=process",                                                                             // a daemon of a hook lives on
		"RuntimeDirectory=bigfleet-agent", "RuntimeDirectoryPreserve=yes", "RuntimeDirectoryMode=0700", // runs survive a restart
		"StateDirectory=bigfleet-agent", "StateDirectoryMode=0700",
		"WantedBy=multi-user.target",
	} {
		if !strings.Contains(string(text), "\n"+setting+"\n") {
			t.Errorf("the unit has no %s", setting)
		}
	}
	watchdog := regexp.MustCompile(`\nWatchdogSec=(\d+)s\n`).FindSubmatch(text)
	if watchdog == nil {
		t.Fatal("the unit has no WatchdogSec in seconds")
	}
	// The main loop may be in a long poll of up to a minute.
	if seconds, err := strconv.Atoi(string(watchdog[1])); err != nil || seconds < 60 {
		t.Errorf("WatchdogSec=%s, want at least 60 s", watchdog[1])
	}
}

// The paths in the package are those that the first boot and the agent use.
func TestPathsFit(t *testing.T) {
	text, err := os.ReadFile("nfpm.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var config struct {
		Name     string
		Contents []struct{ Src, Dst string }
	}
	if err := yaml.Unmarshal(text, &config); err != nil {
		t.Fatal(err)
	}
	unit, err := os.ReadFile("systemd/bigfleet-agent.service")
	if err != nil {
		t.Fatal(err)
	}
	hooks, err := os.ReadFile("../agent/internal/hook/host.go")
	if err != nil {
		t.Fatal(err)
	}
	firstBoot, err := os.ReadFile("../cloudinit/templates/apt.sh")
	if err != nil {
		t.Fatal(err)
	}
	destinations := map[string]bool{}
	for _, c := range config.Contents {
		destinations[c.Dst] = true
	}
	for where, text := range map[string][]byte{
		"/usr/bin/bigfleet-agent":     unit,
		"/usr/lib/bigfleet-agent":     hooks,
		"/etc/bigfleet-agent":         unit,
		"install " + config.Name + "": firstBoot,
	} {
		if !bytes.Contains(text, []byte(where)) {
			t.Errorf("%s is not used", where)
		}
		if strings.HasPrefix(where, "/") && !destinations[where] {
			t.Errorf("the package has no %s", where)
		}
	}
}
