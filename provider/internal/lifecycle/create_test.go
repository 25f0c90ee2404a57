package lifecycle_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"bigfleet-providers/provider/internal/cloud"
	"bigfleet-providers/provider/internal/lifecycle"
	"bigfleet-providers/provider/internal/machine"
)

// A server that was just ordered is in no list for two minutes and cannot be
// read for twenty seconds. Whoever asks for it again meanwhile is told of the
// one Create, and nothing is ordered twice or taken for lost.
func TestCreateAgainWhileReadsLag(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		synctest.Wait()
		began := time.Now()
		r.cloud.edit(func() {
			r.cloud.hidden["z/1"] = began.Add(120 * time.Second)
			r.cloud.unread["z/1"] = func(context.Context) error {
				if time.Since(began) < 20*time.Second {
					return cloud.ErrNotFound
				}
				return nil
			}
		})
		r.cloud.script("boot", slicesOf(cloud.Again(10*time.Second, "boots"), 9)...)
		first := r.must(machine.Create)
		for _, at := range []time.Duration{time.Second, 10 * time.Second, 30 * time.Second, 60 * time.Second} {
			time.Sleep(time.Until(began.Add(at)))
			if err := r.engine.Reconcile(t.Context()); err != nil {
				t.Fatal(err)
			}
			if again := r.must(machine.Create); again != first {
				t.Errorf("Create after %s began operation %s, want a replay of %s", at, again, first)
			}
			if s := r.record("m1").State; s != machine.Creating {
				t.Fatalf("the machine is %s after %s", s, at)
			}
		}
		if rec := r.settle(machine.Idle); rec.Host != "z/1" {
			t.Errorf("host %+v", rec.Host)
		}
		time.Sleep(time.Hour)
		if n := r.cloud.count("order"); n != 1 || r.cloud.size() != 1 || r.record("m1").State != machine.Idle {
			t.Errorf("%d orders made %d servers; the machine is %s", n, r.cloud.size(), r.record("m1").State)
		}
	})
}

// A boot may take as long as the operator allows. One that takes longer fails
// once, with the stage named, and is not begun again in a loop.
func TestSlowBoot(t *testing.T) {
	for minutes, want := range map[int]machine.State{14: machine.Idle, 25: machine.Failed} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, func(o *lifecycle.Options) { o.Timeouts.Create = 20 * time.Minute })
			synctest.Wait()
			r.cloud.script("boot", slicesOf(cloud.Again(time.Minute, "the server is starting"), minutes)...)
			r.must(machine.Create)
			rec := r.settle(want)
			if want == machine.Failed {
				for _, w := range []string{`at step "boot"`, "after 20m0s", "(timeout)", "the server is starting", "--create-timeout"} {
					if !strings.Contains(rec.LastError, w) {
						t.Errorf("last_error %q does not say %q", rec.LastError, w)
					}
				}
			}
			time.Sleep(6 * time.Hour)
			servers := map[machine.State]int{machine.Idle: 1}[want]
			if n := r.cloud.count("order"); n != 1 || r.cloud.size() != servers {
				t.Errorf("a boot of %d min: %d orders, %d servers are left, want 1 and %d", minutes, n, r.cloud.size(), servers)
			}
		})
	}
}

// A Delete that comes at any time of a Create is refused, so that the two never
// race for the server; and whatever becomes of the Create, no server stays that
// nobody wants.
func TestDeleteDuringCreate(t *testing.T) {
	const takes = 8 * time.Second
	for range 10 {
		at := rand.N(takes - time.Second)
		for _, outcome := range []error{nil, cloud.ErrNoCapacity} {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, nil)
				synctest.Wait()
				r.cloud.script("order", cloud.Again(takes/2, "not answered"))
				r.cloud.script("boot", append(slicesOf(cloud.Again(takes/2, "boots"), 1), slicesOf(outcome, 1)...)...)
				r.must(machine.Create)
				time.Sleep(at)
				var refused *machine.Error
				if _, err := r.do(machine.Delete, nil); !errors.As(err, &refused) || refused.Code != machine.Busy || !strings.Contains(refused.Text, "CREATING") {
					t.Fatalf("Delete %s into a Create: %v", at, err)
				}
				if outcome == nil {
					r.settle(machine.Idle)
					r.must(machine.Delete)
					r.settle(machine.Speculative)
				} else {
					r.settle(machine.Failed)
					time.Sleep(time.Minute)
				}
				if n := r.cloud.size(); n != 0 || r.cloud.count("boot") == 0 {
					t.Errorf("a Delete %s into a Create that ended with %v: %d servers are left", at, outcome, n)
				}
			})
		}
	}
}

// TestLanes accepts more Creates than may run at once: each waits its turn, a
// restart loses none, and one whose deadline passes in the queue fails.
func TestLanes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slots := map[string]*machine.Offer{}
		ids := []string{"a", "b", "c", "d", "e", "f"}
		for _, id := range ids {
			slots[id] = offer
		}
		r := newRig(t, func(o *lifecycle.Options) { o.MaxCreates = 2 })
		if err := r.engine.Seed(context.Background(), slots); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		r.hosts.edit(func() { r.hosts.silent = true })
		accepted := time.Now()
		for _, id := range ids {
			if _, err := r.do(machine.Create, func(q *machine.Request) { q.MachineID = id }); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Minute)
		if driven, waiting := r.engine.Backlog(machine.Create); driven != 2 || waiting != 4 || r.cloud.size() != 2 {
			t.Fatalf("%d driven, %d wait, %d servers", driven, waiting, r.cloud.size())
		}
		r.stop()
		r.opts.MaxCreates = 1
		r.start()
		if err := r.engine.Seed(context.Background(), slots); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Until(accepted.Add(10*time.Minute + 30*time.Second)))
		for _, id := range ids {
			if rec := r.record(id); rec.State != machine.Failed || !strings.Contains(rec.LastError, "timeout") {
				t.Errorf("%s: %s %q", id, rec.State, rec.LastError)
			}
		}
		if driven, waiting := r.engine.Backlog(machine.Create); driven != 0 || waiting != 0 {
			t.Errorf("%d driven, %d wait", driven, waiting)
		}
	})
}

// TestDeadlineInTheQueue: an operation that waits ends at its deadline, however
// long the one before it may take, and nothing is begun for it.
func TestDeadlineInTheQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slots := map[string]*machine.Offer{}
		for i := range 3000 {
			slots[fmt.Sprintf("m%04d", i)] = offer
		}
		r := newRig(t, func(o *lifecycle.Options) { o.MaxCreates = 1; o.Timeouts.Create = 2 * time.Hour })
		synctest.Wait()
		r.hosts.edit(func() { r.hosts.silent = true })
		r.must(machine.Create)
		time.Sleep(time.Minute)
		r.stop()
		r.opts.Timeouts.Create = 5 * time.Minute
		r.start()
		if err := r.engine.Seed(context.Background(), slots); err != nil {
			t.Fatal(err)
		}
		for id := range slots {
			if _, err := r.do(machine.Create, func(q *machine.Request) { q.MachineID = id }); err != nil {
				t.Fatal(err)
			}
		}
		if driven, waiting := r.engine.Backlog(machine.Create); driven != 1 || waiting != len(slots) {
			t.Fatalf("%d driven, %d wait", driven, waiting)
		}
		time.Sleep(5*time.Minute + 10*time.Second)
		for id := range slots {
			if rec := r.record(id); rec.State != machine.Failed || !strings.Contains(rec.LastError, "timeout") {
				t.Fatalf("past its deadline %s is %s: %q", id, rec.State, rec.LastError)
			}
		}
		if driven, waiting := r.engine.Backlog(machine.Create); driven != 1 || waiting != 0 || r.record("m1").State != machine.Creating {
			t.Errorf("%d driven, %d wait, the first is %s", driven, waiting, r.record("m1").State)
		}
		if n := r.cloud.size(); n != 1 {
			t.Errorf("%d servers", n)
		}
		// They do not make the lane wider either.
		for _, id := range []string{"m0001-r2", "m0002-r2"} {
			if _, err := r.do(machine.Create, func(q *machine.Request) { q.MachineID = id }); err != nil {
				t.Fatal(err)
			}
		}
		if driven, waiting := r.engine.Backlog(machine.Create); driven != 1 || waiting != 2 {
			t.Errorf("%d driven, %d wait", driven, waiting)
		}
	})
}
