package operator

import (
	"io"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"bigfleet-providers/provider/internal/operator/terminal"
)

// everyCommand lists the commands that do something.
func everyCommand(t *testing.T) []*cobra.Command {
	t.Helper()
	var out []*cobra.Command
	var walk func(*cobra.Command)
	walk = func(c *cobra.Command) {
		if !c.HasAvailableSubCommands() && c.Name() != "help" {
			out = append(out, c)
		}
		for _, sub := range inOrder(c) {
			walk(sub)
		}
	}
	walk(newRoot(&program{in: strings.NewReader(""), out: io.Discard, err: io.Discard, colour: terminal.Auto}, "test"))
	return out
}

// TestHelp: every command says what it does, and the overview names them all.
func TestHelp(t *testing.T) {
	code, overview, _ := capacityctl("--help")
	if code != exitOK {
		t.Errorf("--help: exit code %d", code)
	}
	for _, c := range everyCommand(t) {
		words := strings.Fields(c.CommandPath())[1:]
		if len(words) == 1 && (!strings.Contains(overview, "\n  "+c.Name()+" ") || !strings.Contains(overview, c.Short)) {
			t.Errorf("the overview does not name %s", c.CommandPath())
		}
		code, help, stderr := capacityctl(append(words, "--help")...)
		if code != exitOK || stderr != "" || !strings.HasPrefix(help, c.Short+".\n\nUsage: "+c.CommandPath()) {
			t.Errorf("%s --help: exit code %d, %q, %q", c.CommandPath(), code, help, stderr)
		}
		if isConnected(c) != strings.Contains(help, "--tls-ca") {
			t.Errorf("%s --help: flags of a connection that it has not, or lacks those it has", c.CommandPath())
		}
		if own, _ := flagsOf(c); own.HasAvailableFlags() && !strings.Contains(c.Use, "[flags]") && !strings.Contains(c.Use, "--") {
			t.Errorf("%s: its usage does not say that it has flags", c.CommandPath())
		}
		if strings.Contains(help, "(default [])") {
			t.Errorf("%s --help: an empty list is no default to speak of", c.CommandPath())
		}
	}
	for _, arg := range []string{"version", "--version"} {
		if code, out, _ := capacityctl(arg); code != exitOK || !strings.HasPrefix(out, "capacityctl test (go") {
			t.Errorf("%s: %d, %q", arg, code, out)
		}
	}
	for _, args := range [][]string{{"state", "--help"}, {"state", "-h"}, {"help", "state"}} {
		code, out, stderr := capacityctl(args...)
		if code != exitOK || stderr != "" || !strings.Contains(out, "restore") || strings.Contains(out, "walk") {
			t.Errorf("%s: %d, %q, %q", args, code, out, stderr)
		}
	}
}

func TestMisuse(t *testing.T) {
	for line, wants := range map[string][]string{
		"":                                    {"Usage:", "a command is missing"},
		"lost":                                {`unknown command "lost"`, "did you mean host or list?"},
		"state":                               {"backup, check, inspect or restore"},
		"state mend x":                        {"backup, check, inspect or restore"},
		"state check x --addr=y:1 --insecure": {"--addr: capacityctl state check makes no call to a provider", "--insecure: "},
		"--color=pink list":                   {"--color", "auto, always or never"},
		"list --sort=size":                    {"--sort", `"size"`, "price"},
		"list --state=up,idle":                {"--state", `"up"`, "SPECULATIVE"},
		"list --capacity=free --label==x":     {"--capacity", `"free"`, "ON_DEMAND", "--label", "no key"},
		"list -o yaml surplus":                {"--output", `"yaml"`, `"surplus"`},
		"list --watch -o name":                {"--watch: has no names"},
		"list --colour":                       {"--colour"},
		"list --addr=here":                    {"--addr", `"here"`},
		"list --tls-cert=x":                   {"--tls-cert and --tls-key"},
		"get":                                 {"ids of machines", "capacityctl list"},
		"watch --interval=1ms":                {"--interval", "100ms"},
		"top --interval=1ms -o=wide x":        {"--interval", "--output", `"x"`},
		"list --insecure --tls-ca=x":          {"--insecure", "contradicts"},
		"create":                              {"ids of machines"},
		"create a b a --timeout=1s":           {`"a" is named twice`, "with --wait only"},
		"configure --shard= --timeout=0s": {
			"ids of machines", "--cluster", "--blob-file", "--shard", "--timeout: 0s",
		},
		"list --tls-ca= --addr= --zone= --sort=x":              {"--tls-ca: given, but empty; give it its file", "--addr: given, but empty", "--zone: given, but empty", "--sort"},
		"doctor --channel= --channel-ca= --metrics=":           {"--channel: given, but empty", "--channel-ca: given, but empty", "--metrics: given, but empty"},
		"configure m --cluster=c --blob-file=":                 {"--blob-file: given, but empty"},
		"host list --socket=":                                  {"--socket: given, but empty"},
		"drain m --grace=1500ms":                               {"--grace: 1.5s"},
		"walk":                                                 {"--cluster", "--blob-file", "--no-configure"},
		"walk a b --no-configure":                              {"one machine", "single steps"},
		"walk --no-configure --sequence=9223372036854775803":   {"--sequence: 9223372036854775803", "--epoch"},
		"walk a --type=b --no-configure":                       {"--type: of no use"},
		"doctor --channel=http://x --metrics=y --channel-ca=z": {"--channel: ", "want https://host", "--metrics: "},
		"doctor --channel-ca=z":                                {"without --channel"},
		"completion tcsh":                                      {`"tcsh"`, "bash, zsh or fish"},
		"completion":                                           {"a shell"},
		"state check":                                          {"a state file"},
		"state backup x":                                       {"a state file and where to put the copy"},
		"state backup --socket s":                              {"where to put the copy"},
		"state restore x":                                      {"a copy and where the state file belongs"},
		"state inspect x --output=":                            {"--output"},
	} {
		t.Run(line, func(t *testing.T) {
			code, stdout, stderr := capacityctl(strings.Fields(line)...)
			if code != exitUsage || stdout != "" || !strings.Contains(stderr, "--help for how it is used") {
				t.Errorf("exit code %d, output %q, %q", code, stdout, stderr)
			}
			for _, want := range wants {
				if !strings.Contains(stderr, want) {
					t.Errorf("it does not say %q:\n%s", want, stderr)
				}
			}
		})
	}
}
