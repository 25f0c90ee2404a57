package e2e

import (
	"maps"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/testing/protocmp"

	pb "bigfleet-providers/proto/bigfleet/v1alpha1"
)

// TestFailedOnHost has a host fail to join, and another fail to drain. Neither
// may look like a success: the machine is FAILED for good, keeps its host and
// binding, and says why.
func TestFailedOnHost(t *testing.T) {
	t.Parallel()
	args := []string{"--use-fake-backend", "--provider=certify", "--fake-hosts=process", "--seed-count=3", "--state=" + filepath.Join(t.TempDir(), "state.db")}
	p := startProvider(t, environment(), nil, args...)
	ids := p.machines(2)
	blobs := map[string]string{
		ids[0]: "#!/bin/sh\necho 'the API server said no' >&2\nexit 3\n",
		ids[1]: "#!/bin/sh\nmkdir -p opt/bigfleet\nprintf '#!/bin/sh\\n[ \"$1\" != drain ] || { echo two pods are left >&2; exit 7; }\\n' >opt/bigfleet/bootstrap\nchmod +x opt/bigfleet/bootstrap\n",
	}
	metadata := map[string]string{"k": "v\x00w", "": ""}
	for _, id := range ids {
		p.must("Create", id, token{"s", 1, 1}, idle)
		if err := p.send(&pb.ConfigureRequest{MachineId: id, ClusterId: "c", BootstrapBlob: []byte(blobs[id]), ShardMetadata: metadata}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := p.await(ids[1], configured); err != nil {
		t.Fatal(err)
	}
	p.must("Drain", ids[1], token{}, unspecified)

	gone := map[string]*pb.Machine{}
	for id, words := range map[string][]string{
		ids[0]: {"Configure", "the API server said no", "3"},
		ids[1]: {"Drain", "two pods are left", "7"},
	} {
		m, _ := p.await(id, failed) // FAILED is what it calls an error
		if m.GetState() != failed {
			t.Fatalf("%s is %s, want FAILED", id, m.GetState())
		}
		for _, word := range words {
			if !strings.Contains(m.GetLastError(), word) {
				t.Errorf("last_error %q does not say %q", m.GetLastError(), word)
			}
		}
		if m.GetHost().GetRef() == "" || m.GetCluster() != "c" || !maps.Equal(m.GetShardMetadata(), metadata) {
			t.Errorf("it does not keep what it had: %v", m)
		}
		gone[id] = m
	}
	check := func() {
		t.Helper()
		for id, m := range gone {
			p.refused(id, codes.Internal)
			if diff := cmp.Diff(m, p.get(id), protocmp.Transform()); diff != "" {
				t.Errorf("a FAILED machine changed (-before +after):\n%s", diff)
			}
		}
	}
	check()
	p.kill()
	p = startProvider(t, environment(), nil, args...)
	check()
	if code := p.terminate(); code != 0 { // powers the hosts off
		t.Errorf("exit code %d", code)
	}
}
