package operator

import (
	"strings"
	"testing"
)

// TestHelp: every command says what it does, and the overview names them all.
func TestHelp(t *testing.T) {
	code, overview, _ := capacityctl("--help")
	if code != exitOK {
		t.Errorf("--help: exit code %d", code)
	}
	for _, c := range commands() {
		if !strings.Contains(overview, "capacityctl "+c.name+" ") || !strings.Contains(overview, c.summary) {
			t.Errorf("the overview does not name %s", c.name)
		}
		code, help, stderr := capacityctl(append(strings.Fields(c.name), "--help")...)
		if code != exitOK || stderr != "" || !strings.Contains(help, "Usage: capacityctl "+c.name+" "+c.args+"\n") || !strings.Contains(help, c.summary) {
			t.Errorf("%s --help: exit code %d, %q, %q", c.name, code, help, stderr)
		}
	}
	for _, arg := range []string{"version", "--version"} {
		if code, out, _ := capacityctl(arg); code != exitOK || !strings.HasPrefix(out, "capacityctl test (go") {
			t.Errorf("%s: %d, %q", arg, code, out)
		}
	}
	for _, arg := range []string{"help", "--help", "-h"} {
		code, out, stderr := capacityctl("state", arg)
		if code != exitOK || stderr != "" || !strings.Contains(out, "capacityctl state restore") || strings.Contains(out, "capacityctl list") {
			t.Errorf("state %s: %d, %q, %q", arg, code, out, stderr)
		}
	}
}

func TestMisuse(t *testing.T) {
	for line, wants := range map[string][]string{
		"":                           {"Usage:"},
		"lost":                       {`unknown command "lost"`},
		"state":                      {"inspect, check, backup or restore"},
		"state mend x":               {"inspect, check, backup or restore"},
		"--insecure list":            {"--insecure stands before the command", "capacityctl COMMAND --insecure"},
		"list --sort=size":           {"--sort", `"size"`, "price"},
		"list --state=up,idle":       {"--state", `"up"`, "SPECULATIVE"},
		"list -o yaml surplus":       {"--output", `"yaml"`, `"surplus"`},
		"list --colour":              {"--colour"},
		"list --addr=here":           {"--addr", `"here"`},
		"list --tls-cert=x":          {"--tls-cert and --tls-key"},
		"get":                        {"a machine's id", "0 arguments"},
		"watch --interval=1ms":       {"--interval", "100ms"},
		"list --insecure --tls-ca=x": {"--insecure", "contradicts"},
		"walk m":                     {"create, configure, drain, delete"},
		"walk m fly configure --shard= --epoch=-1 --grace=1500ms --timeout=0s": {
			`"fly"`, "--cluster", "--blob-file", "--shard", "--epoch: -1", "--grace: 1.5s", "--timeout: 0s",
		},
		"state check":               {"a state file"},
		"state backup x":            {"a state file and where to put the copy"},
		"state backup --socket s":   {"where to put the copy"},
		"state restore x":           {"a copy and where the state file belongs"},
		"state inspect x --output=": {"--output"},
	} {
		t.Run(line, func(t *testing.T) {
			code, stdout, stderr := capacityctl(strings.Fields(line)...)
			if code != exitUsage || stdout != "" {
				t.Errorf("exit code %d, output %q", code, stdout)
			}
			for _, want := range wants {
				if !strings.Contains(stderr, want) {
					t.Errorf("it does not say %q:\n%s", want, stderr)
				}
			}
		})
	}
}
