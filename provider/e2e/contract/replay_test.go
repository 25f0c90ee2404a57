package contract

import (
	"fmt"
	"slices"
	"sync"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
)

// repeats expects a kind of call to answer with the operation and the present
// machine, to any shard, and to start nothing.
func (s *server) repeats(k kind, id, operation string) {
	s.t.Helper()
	now := s.get(id)
	for _, shard := range []string{"", "-another", "-third"} {
		tok := fresh()
		tok.shard += shard
		a := s.try(k, id, tok)
		if a.err != nil || a.operation != operation {
			s.t.Errorf("retry of %s in %s by %s: %v, want operation %s", k, now.GetState(), tok.shard, a, operation)
		} else if !proto.Equal(a.machine, now) {
			s.t.Errorf("retry of %s shows %v, want %v", k, a.machine, now)
		}
	}
}

// refused sends each kind but those that fit, and expects that they are refused
// and move nothing.
func (s *server) refused(id string, fits ...kind) {
	s.t.Helper()
	before := s.get(id)
	if keeps() {
		s.wantKept(id, fresh())
	}
	for _, kind := range possible() {
		if !slices.Contains(fits, kind) {
			wantMisplaced(s.t, fmt.Sprintf("%s of %s", kind, before.GetState()), s.try(kind, id, fresh()).err)
		}
	}
	if after := s.get(id); !proto.Equal(before, after) {
		s.t.Errorf("refused calls moved %v to %v", before, after)
	}
}

// TestPosition tries every call wherever a machine rests, in two lives.
func TestPosition(t *testing.T) {
	s := open(t, 1)
	id := s.lease(1)[0]
	// An earlier life's Delete may be known, and would be a replay.
	s.refused(id, create, del)
	s.must(create, id, fresh())
	s.refused(id, create, configure, del) // Drain: never configured
	s.must(configure, id, fresh())
	s.refused(id, configure, drain)
	other := call{kind: configure, id: id, token: fresh(), cluster: "other"}
	s.unchanged("Configure for another cluster", func() {
		wantMisplaced(t, "Configure of CONFIGURED for another cluster", s.do(other).err)
	})
	s.must(drain, id, fresh())
	s.refused(id, create, configure, drain, del)
	if keeps() {
		return
	}
	s.must(del, id, fresh())
	s.refused(id, create, del)
	// The next life inherits nothing of this one.
	s.must(create, id, fresh())
	s.refused(id, create, configure, del)
}

// TestReplay retries every call in its transition, if the server is slow enough
// to be caught there, and at its end.
func TestReplay(t *testing.T) {
	s := open(t, 1)
	id := s.lease(1)[0]
	seen := map[string]bool{}
	step := func(k kind) {
		t.Helper()
		operation := s.accepted(call{kind: k, id: id, token: fresh(), cluster: "c"})
		if operation == "" || seen[operation] {
			t.Errorf("operation id %q of %s was given out before", operation, k)
		}
		seen[operation] = true
		if a := s.try(k, id, fresh()); a.err != nil || a.operation != operation {
			t.Errorf("a retry of %s at once: %v, want operation %s", k, a, operation)
		}
		s.await(id, edges[k].to)
		s.repeats(k, id, operation)
	}
	// A second binding of the same host to the same cluster, and a second life,
	// are new operations.
	for _, k := range []kind{create, configure, drain, configure, drain} {
		step(k)
	}
	if keeps() {
		return
	}
	for _, k := range []kind{del, create, del} {
		step(k)
	}
}

// TestConcurrentCallers sends the same calls by 32 callers at once: one
// operation is started, whoever asks.
func TestConcurrentCallers(t *testing.T) {
	s := open(t, 1)
	id := s.lease(1)[0]
	together := func(k kind, tok func(i int) token) map[string]int {
		var mu sync.Mutex
		var wg sync.WaitGroup
		answers := map[string]int{}
		for i := range 32 {
			wg.Go(func() {
				a := s.try(k, id, tok(i))
				mu.Lock()
				defer mu.Unlock()
				if a.err != nil {
					answers[a.code().String()]++
				} else {
					answers[a.operation]++
				}
			})
		}
		wg.Wait()
		return answers
	}
	if got := together(create, func(i int) token { return token{fmt.Sprintf("%s-%d", run, i), 1, 1} }); len(got) != 1 {
		t.Errorf("32 shards that create one machine got %v, want one operation", got)
	}
	s.await(id, idle)
	got := together(configure, func(int) token { return token{run + "-one", 3, 3} })
	if len(got) != 2 || got[codes.FailedPrecondition.String()] != 31 {
		t.Errorf("32 callers with one token got %v, want one operation and 31 refusals", got)
	}
}
