package operator

import (
	"strings"
	"testing"
)

// TestHabits types what other command lines take. What fits is taken, and the
// rest is told apart from a slip: what to type here is said.
func TestHabits(t *testing.T) {
	for line, want := range map[string]string{
		"logs m-1":                        "journalctl -u bigfleet-agent",
		"describe":                        "it takes ids of machines",
		"cordon m-1":                      "drain takes a machine out",
		"scale --replicas 3":              "offerings file",
		"create --type DEV1-S":            "capacityctl list --type TYPE",
		"create --name web":               "machines have their ids",
		"create -f machine.yaml":          "--blob-file",
		"auth login":                      "--tls-cert",
		"instance server list":            "capacityctl list",
		"machine list":                    "capacityctl list",
		"list -A":                         "there are no namespaces",
		"list --all-namespaces":           "there are no namespaces",
		"list -n default":                 "there are no namespaces",
		"list --sort-by=price":            "use --sort",
		"list --selector a=b":             "use --label",
		"list --field-selector x=y":       "use --state",
		"list -o yaml":                    "use -o json",
		"list -o jsonpath={.items}":       "jq -r",
		"list -o custom-columns=A:.b":     "jq -r",
		"list --json id":                  "use --output json",
		"list --kubeconfig x":             "--tls-cert",
		"list --context prod":             "--addr",
		"list -L 10":                      "use | head",
		"list -o name --no-headers":       "--no-headers: of use with --output table",
		"get m-1 -w":                      "capacityctl wait",
		"get m-1 --watch":                 "watch MACHINE",
		"drain m-1 --grace-period=30":     "drain has --grace",
		"drain m-1 --ignore-daemonsets":   "the host's hook drains",
		"delete m-1 --force":              "nothing is forced",
		"delete --all":                    "name the machines",
		"delete m-1 --dry-run=client":     "give it without a value",
		"delete m-1 --dry-run --wait":     "there is nothing to wait for",
		"top --yes":                       "this command does not ask",
		"wait m-1":                        "--for: missing",
		"wait m-1 --for condition=Ready":  "--for: \"condition=Ready\" is unknown, want SPECULATIVE",
		"wait --for idle":                 "it takes ids of machines",
		"release --yes --socket x":        "of use with a machine or --spare",
		"release m-1 --socket x":          "--reason: missing",
		"list --profile x --interval 1ms": "--addr",
	} {
		code, out, text := capacityctl(strings.Fields(line)...)
		if code != exitUsage || out != "" || !strings.Contains(text, want) || strings.Count(text, "\n") > 8 {
			t.Errorf("%s: exit code %d, want %d and %q:\n%s%s", line, code, exitUsage, want, out, text)
		}
	}
	// Each hint is for something that is not there.
	root := newRoot(&program{}, "test")
	for word := range commandHints {
		if c, _, err := root.Find([]string{word}); err == nil && c != root {
			t.Errorf("the hint for %q never shows: it is a command", word)
		}
	}
}
