package main

import (
	"os"
	"os/exec"
	"testing"

	ct "bigfleet-providers/agent/internal/channeltest"
)

// Every test of this package holds for hooks in units too, where root asks for
// it: in a booted guest, not on the machine of a developer.
func TestSystemd(t *testing.T) {
	if os.Getenv("BIGFLEET_TEST_SYSTEMD") == "" {
		t.Skip("BIGFLEET_TEST_SYSTEMD is not set")
	}
	if os.Getenv(ct.RunnerVar) != "" {
		t.Skip("this is that run")
	}
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, "-test.v", "-test.timeout=4m")
	cmd.Env = append(os.Environ(), ct.RunnerVar+"=systemd")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%v:\n%s", err, out)
	} else {
		t.Logf("%s", out)
	}
}
