package operator

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// What other command lines of the field call what this one has under another
// name, or has not: kubectl, gh, hcloud and scw. A hand that types from habit is
// told what to type here.

// commandHints are for words that are no command.
var commandHints = map[string]string{
	"apply":    "machines are not declared; create makes the server of one",
	"attach":   "capacityctl watch follows machines",
	"auth":     "a provider knows callers by their certificate: see --tls-cert and --tls-key",
	"cordon":   "the provider has no nodes to cordon; drain takes a machine out of its cluster",
	"config":   "set CAPACITYCTL_ADDR and its companions in the environment; see capacityctl --help",
	"context":  "set CAPACITYCTL_ADDR and its companions in the environment; see capacityctl --help",
	"edit":     "machines cannot be edited; see create, configure, drain and delete",
	"events":   "capacityctl watch prints changes as they happen",
	"exec":     "log in to the host itself; capacityctl get shows it",
	"help-all": "capacityctl --help lists the commands",
	"instance": "capacityctl list shows the machines, get one of them",
	"login":    "a provider knows callers by their certificate: see --tls-cert and --tls-key",
	"logs":     "the agent's log is on the host: journalctl -u bigfleet-agent; the provider's is its standard error",
	"machine":  "capacityctl list shows the machines, get one of them",
	"machines": "capacityctl list shows the machines, get one of them",
	"patch":    "machines cannot be edited; see create, configure, drain and delete",
	"ps":       "capacityctl list",
	"scale":    "create and delete make and give back single machines; how many there can be is in the offerings file",
	"server":   "capacityctl list shows the machines, get one of them",
	"ssh":      "log in to the host itself; capacityctl get shows it",
	"status":   "capacityctl top shows the fleet, doctor looks for what is wrong",
	"uncordon": "configure has an IDLE machine join a cluster",
	"undrain":  "configure has an IDLE machine join a cluster",
}

// flagHints are for flags that no command, or not this one, has.
var flagHints = map[string]string{
	"all":                  "name the machines: capacityctl list -o name | xargs capacityctl ...",
	"all-namespaces":       "there are no namespaces: list shows all machines; --cluster narrows it",
	"cascade":              "leave it out: what belongs to a server goes with it",
	"config":               "set CAPACITYCTL_ADDR and its companions in the environment",
	"context":              "a provider is named by --addr, or CAPACITYCTL_ADDR",
	"debug":                "the provider's log has the details; see its --log-level",
	"delete-emptydir-data": "the host's hook drains the node; --grace is all that it takes",
	"endpoint":             "--addr is the provider's gRPC port",
	"field-selector":       "use --state, --type, --cluster, --capacity or --zone",
	"filter":               "use --state, --type, --cluster, --capacity, --zone or --label",
	"follow":               "use list --watch, or watch",
	"filename":             "name the machines: capacityctl list shows them",
	"force":                "nothing is forced: a machine's state decides what a call may do",
	"format":               "use --output",
	"grace-period":         "drain has --grace, a time such as 30s",
	"ignore-daemonsets":    "the host's hook drains the node; --grace is all that it takes",
	"jq":                   "use --output json | jq",
	"json":                 "use --output json",
	"kubeconfig":           "a provider is named by --addr, and knows callers by --tls-cert and --tls-key",
	"limit":                "use | head",
	"namespace":            "there are no namespaces; --cluster narrows a list",
	"name":                 "machines have their ids: capacityctl list shows them; one that can be created is SPECULATIVE",
	"now":                  "drain with --grace 0s",
	"organization-id":      "the provider's own flags name the account; this is a client of one provider",
	"profile":              "a provider is named by --addr, and knows callers by --tls-cert and --tls-key",
	"project-id":           "the provider's own flags name the account; this is a client of one provider",
	"quiet":                "use --output name",
	"region":               "use --zone",
	"selector":             "use --label",
	"server":               "--addr is the provider's gRPC port",
	"show-labels":          "use --output json, or get; --label selects by them",
	"sort-by":              "use --sort",
	"status":               "use --state",
	"template":             "use --output json | jq",
	"type":                 "name the machines: capacityctl list --type TYPE shows them; one that can be created is SPECULATIVE",
	"token":                "a provider knows callers by their certificate: --tls-cert and --tls-key",
	"verbose":              "the provider's log has the details; see its --log-level",
	"web":                  "there is no page; use top or list --watch",
	"watch":                "use list --watch, or watch MACHINE",
	"wait":                 "capacityctl wait MACHINE --for STATE",
	"yes":                  "this command does not ask",
	"dry-run":              "this command changes nothing, or has no dry run; create, configure, drain, delete and release have",
}

// shorthandHints are for single letters.
var shorthandHints = map[string]string{
	"A": flagHints["all-namespaces"], "D": flagHints["debug"], "L": flagHints["limit"], "c": flagHints["config"],
	"f": "to follow machines, use list --watch, or watch; the only file is that of configure --blob-file",
	"l": flagHints["selector"], "n": flagHints["namespace"], "p": flagHints["profile"], "q": flagHints["quiet"], "s": flagHints["server"],
	"t": flagHints["template"], "v": flagHints["verbose"], "w": flagHints["wait"] + "; list has --watch", "y": flagHints["yes"],
}

// formatHints are for values of --output.
var formatHints = map[string]string{
	"yaml":           "use -o json; yq -P turns it into YAML",
	"jsonpath":       "use -o json | jq -r '.machines[].host.ref'",
	"jsonpath-file":  "use -o json | jq",
	"go-template":    "use -o json | jq -r '.machines[] | [.id, .state] | @tsv'",
	"template":       "use -o json | jq -r '.machines[] | [.id, .state] | @tsv'",
	"custom-columns": "use -o json | jq -r '.machines[] | [.id, .host.ref] | @tsv'",
	"columns":        "use -o json | jq -r '.machines[] | [.id, .host.ref] | @tsv'",
	"csv":            "use -o json | jq -r '.machines[] | [.id, .state] | @csv'",
	"human":          "use -o table",
	"noheader":       "use --no-headers",
}

// hinted adds to the fault of a flag what to give here instead, if it is one that
// other command lines have.
func (p *program) hinted(c *cobra.Command, err error) error {
	if !c.HasParent() {
		// The flags behind a word that is no command are judged before the word is.
		at := slices.IndexFunc(p.args, func(arg string) bool { return !strings.HasPrefix(arg, "-") })
		if at >= 0 && commandHints[p.args[at]] != "" {
			return unknownCommand(c, p.args[at])
		}
	}
	var (
		missing *pflag.NotExistError
		invalid *pflag.InvalidValueError
		hint    string
	)
	switch {
	case errors.As(err, &missing):
		name := missing.GetSpecifiedName()
		if missing.GetSpecifiedShortnames() != "" {
			hint = shorthandHints[name]
		} else {
			hint = flagHints[name]
		}
	case errors.As(err, &invalid):
		if f := invalid.GetFlag(); f.Name == "dry-run" || f.Name == "wait" || f.Name == "yes" {
			hint = "give it without a value"
		}
	}
	if hint == "" {
		return err
	}
	return fmt.Errorf("%w: %s", err, hint)
}
