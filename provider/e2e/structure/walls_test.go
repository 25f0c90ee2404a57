package structure

import (
	"fmt"
	"slices"
	"strings"
)

// module is the import path of the repository's root.
const module = "bigfleet-providers"

// wall limits what packages may import. Packages are named as patterns: a path,
// or a path that ends in "/..." and stands for itself and all below it. Paths of
// our own are written without the module's name.
type wall struct {
	of   []string // the packages inside the wall
	open []string // the only packages of ours that they may import; nil: not limited
	// outside are the only packages of others' that they may import, the standard
	// library aside; nil: not limited. Vendors' SDKs are no names that are known
	// beforehand.
	outside []string
	shut    []string // what must not be among their dependencies, however far down; of the
	// standard library only what they import themselves, since fmt alone brings os
	why string
}

// nothing is an open list for packages that import none of ours.
var nothing = []string{}

// walls are the repository's. Tests may cross them: they put parts together.
var walls = []wall{
	{
		of:   []string{"provider/internal/machine"},
		open: nothing,
		shut: []string{"google.golang.org/...", "net/...", "os", "sync", "log/..."},
		why:  "verdicts are pure: no wire, no disk, no lock, so that every state can be tried in a table",
	},
	{
		of:   []string{"shared/..."},
		open: []string{"shared/..."},
		shut: []string{"google.golang.org/...", "github.com/scaleway/..."},
		why:  "provider and agent both carry it",
	},
	{
		of:   []string{"cloudinit"},
		open: []string{"shared/endpoint", "shared/pemfile"},
		why:  "rendering is a function of its parameters; what it writes down of endpoint and CA, the agent reads",
	},
	{
		of:   []string{"provider/internal/cloud"},
		open: nothing,
		why:  "the port names what every cloud has, and no cloud",
	},
	{
		of:   []string{"provider/internal/delivery"},
		open: []string{"shared/command"},
		why:  "the port knows commands, and no way to carry them",
	},
	{
		of:   []string{"provider/internal/store/..."},
		open: []string{"provider/internal/machine", "provider/internal/store/...", "proto/...", "shared/symlink"},
		shut: []string{"google.golang.org/grpc/..."},
		why:  "it keeps records; who asks for them, and why, is not its business",
	},
	{
		of:      []string{"provider/internal/rpc/..."},
		outside: []string{"google.golang.org/...", "golang.org/x/..."},
		open:    []string{"provider/internal/identity", "provider/internal/machine", "provider/internal/telemetry", "provider/internal/rpc/...", "proto/bigfleet/v1alpha1"},
		shut:    []string{"provider/internal/store/...", "provider/internal/cloud/...", "github.com/scaleway/..."},
		why:     "a call is answered from what is committed; no cloud call and no write of its own is on its path",
	},
	{
		of:      []string{"provider/internal/lifecycle/..."},
		outside: []string{"golang.org/x/..."},
		open: []string{
			"provider/internal/cloud", "provider/internal/delivery", "provider/internal/lifecycle/...",
			"provider/internal/machine", "provider/internal/telemetry", "shared/command",
		},
		shut: []string{"google.golang.org/grpc/...", "github.com/scaleway/..."},
		why:  "it drives any cloud by any delivery, and takes calls from any wire",
	},
	{
		of:   []string{"provider/internal/channel/..."},
		open: []string{"provider/internal/channel/...", "provider/internal/delivery", "provider/internal/telemetry", "shared/..."},
		shut: []string{"google.golang.org/grpc/...", "provider/internal/lifecycle/...", "provider/internal/store/...", "provider/internal/cloud/..."},
		why:  "it faces every host of the fleet: it can hand out a command and take an ack, and reach nothing else",
	},
	{
		of: []string{"provider"},
		open: []string{
			"cloudinit", "proto/bigfleet/v1alpha1", "provider/internal/certificates", "provider/internal/channel", "provider/internal/cloud",
			"provider/internal/delivery", "provider/internal/lifecycle", "provider/internal/machine", "provider/internal/offering",
			"provider/internal/rpc", "provider/internal/store", "provider/internal/telemetry", "provider/internal/telemetry/tracing",
			"shared/command", "shared/endpoint", "shared/flags", "shared/symlink", "shared/token",
		},
		outside: []string{
			"github.com/google/uuid", "github.com/prometheus/client_golang/...", "github.com/spf13/pflag", "golang.org/x/...", "google.golang.org/grpc/...",
		},
		shut: []string{"provider/internal/cloud/scaleway/...", "github.com/scaleway/..."},
		why:  "it is any vendor's process: the next vendor is a package beside provider/scaleway, and nothing here changes",
	},
	{
		of: []string{"provider/scaleway"},
		open: []string{
			"cloudinit", "provider", "provider/internal/cloud", "provider/internal/cloud/budget", "provider/internal/cloud/scaleway/...",
			"provider/internal/fakecloud", "provider/internal/fakecloud/host", "provider/internal/machine", "provider/internal/offering",
			"provider/internal/telemetry", "shared/endpoint",
		},
		why: "a vendor says what is particular to its cloud; calls, records and the way to hosts are not its business",
	},
	{
		of:   []string{"provider/cmd/scaleway"},
		open: []string{"provider", "provider/scaleway"},
		why:  "a main names its vendor, and the rest is the same for all",
	},
	{
		of:   []string{"provider/internal/cloud/budget"},
		open: []string{"provider/internal/cloud", "provider/internal/telemetry"},
		why:  "it holds calls back by their priority, whatever they are and whoever makes them",
	},
	{
		of:   []string{"provider/internal/cloud/scaleway/..."},
		open: []string{"provider/internal/cloud", "provider/internal/cloud/scaleway/..."},
		shut: []string{"provider/internal/lifecycle/...", "provider/internal/channel/...", "provider/internal/machine", "shared/...", "google.golang.org/grpc/..."},
		why:  "a cloud knows instances: never a blob, token, fence or state",
	},
	{
		of:   []string{"provider/internal/cloud/cloudtest"},
		open: []string{"provider/internal/cloud"},
		why:  "the suite judges every adapter by the port alone",
	},
	{
		of:   []string{"provider/internal/operator/..."},
		open: []string{"proto/bigfleet/v1alpha1", "provider/internal/identity", "provider/internal/machine", "provider/internal/operator/...", "provider/internal/store", "shared/endpoint", "shared/flags", "shared/pemfile"},
		shut: []string{"provider/internal/cloud/...", "provider/internal/lifecycle/...", "github.com/scaleway/..."},
		why:  "an operator sees a provider as any client does, and a state file as the store does",
	},
	{
		of:   []string{"provider/internal/offering/..."},
		open: []string{"provider/internal/cloud", "provider/internal/machine", "shared/jsonkeys"},
		why:  "slots are a function of what is offered and what the cloud sells",
	},
	{
		of:   []string{"provider/internal/identity"},
		open: nothing,
		why:  "who a certificate speaks for is read in one place, by provider and command line alike",
	},
	{
		of:   []string{"provider/internal/certificates/..."},
		open: []string{"provider/internal/telemetry", "shared/pemfile"},
		shut: []string{"google.golang.org/grpc/..."},
		why:  "certificates are files; who serves with them is not theirs to know",
	},
	{
		of:   []string{"provider/internal/telemetry/..."},
		open: []string{"provider/internal/telemetry/...", "shared/endpoint"},
		why:  "everything reports through it, so it knows none of them",
	},
	{
		of:   []string{"provider/internal/telemetry"},
		open: nothing,
		shut: []string{"google.golang.org/grpc/...", "go.opentelemetry.io/..."},
		why:  "packages that know no wire report through it; the SDK for traces is beside it",
	},
	{
		of:   []string{"provider/internal/monitoring/..."},
		open: []string{"provider/internal/monitoring/...", "provider/internal/telemetry"},
		why:  "rules and dashboard are a function of the names of metrics",
	},
	{
		of:   []string{"provider/internal/fakecloud"},
		open: nothing,
		shut: []string{"google.golang.org/grpc/...", "github.com/scaleway/..."},
		why:  "the fake speaks the vendor's API from its documents; sharing code with its clients would let both be wrong alike",
	},
	{
		of:   []string{"provider/internal/fakecloud/host"},
		open: []string{"agent", "provider/internal/fakecloud", "provider/internal/fakecloud/nspawn"},
		shut: []string{"provider/internal/channel/...", "github.com/scaleway/..."},
		why:  "a host knows what its user data says, and runs the agent that users run",
	},
	{
		of:   []string{"provider/internal/fakecloud/nspawn"},
		open: nothing,
		why:  "it boots machines, whatever they are for",
	},
	{
		of:   []string{"agent/..."},
		open: []string{"agent/...", "shared/command", "shared/endpoint", "shared/flags", "shared/jsonkeys", "shared/pemfile", "shared/symlink", "shared/token"},
		shut: []string{"google.golang.org/grpc/...", "github.com/scaleway/...", "github.com/hetznercloud/...", "github.com/Azure/..."},
		why:  "it runs as root on every host: small, and without a way to reach a cloud",
	},
	{
		of:   []string{"provider/cmd/demo"},
		open: []string{"proto/bigfleet/v1alpha1"},
		shut: []string{"github.com/scaleway/..."},
		why:  "it plays the client: what it shows, it can only have from the wire",
	},
}

// node is one package of the import graph, as `go list -json` prints it.
type node struct {
	ImportPath string
	Doc        string
	Imports    []string
	Deps       []string
}

// breaches lists every import that a wall forbids.
func breaches(graph []node, walls []wall) []string {
	var found []string
	for _, n := range graph {
		name, ours := own(n.ImportPath)
		if !ours {
			continue
		}
		for _, w := range walls {
			if !matchAny(w.of, name) {
				continue
			}
			if w.open != nil {
				for _, imported := range n.Imports {
					if to, ours := own(imported); ours && !matchAny(w.open, to) {
						found = append(found, fmt.Sprintf("%s imports %s: %s", name, to, w.why))
					}
				}
			}
			if w.outside != nil {
				for _, imported := range n.Imports {
					if _, ours := own(imported); !ours && !standard(imported) && !matchAny(w.outside, imported) {
						found = append(found, fmt.Sprintf("%s imports %s: %s", name, imported, w.why))
					}
				}
			}
			for _, dep := range n.Deps {
				to, _ := own(dep)
				if standard(dep) && !slices.Contains(n.Imports, dep) {
					continue
				}
				if matchAny(w.shut, to) && !matchAny(w.of, to) {
					found = append(found, fmt.Sprintf("%s depends on %s: %s", name, to, w.why))
				}
			}
		}
	}
	return found
}

// idle lists the patterns of walls that match no package: a wall around nothing
// guards nothing, most likely since a package moved.
func idle(graph []node, walls []wall) []string {
	var found []string
	for _, w := range walls {
		for _, pattern := range w.of {
			if !slices.ContainsFunc(graph, func(n node) bool {
				name, ours := own(n.ImportPath)
				return ours && match(pattern, name)
			}) {
				found = append(found, fmt.Sprintf("the wall around %s stands around nothing: did the package move?", pattern))
			}
		}
	}
	return found
}

// undocumented lists the packages without a doc comment.
func undocumented(graph []node) []string {
	var found []string
	for _, n := range graph {
		if n.Doc == "" {
			found = append(found, n.ImportPath+" has no package comment")
		}
	}
	return found
}

// standard tells whether a path is of the standard library: no other path, save
// our own, has a first element without a dot.
func standard(path string) bool {
	first, _, _ := strings.Cut(path, "/")
	return first != module && !strings.Contains(first, ".")
}

// own strips the module's name off an import path, and tells whether it was
// there.
func own(path string) (string, bool) {
	if path == module {
		return ".", true
	}
	return strings.CutPrefix(path, module+"/")
}

func matchAny(patterns []string, path string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool { return match(p, path) })
}

func match(pattern, path string) bool {
	tree, isTree := strings.CutSuffix(pattern, "/...")
	return path == tree || isTree && strings.HasPrefix(path, tree+"/")
}
