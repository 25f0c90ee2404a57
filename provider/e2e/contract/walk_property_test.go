package contract

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"pgregory.net/rapid"

	pb "bigfleet-providers/proto/bigfleet/v1alpha1"
)

// churn changes machines over and over, a caller each, until it is stopped.
type churn struct {
	s     *server
	pause sync.RWMutex // held by a caller over a whole transition
	done  chan struct{}
	wg    sync.WaitGroup
}

func startChurn(s *server, ids []string) *churn {
	c := &churn{s: s, done: make(chan struct{})}
	for i, id := range ids {
		c.wg.Go(func() {
			for n := int64(0); ; {
				for _, k := range possible() {
					if k == create && keeps() && n > 0 {
						continue
					}
					n++
					if err := c.step(k, id, token{fmt.Sprintf("%s-churn-%d", run, i), 1, n}); err != nil {
						s.t.Errorf("%v", err)
						return
					}
					select {
					case <-c.done:
						return
					default:
					}
				}
			}
		})
	}
	return c
}

func (c *churn) step(k kind, id string, tok token) error {
	c.pause.RLock()
	defer c.pause.RUnlock()
	if a := c.s.try(k, id, tok); a.err != nil {
		return fmt.Errorf("%s of %s: %w", k, id, a.err)
	}
	_, err := c.s.reach(id, edges[k].to)
	return err
}

func (c *churn) stop() {
	close(c.done)
	c.wg.Wait()
}

// corrupted draws a cursor that differs from the one given.
func corrupted(t *rapid.T, cursor []byte) []byte {
	// Every byte is to be hit as often as any other; rapid prefers the first ones.
	even := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "corruption"), 0))
	bad := slices.Clone(cursor)
	switch even.IntN(6) {
	case 0:
		bad = bad[:even.IntN(len(bad))]
	case 1:
		bad = append(bad, byte(even.IntN(256)))
	case 2:
		for i := range bad {
			bad[i] = byte(even.IntN(256))
		}
	default:
		bad[even.IntN(len(bad))] ^= byte(1 << even.IntN(8))
	}
	if bytes.Equal(bad, cursor) {
		bad[0] ^= 1
	}
	return bad
}

// TestWalkProperty follows pages and deltas of several walks at once, in any
// sizes and with any filters, while callers change some machines.
func TestWalkProperty(t *testing.T) {
	const most = 24
	s := open(t, most)
	busy := s.spare(3) // without one, nothing changes
	total := len(s.list().GetMachines())
	quiet := map[string]*pb.Machine{}
	for _, m := range s.list().GetMachines() {
		if !slices.Contains(busy, m.GetId()) {
			quiet[m.GetId()] = m
		}
	}
	churn := startChurn(s, busy)
	defer churn.stop()
	states := []pb.MachineState{speculative, creating, idle, configuring, configured, draining, deleting, failed, unspecified, 99}
	rapid.Check(t, func(t *rapid.T) {
		s := s.in(t)
		walks := make([]*walk, rapid.IntRange(1, 3).Draw(t, "walks"))
		for i := range walks {
			walks[i] = newWalk(rapid.SliceOfN(rapid.SampledFrom(states), 0, 4).Draw(t, "states"), quiet)
		}
		next := func(w *walk) bool {
			size := int32(rapid.IntRange(0, total+1).Draw(t, "max_results"))
			l := s.page(w.states, size, w.cursor)
			if err := w.take(l, size); err != nil {
				t.Fatalf("page of %d of %v: %v", size, w.states, err)
			}
			return size > 0 && len(l.GetMachines()) == int(size)
		}
		for range rapid.IntRange(1, 30).Draw(t, "length") {
			w := rapid.SampledFrom(walks).Draw(t, "walk")
			next(w)
			for range rapid.IntRange(0, 5).Draw(t, "corruptions") {
				bad := corrupted(t, w.cursor)
				afresh := newWalk(w.states, quiet)
				l := s.page(w.states, 0, bad)
				if err := afresh.take(l, 0); err != nil {
					t.Fatalf("cursor %x, made of %x: %v", bad, w.cursor, err)
				}
				if len(w.states) == 0 && len(l.GetMachines()) != total {
					t.Fatalf("cursor %x, made of %x: %d machines, want all %d", bad, w.cursor, len(l.GetMachines()), total)
				}
			}
		}
		churn.pause.Lock()
		defer churn.pause.Unlock()
		for _, w := range walks {
			for next(w) {
			}
			if err := w.finish(s.list()); err != nil {
				t.Fatalf("walk of %v: %v", w.states, err)
			}
		}
	})
}
