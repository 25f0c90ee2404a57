package packaging

import (
	"os/exec"
	"strings"
	"testing"
)

func TestDebianVersion(t *testing.T) {
	need(t, "dpkg")
	// In the order in which dpkg must see them.
	versions := []struct{ describe, want string }{
		{"0123abc", "0~20231114221320.0123abc"},
		{"v0.9.0", "0.9.0"},
		{"v1.0.0-beta", "1.0.0~beta"},
		{"v1.0.0-rc.1", "1.0.0~rc.1"},
		{"v1.0.0-rc.1-3-g0123abc", "1.0.0~rc.1+3.g0123abc"},
		{"v1.0.0", "1.0.0"},
		{"v1.0.0-dirty", "1.0.0+modified"},
		{"v1.0.1", "1.0.1"},
		{"v1.0.1-9-g89abcde", "1.0.1+9.g89abcde"},
		{"v1.0.1-10-g0123abc-dirty", "1.0.1+10.g0123abc+modified"},
		{"v1.0.10", "1.0.10"},
	}
	if got := run(t, exec.Command("./debian-version", "dev", "1700000000")); got != "0~20231114221320.dev\n" {
		t.Errorf("dev: %q", got)
	}
	before := ""
	for _, v := range versions {
		got := strings.TrimSpace(run(t, exec.Command("./debian-version", v.describe, "1700000000")))
		if got != v.want {
			t.Errorf("%s: %s, want %s", v.describe, got, v.want)
		}
		if before != "" {
			run(t, exec.Command("dpkg", "--compare-versions", before, "lt", got))
		}
		before = got
	}
}
