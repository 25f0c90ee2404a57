package contract

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"pgregory.net/rapid"
)

// mark is the newest token of a shard for a machine.
type mark struct {
	seen            bool
	epoch, sequence int64
}

// admits tells whether a token is newer than the mark.
func (m mark) admits(t token) bool {
	return !m.seen || t.epoch > m.epoch || t.epoch == m.epoch && t.sequence > m.sequence
}

// fences is the oracle of the fence: a mark for each shard and machine.
type fences map[[2]string]mark

// judge compares the server's answer to a Drain that fits no state with what
// the fence has to say; beyond is the code behind the fence.
func (f fences) judge(id string, t token, code codes.Code, beyond func(codes.Code) bool) error {
	key := [2]string{t.shard, id}
	want, fits := "the answer behind the fence", beyond(code)
	switch {
	case t == token{}:
	case !f[key].admits(t):
		want, fits = "FAILED_PRECONDITION", code == codes.FailedPrecondition
	default:
		f[key] = mark{true, t.epoch, t.sequence}
	}
	if !fits {
		return fmt.Errorf("token %+v for %s: %s, want %s; the mark is %+v", t, id, code, want, f[key])
	}
	return nil
}

func isNotFound(code codes.Code) bool { return code == codes.NotFound }

// numbers draws epochs and sequences: a few small ones, which meet often, and
// the extremes.
func numbers() *rapid.Generator[int64] {
	return rapid.OneOf(
		rapid.Int64Range(-2, 4), rapid.Int64Range(-2, 4),
		rapid.SampledFrom([]int64{math.MaxInt64, math.MaxInt64 - 1, math.MaxInt64 - 2, 1 << 32, math.MaxInt32}),
		rapid.SampledFrom([]int64{math.MinInt64, math.MinInt64 + 1, -1 << 32}),
		rapid.Int64(),
	)
}

// shardsPerMachine bounds how many shards a property introduces to one machine:
// a server keeps a mark for each.
const shardsPerMachine = 900

// TestFenceProperty sends random tokens of several shards for a machine and for
// unknown ones, and compares with the oracle.
func TestFenceProperty(t *testing.T) {
	s := open(t, 1)
	known := s.spare(1) // without one, only unknown machines are tried
	var runs atomic.Int64
	rapid.Check(t, func(t *rapid.T) {
		s, n := s.in(t), runs.Add(1)
		unknown := fmt.Sprintf("%s-fence-%d", run, n)
		ids := []string{unknown, unknown + "-b"}
		if n*3 < shardsPerMachine {
			ids = slices.Concat(ids, known, known)
		}
		oracle := fences{}
		for range rapid.IntRange(1, 150).Draw(t, "length") {
			id := rapid.SampledFrom(ids).Draw(t, "machine")
			tok := token{"", numbers().Draw(t, "epoch"), numbers().Draw(t, "sequence")}
			// The shard without a name has a mark as well, and one that lasts:
			// it only meets ids of this run.
			if name := rapid.SampledFrom([]string{"a", "b", "\u00e9", "", "empty"}).Draw(t, "shard"); name == "empty" && !shared.fenced {
				tok = token{}
			} else if name != "" || slices.Contains(known, id) {
				tok.shard = fmt.Sprintf("%s-%d-%s", run, n, strings.TrimPrefix(name, "empty"))
			} else if tok == (token{}) && shared.fenced {
				continue
			}
			beyond := isNotFound
			if slices.Contains(known, id) {
				beyond = misplaced
			}
			if err := oracle.judge(id, tok, s.try(drain, id, tok).code(), beyond); err != nil {
				t.Fatalf("%v", err)
			}
		}
	})
}

// TestFencesOracle: the oracle must be able to find a server wrong.
func TestFencesOracle(t *testing.T) {
	t.Parallel()
	const stale, behind, invalid = codes.FailedPrecondition, codes.NotFound, codes.InvalidArgument
	past := fences{{"s", "m"}: {true, 5, 5}, {"", "m"}: {true, 5, 5}, {"s", "max"}: {true, math.MaxInt64, math.MaxInt64}}
	for _, tt := range []struct {
		id   string
		tok  token
		want codes.Code
	}{
		{"m", token{"s", 5, 5}, stale},
		{"m", token{"s", 5, 6}, behind},
		{"m", token{"s", 4, math.MaxInt64}, stale},
		{"m", token{"s", 6, 0}, behind},
		{"m", token{"s", 0, 0}, stale},
		{"m", token{"", 0, 1}, stale},
		{"m", token{"", 0, 0}, behind},
		{"m", token{"s", -1, 9}, stale},
		{"m", token{"s", 9, math.MinInt64}, behind},
		{"m", token{"s", 5, math.MinInt64}, stale},
		{"m", token{"", -1, 0}, stale},
		{"n", token{"s", math.MinInt64, math.MinInt64}, behind},
		{"m", token{"t", 0, 0}, behind},
		{"n", token{"s", 1, 1}, behind},
		{"max", token{"s", math.MaxInt64, math.MaxInt64}, stale},
		{"max", token{"s", math.MaxInt64, 0}, stale},
	} {
		for _, code := range []codes.Code{codes.OK, stale, behind, invalid, codes.Internal, codes.Unavailable} {
			oracle := maps.Clone(past)
			if err := oracle.judge(tt.id, tt.tok, code, isNotFound); (err == nil) != (code == tt.want) {
				t.Errorf("%s for token %v on %s: %v, but %s is right", code, tt.tok, tt.id, err, tt.want)
			}
			again := oracle.judge(tt.id, tt.tok, stale, isNotFound)
			if tt.want == behind && tt.tok != (token{}) && again != nil {
				t.Errorf("token %v on %s was let through, and no mark tells: %v", tt.tok, tt.id, again)
			}
		}
	}
	if !misplaced(status.Code(status.Error(codes.Aborted, ""))) || misplaced(codes.OK) || misplaced(stale) || misplaced(behind) {
		t.Error("misplaced accepts what is no refusal for the state")
	}
}
