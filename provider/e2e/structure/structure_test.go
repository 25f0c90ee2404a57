package structure

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestWalls(t *testing.T) {
	graph := load(t)
	for _, b := range breaches(graph, walls) {
		t.Error(b)
	}
	for _, w := range idle(graph, walls) {
		t.Error(w)
	}
}

func TestEveryPackageIsDocumented(t *testing.T) {
	for _, u := range undocumented(load(t)) {
		t.Error(u)
	}
}

// The checkers must be able to fail; the repository itself never shows that.
func TestBreaches(t *testing.T) {
	walled := []wall{
		{of: []string{"pure"}, open: nothing, why: "pure"},
		{of: []string{"agent/..."}, open: []string{"agent/...", "shared/command"}, shut: []string{"example.org/grpc/..."}, why: "small"},
		{of: []string{"engine"}, outside: []string{"example.org/x/..."}, why: "no vendor"},
		{of: []string{"cloud/..."}, shut: []string{"token", "os", "cloud/..."}, why: "instances only"},
	}
	tests := []struct {
		name string
		node node
		want []string
	}{
		{"imports of others are free", node{ImportPath: module + "/pure", Imports: []string{"fmt", "example.org/x"}}, nil},
		{
			"none of ours", node{ImportPath: module + "/pure", Imports: []string{module + "/shared/token"}},
			[]string{"pure imports shared/token: pure"},
		},
		{"the root is ours too", node{ImportPath: module + "/pure", Imports: []string{module}}, []string{"pure imports .: pure"}},
		{"open", node{ImportPath: module + "/agent/poll", Imports: []string{module + "/shared/command", module + "/agent/hook"}}, nil},
		{
			"open is not a prefix", node{ImportPath: module + "/agent", Imports: []string{module + "/shared/commander"}},
			[]string{"agent imports shared/commander: small"},
		},
		{
			"shut, far down", node{ImportPath: module + "/agent", Deps: []string{"fmt", "example.org/grpc/codes"}},
			[]string{"agent depends on example.org/grpc/codes: small"},
		},
		{"shut is not a prefix", node{ImportPath: module + "/agent", Deps: []string{"example.org/grpcweb"}}, nil},
		{"standard, far down", node{ImportPath: module + "/cloud/x", Imports: []string{"fmt"}, Deps: []string{"fmt", "os"}}, nil},
		{
			"standard, itself", node{ImportPath: module + "/cloud/x", Imports: []string{"os"}, Deps: []string{"os"}},
			[]string{"cloud/x depends on os: instances only"},
		},
		{"inside one wall", node{ImportPath: module + "/cloud/x", Deps: []string{module + "/cloud"}}, nil},
		{
			"shut of ours", node{ImportPath: module + "/cloud/x", Deps: []string{module + "/token"}},
			[]string{"cloud/x depends on token: instances only"},
		},
		{"outside", node{ImportPath: module + "/engine", Imports: []string{"fmt", "net/http", module + "/cloud", "example.org/x/y"}}, nil},
		{
			"another outside", node{ImportPath: module + "/engine", Imports: []string{"example.com/vendor/sdk"}},
			[]string{"engine imports example.com/vendor/sdk: no vendor"},
		},
		{"no wall", node{ImportPath: module + "/other", Imports: []string{module + "/pure"}, Deps: []string{module + "/token"}}, nil},
		{"another's package of that name", node{ImportPath: "example.org/pure", Imports: []string{module + "/token"}}, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, breaches([]node{tt.node}, walled)); diff != "" {
				t.Errorf("breaches (-want +got):\n%s", diff)
			}
		})
	}
}

// TestNextVendor: the walls hold for vendors that are not there yet, under whatever
// name.
func TestNextVendor(t *testing.T) {
	for _, name := range []string{"provider", "provider/internal/rpc", "provider/internal/lifecycle"} {
		for _, imported := range []string{
			module + "/provider/next", module + "/provider/internal/cloud/next", module + "/provider/internal/cloud/next/vms", "example.com/next/sdk",
		} {
			n := node{ImportPath: module + "/" + name, Imports: []string{imported}, Deps: []string{imported}}
			if len(breaches([]node{n}, walls)) == 0 {
				t.Errorf("%s may import %s", name, imported)
			}
		}
	}
}

func TestIdle(t *testing.T) {
	graph := []node{{ImportPath: module + "/agent/poll"}, {ImportPath: "example.org/gone"}}
	got := idle(graph, []wall{{of: []string{"agent/...", "gone"}}})
	want := []string{"the wall around gone stands around nothing: did the package move?"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("idle (-want +got):\n%s", diff)
	}
}

func TestUndocumented(t *testing.T) {
	got := undocumented([]node{{ImportPath: "a", Doc: "Package a is."}, {ImportPath: "b"}})
	if diff := cmp.Diff([]string{"b has no package comment"}, got); diff != "" {
		t.Errorf("undocumented (-want +got):\n%s", diff)
	}
}

// load reads the import graph of every package of the module.
func load(t *testing.T) []node {
	t.Helper()
	list := exec.CommandContext(t.Context(), "go", "list", "-json=ImportPath,Doc,Imports,Deps", module+"/...")
	var stderr strings.Builder
	list.Stderr = &stderr
	out, err := list.Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s", list, err, stderr.String())
	}
	var graph []node
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var n node
		if err := dec.Decode(&n); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatalf("%s: %v", list, err)
		}
		graph = append(graph, n)
	}
	if len(graph) == 0 {
		t.Fatalf("%s: no package", list)
	}
	return graph
}
