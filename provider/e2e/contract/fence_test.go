package contract

import (
	"fmt"
	"math"
	"testing"

	"google.golang.org/grpc/codes"
)

// passes tells whether the fence lets a token through: it shows in the answer
// to a call that does not fit the machine's state.
func (s *server) passes(id string, tok token) bool {
	return s.try(drain, id, tok).code() != codes.FailedPrecondition
}

func TestFence(t *testing.T) {
	s := open(t, 4)
	shard := func(name string) string { return run + "-" + name }

	t.Run("comes before not-found, and keeps marks of unknown ids", func(t *testing.T) {
		s := s.in(t)
		for _, kind := range possible() {
			id, shard := fmt.Sprintf("%s-nobody-%s", run, kind), shard("unknown")
			wantCode(t, kind.String(), s.try(kind, id, token{shard, 1, 5}).err, codes.NotFound, id)
			wantCode(t, kind.String()+" again", s.try(kind, id, token{shard, 1, 5}).err, codes.FailedPrecondition)
			wantCode(t, kind.String()+" with a newer token", s.try(kind, id, token{shard, 1, 6}).err, codes.NotFound)
		}
	})
	t.Run("accepts only what is strictly newer", func(t *testing.T) {
		s, shard := s.in(t), shard("order")
		id := s.lease(1)[0]
		for _, step := range []struct {
			tok  token
			want bool
		}{
			{token{shard, math.MinInt64, math.MinInt64}, true}, // first contact, whatever it is
			{token{shard, math.MinInt64, math.MinInt64}, false},
			{token{shard, math.MinInt64, math.MaxInt64}, true},
			{token{shard, -1, 0}, true}, // negative numbers are numbers
			{token{shard, -1, -1}, false},
			{token{shard, -2, 5}, false},
			{token{shard, 0, -5}, true},
			{token{shard, 0, -4}, true},
			{token{shard, 0, -4}, false},
			{token{shard, -1, math.MaxInt64}, false},
			{token{shard, 5, 10}, true},
			{token{shard, 5, 10}, false},
			{token{shard, 5, 9}, false},
			{token{shard, 4, 11}, false},
			{token{shard, 4, math.MaxInt64}, false},
			{token{shard, 5, 11}, true},
			{token{shard, 5, 20}, true}, // gaps are fine
			{token{shard, 6, 0}, true},  // a higher epoch restarts the sequence
			{token{shard, 5, 21}, false},
			{token{shard, 6, 0}, false},
			{token{shard, 6, 1}, true},
			{token{shard, 0, 0}, false}, // not an empty token: it names a shard
			{token{"", 0, 0}, true},     // an empty token is not fenced
			{token{shard, 6, 1}, false}, // nor does it move a mark
			{token{shard, math.MaxInt64 - 1, math.MaxInt64}, true},
			{token{shard, math.MaxInt64, math.MinInt64}, true},
			{token{shard, math.MaxInt64, 0}, true},
			{token{shard, math.MinInt64, math.MaxInt64}, false},
			{token{shard, math.MaxInt64, math.MaxInt64}, true},
			{token{shard, math.MaxInt64, math.MaxInt64}, false},
			{token{shard, 0, 1}, false},
		} {
			if got := s.passes(id, step.tok); got != step.want {
				t.Errorf("%v passed: %v, want %v", step.tok, got, step.want)
			}
		}
	})
	t.Run("keeps a mark for each shard and machine", func(t *testing.T) {
		s := s.in(t)
		ids := s.lease(2)
		a, b := ids[0], ids[1]
		for _, step := range []struct {
			id   string
			tok  token
			want bool
		}{
			{a, token{shard("s1"), 7, 7}, true},
			{a, token{shard("s2"), 1, 1}, true},
			{b, token{shard("s1"), 1, 1}, true},
			{a, token{shard("s2"), 1, 1}, false},
			{b, token{shard("s1"), 1, 1}, false},
			{a, token{shard("s1"), 7, 8}, true},
			{a, token{shard("S1"), 1, 1}, true}, // ids are exact
		} {
			if got := s.passes(step.id, step.tok); got != step.want {
				t.Errorf("%v on %s passed: %v, want %v", step.tok, step.id, got, step.want)
			}
		}
	})
	t.Run("changes nothing when it refuses", func(t *testing.T) {
		s, shard := s.in(t), shard("unchanged")
		id := s.lease(1)[0]
		s.must(create, id, token{shard, 2, 2})
		for _, kind := range possible() {
			s.unchanged(kind.String(), func() {
				wantCode(t, kind.String(), s.try(kind, id, token{shard, 2, 1}).err, codes.FailedPrecondition)
			})
		}
	})
	t.Run("comes before replay", func(t *testing.T) {
		s, shard := s.in(t), shard("replay")
		id := s.lease(1)[0]
		s.accepted(call{kind: create, id: id, token: token{shard, 1, 1}})
		wantCode(t, "the same call with the same token", s.try(create, id, token{shard, 1, 1}).err, codes.FailedPrecondition)
	})
	t.Run("a mark advances although the call fails", func(t *testing.T) {
		s, shard := s.in(t), shard("advance")
		id := s.lease(1)[0]
		wantMisplaced(t, "Configure of SPECULATIVE", s.try(configure, id, token{shard, 1, 5}).err)
		wantCode(t, "Create with the used token", s.try(create, id, token{shard, 1, 5}).err, codes.FailedPrecondition)
		s.must(create, id, token{shard, 1, 6})
	})
	t.Run("does not apply to reads", func(t *testing.T) {
		s, shard := s.in(t), shard("reads")
		id := s.lease(1)[0]
		_ = s.passes(id, token{shard, 9, 9})
		s.get(id)
		s.list()
	})
	t.Run("is optional", func(t *testing.T) {
		if shared.fenced {
			t.Skip("the target demands tokens")
		}
		s := s.in(t)
		id := s.lease(1)[0]
		s.must(create, id, token{})
		if !keeps() {
			s.must(del, id, token{})
		}
	})
	t.Run("is not asked where there is no Delete", func(t *testing.T) {
		if !keeps() {
			t.Skip("the server carries Deletes out")
		}
		s, shard := s.in(t), shard("kept")
		id := s.lease(1)[0]
		s.wantKept(id, token{shard, 5, 5})
		s.must(create, id, token{shard, 5, 5}) // the token was not used up
		s.wantKept(id, token{shard, 5, 4})
		s.wantKept(run+"-kept", token{shard, 5, 5}) // whatever the id
	})
	t.Run("marks outlive the machine's life", func(t *testing.T) {
		if keeps() {
			t.Skip("a machine has one life")
		}
		s, shard := s.in(t), shard("lives")
		id := s.lease(1)[0]
		s.must(create, id, token{shard, 1, 10})
		s.must(del, id, token{shard, 1, 11})
		wantCode(t, "Create with the token of the life before", s.try(create, id, token{shard, 1, 11}).err, codes.FailedPrecondition)
	})
}
