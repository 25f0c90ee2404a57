package contract

import (
	"bytes"
	"fmt"
	"maps"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/testing/protocmp"
)

// TestRestartAtRest kills a server at rest, then stops one, and starts another on its state: it
// must be indistinguishable, marks and cursors included.
func TestRestartAtRest(t *testing.T) {
	s := openKept(t, 6)
	ids := s.lease(6)
	shard := run + "-rest"
	old := s.list().GetRevision()
	created := s.must(create, ids[0], token{shard, 3, 30})
	s.must(create, ids[1], token{shard, 3, 30})
	metadata := awkward()
	bound := s.accepted(call{kind: configure, id: ids[1], token: token{shard, 3, 31}, cluster: "c", metadata: metadata})
	s.await(ids[1], configured)
	s.must(create, ids[2], token{shard, math.MaxInt64, math.MaxInt64 - 1})
	last, end := del, token{shard, math.MaxInt64, math.MaxInt64}
	if keeps() {
		last = configure
	}
	ended := s.must(last, ids[2], end)
	for _, other := range []string{shard + "-1", shard + "-2"} { // refused, but they leave marks
		wantMisplaced(t, "Drain of SPECULATIVE", s.try(drain, ids[3], token{other, 5, 5}).err)
		wantCode(t, "Drain of nobody", s.try(drain, run, token{other, 5, 5}).err, codes.NotFound)
	}
	before := s.list()
	delta := idsOf(s.page(nil, 0, old))

	for round := range 2 {
		if round > 0 {
			s.own.terminate(t)
		}
		s.restart()
		if diff := cmp.Diff(before, s.list(), protocmp.Transform()); diff != "" {
			t.Errorf("round %d: the list changed (-before +after):\n%s", round, diff)
		}
		if l := s.page(nil, 0, before.GetRevision()); len(l.GetMachines()) != 0 || !bytes.Equal(l.GetRevision(), before.GetRevision()) {
			t.Errorf("round %d: %d changes over the restart", round, len(l.GetMachines()))
		}
		if diff := cmp.Diff(delta, idsOf(s.page(nil, 0, old))); diff != "" {
			t.Errorf("round %d: the delta of an old cursor changed:\n%s", round, diff)
		}
		if m := s.get(ids[1]); !maps.Equal(m.GetShardMetadata(), metadata) {
			t.Errorf("round %d: metadata %q", round, m.GetShardMetadata())
		}
		for _, c := range []call{
			{kind: create, id: ids[0], token: token{shard, 3, 30}},
			{kind: configure, id: ids[1], token: token{shard, 3, 31}},
			{kind: create, id: ids[2], token: token{shard, math.MaxInt64, math.MaxInt64}},
			{kind: create, id: ids[3], token: token{shard + "-1", 5, 5}},
			{kind: create, id: ids[3], token: token{shard + "-2", 5, 4}},
			{kind: create, id: run, token: token{shard + "-1", 5, 5}},
			{kind: create, id: run, token: token{shard + "-2", 4, 6}},
		} {
			wantCode(t, fmt.Sprintf("stale token %v after a restart", c.token), s.try(c.kind, c.id, c.token).err, codes.FailedPrecondition)
		}
		s.repeats(create, ids[0], created)
		s.repeats(configure, ids[1], bound)
		s.repeats(last, ids[2], ended)
	}
}

// TestRestartUnderWay kills the server again and again while its machines are
// in transitions: each answered call holds, under its operation, and every
// machine arrives with what it had.
func TestRestartUnderWay(t *testing.T) {
	const n = 16
	s := openKept(t, n)
	ids, total := s.lease(n), len(s.list().GetMachines())
	metadata := awkward()
	refs := map[string]string{}
	for _, k := range possible() {
		request := func(id string) call {
			return call{kind: k, id: id, token: fresh(), cluster: "c", metadata: metadata}
		}
		operations := map[string]string{}
		for _, id := range ids {
			operations[id] = s.accepted(request(id))
		}
		s.restart()
		for _, id := range ids {
			if a := s.do(request(id)); a.err != nil || a.operation != operations[id] {
				t.Fatalf("retry for %s: %v, want operation %s", id, a, operations[id])
			}
		}
		for _, id := range ids {
			s.await(id, edges[k].to)
		}
		s.restart()
		for _, id := range ids {
			m := s.await(id, edges[k].to)
			if err := stateFaults(m); err != nil {
				t.Error(err)
			}
			switch k {
			case create:
				refs[id] = m.GetHost().GetRef()
			case configure:
				if m.GetHost().GetRef() != refs[id] || m.GetCluster() != "c" || !maps.Equal(m.GetShardMetadata(), metadata) {
					t.Errorf("%s changed over the restarts: %v", id, m)
				}
			case drain, del:
			}
		}
	}
	if got := len(s.list().GetMachines()); got != total {
		t.Errorf("%d machines after the restarts, want %d", got, total)
	}
	wantCode(t, "the first token after the restarts", s.try(create, ids[0], token{run, 1, 1}).err, codes.FailedPrecondition)
}
