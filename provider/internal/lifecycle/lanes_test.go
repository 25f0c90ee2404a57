package lifecycle

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"bigfleet-providers/provider/internal/machine"
)

// TestLane holds a lane to a list: what waits is driven in the order in which it
// came, whatever the clock said, no more at a time than the limit, those past
// their deadline beside it, and the oldest of all is known.
func TestLane(t *testing.T) {
	epoch := time.Unix(1_800_000_000, 0)
	rapid.Check(t, func(t *rapid.T) {
		e := &Engine{lanes: lanes(rapid.IntRange(1, 4).Draw(t, "limit"))}
		l := e.lanes[machine.Create]
		var all, driven []*flight
		for i := range rapid.IntRange(1, 200).Draw(t, "events") {
			switch rapid.SampledFrom([]string{"enter", "enter", "next", "leave", "overdue"}).Draw(t, "event") {
			case "enter":
				f := &flight{operation: fmt.Sprint("op-", i), started: epoch.Add(time.Duration(i+rapid.IntRange(-9, 9).Draw(t, "clock")) * time.Second)}
				f.deadline = f.started.Add(time.Duration(rapid.IntRange(0, 100).Draw(t, "timeout")) * time.Second)
				l.enter(f)
				all = append(all, f)
			case "next":
				var want *flight
				if waiting := slices.IndexFunc(all, func(f *flight) bool { return !slices.Contains(driven, f) }); waiting >= 0 && len(driven) < l.limit {
					want = all[waiting]
					driven = append(driven, want)
				}
				if got := l.next(); got != want {
					t.Fatalf("driven next is %+v, want %+v", got, want)
				}
			case "overdue":
				now := epoch.Add(time.Duration(i) * time.Second)
				var want []*flight
				for _, f := range all {
					if !slices.Contains(driven, f) && !f.deadline.After(now) {
						want = append(want, f)
					}
				}
				if got := l.overdue(now); !slices.Equal(got, want) {
					t.Fatalf("overdue are %d, want %d", len(got), len(want))
				}
				driven = append(driven, want...)
			case "leave":
				if len(driven) == 0 {
					break
				}
				f := rapid.SampledFrom(driven).Draw(t, "which")
				l.leave(f)
				is := func(other *flight) bool { return other == f }
				all, driven = slices.DeleteFunc(all, is), slices.DeleteFunc(driven, is)
			}
			var want time.Time
			if len(all) > 0 {
				want = all[0].started
			}
			if n, oldest := e.InFlight(machine.Create); n != len(all) || !oldest.Equal(want) {
				t.Fatalf("%d in flight, the oldest of %v; want %d, %v", n, oldest, len(all), want)
			}
			if d, w := e.Backlog(machine.Create); d != len(driven) || w != len(all)-len(driven) {
				t.Fatalf("%d driven and %d waiting, want %d and %d", d, w, len(driven), len(all)-len(driven))
			}
		}
		if n, oldest := e.InFlight(machine.Drain); n != 0 || !oldest.IsZero() {
			t.Fatalf("of another kind: %d, %v", n, oldest)
		}
	})
}

// nobody is a store without machines.
type nobody struct{ Store }

func (nobody) Record(string) (machine.Record, bool) { return machine.Record{}, false }

// TestBlobEndsWithItsFlight: a replay gives its blob to what is in a lane. It is
// dropped when that leaves the lane, driven or not, and no replay gives another.
func TestBlobEndsWithItsFlight(t *testing.T) {
	e := New(Options{Store: nobody{}})
	e.running = t.Context()
	l := e.lanes[machine.Configure]
	l.limit = 0
	op := &machine.Operation{ID: "op-1", Kind: machine.Configure}
	e.launch(machine.Record{ID: "m1", Op: op})
	e.offerBlob(op, machine.Replayed, []byte("join"))
	if len(e.blobs) != 1 {
		t.Fatalf("%d blobs of an operation that waits in its lane, want 1", len(e.blobs))
	}
	l.limit = 1
	e.mu.Lock()
	e.spawn(t.Context(), l, l.next())
	e.mu.Unlock()
	e.work.Wait()
	e.offerBlob(op, machine.Replayed, []byte("join"))
	if len(e.blobs) != 0 {
		t.Error("the blob of an operation that is over is kept for good")
	}
}
