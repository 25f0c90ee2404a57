package elasticmetal_test

import (
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"bigfleet-providers/provider/internal/cloud"
	"bigfleet-providers/provider/internal/cloud/cloudtest"
	"bigfleet-providers/provider/internal/cloud/scaleway"
	"bigfleet-providers/provider/internal/cloud/scaleway/elasticmetal"
	"bigfleet-providers/provider/internal/fakecloud"
)

// routeGetMetal reads one server.
const routeGetMetal = "GET /baremetal/v1/zones/{zone}/servers/{id}"

// answersLate has the API's answers to a route come so long after they were
// true: the cloud says how things were when it was asked.
func (w *world) answersLate(route string, times int, late time.Duration) {
	w.Inject(fakecloud.Fault{Route: route, Times: times, Commit: true, Delay: late})
}

// TestNewStateHoldsOrders: what an earlier state has ordered may be listed late,
// and a list may be answered late. It is waited for, and is taken by its
// machine's tag.
func TestNewStateHoldsOrders(t *testing.T) {
	for name, late := range map[string]time.Duration{
		"answers at once":                 0,
		"an answer after the settle time": 65 * time.Millisecond,
		"an answer at the settle time":    60 * time.Millisecond,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.SetLag(40*time.Millisecond, 0)
				lost := operation("m-1")
				lost.Spec.OperationID = "op-of-the-lost-state"
				if err := lost.RunTo(deadline(t), w.connect(t).Create(), 1); err != nil {
					t.Fatal(err)
				}
				w.answersLate(fakecloud.RouteListMetal, -1, late)
				c := w.connect(t)
				c.HoldOrders(time.Now())
				if op := w.create(t, c, "m-1"); op.Ref != lost.Ref {
					t.Errorf("m-1 has %q, want what was ordered before, %q", op.Ref, lost.Ref)
				}
				w.create(t, c, "m-2")
				w.wantOrders(t, 2)
			})
		})
	}
}

// TestNewStateOfTheFuture: a clock that was set back does not hold orders for
// longer than a new state does.
func TestNewStateOfTheFuture(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		c, begun := w.connect(t), time.Now()
		c.HoldOrders(begun.Add(time.Second))
		w.create(t, c, "m-1")
		if took := time.Since(begun); took < 60*time.Millisecond || took > 500*time.Millisecond {
			t.Errorf("an order went out after %s, want Settle", took)
		}
	})
}

// TestDoubtEndsWithAListOfItsOwn: the server of an order in doubt turns up within
// the time, but not in the list that was begun before. The order is not given up
// on that one.
func TestDoubtEndsWithAListOfItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.SetLag(40*time.Millisecond, 0)
		w.Inject(fakecloud.Fault{Route: fakecloud.RouteCreateMetal, Commit: true, Hangup: true})
		w.answersLate(fakecloud.RouteListMetal, -1, 65*time.Millisecond)
		w.create(t, w.connect(t), "m-1")
		w.wantOrders(t, 1)
	})
}

// TestSlotWaitsForAListOfItsOwn: the same at the end of the time for which the
// slot of a failed Create is kept from ordering another.
func TestSlotWaitsForAListOfItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.SetLag(150*time.Millisecond, 0) // longer than Settle, not than Hold
		w.Inject(fakecloud.Fault{Route: fakecloud.RouteCreateMetal, Commit: true, Hangup: true})
		w.answersLate(fakecloud.RouteListMetal, -1, 65*time.Millisecond)
		c, op := w.connect(t), operation("m-1")
		if err := op.Run(deadline(t), c.Create()); !errors.Is(err, cloud.ErrUncertain) {
			t.Fatalf("Create = %v, want ErrUncertain", err)
		}
		discard(t, c, op)
		if n := len(w.spares()); n != 1 {
			t.Errorf("the slot is free, and there are %d spares, want the server of the order in doubt", n)
		}
	})
}

// TestJustOrderedIsNotGone: a read that was begun when the order was young says
// "not found" when it is so no more. So do tags that the server did not have yet.
func TestJustOrderedIsNotGone(t *testing.T) {
	step := func(t *testing.T, c *elasticmetal.Cloud, op *cloudtest.Operation, name string) error {
		t.Helper()
		for _, s := range c.Create() {
			if s.Name == name {
				return s.Run(deadline(t), &cloud.Task{Spec: op.Spec, Ref: op.Ref, Notes: op.Notes})
			}
		}
		t.Fatalf("no step %q", name)
		return nil
	}
	for _, name := range []string{"delivery", "user-data", "install", "power-on", "boot"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.SetLag(0, 50*time.Millisecond)
				c, op := w.connect(t), operation("m-1")
				if err := op.RunTo(deadline(t), c.Create(), 1); err != nil {
					t.Fatal(err)
				}
				w.answersLate(routeGetMetal, -1, 65*time.Millisecond)
				if err := step(t, c, op, name); !isAgain(err) {
					t.Errorf("%s = %v, want to wait", name, err)
				}
				time.Sleep(time.Second)
				w.Cloud.SetLag(0, time.Hour)
				if err := step(t, c, op, name); !errors.Is(err, cloud.ErrNotFound) {
					t.Errorf("later, %s = %v, want ErrNotFound", name, err)
				}
			})
		})
	}
	t.Run("tags", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			c, op := w.connect(t), operation("m-1")
			if err := op.RunTo(deadline(t), c.Create(), 1); err != nil {
				t.Fatal(err)
			}
			w.answersLate(routeGetMetal, 1, 65*time.Millisecond)
			op.Spec.OperationID = "op-of-another" // whose tags the server lacks
			if err := step(t, c, op, "delivery"); !isAgain(err) {
				t.Errorf("delivery = %v, want to wait", err)
			}
			if err := step(t, c, op, "delivery"); !errors.Is(err, cloud.ErrInvalid) {
				t.Errorf("later, delivery = %v, want ErrInvalid", err)
			}
		})
	})
}

// TestTurnEndsDuringAList: a list that takes longer than the turn shows a spare
// that another has taken since. It is not taken twice.
func TestTurnEndsDuringAList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		spare := w.byHand(t, scaleway.OwnerTag(provider), scaleway.SpareTag("by-hand"))
		w.answersLate(fakecloud.RouteListMetal, 1, 250*time.Millisecond)
		c := w.connect(t)
		slow, fast := operation("m-1"), operation("m-2")
		var wg sync.WaitGroup
		wg.Go(func() {
			if err := slow.Run(deadline(t), c.Create()); err != nil {
				t.Error(err)
			}
		})
		time.Sleep(time.Millisecond)
		if err := fast.Run(deadline(t), c.Create()); err != nil {
			t.Error(err)
		}
		wg.Wait()
		if id(fast.Ref) != spare || slow.Ref == fast.Ref {
			t.Errorf("the machines have %q and %q, want the second to have the spare %q", slow.Ref, fast.Ref, spare)
		}
		w.wantOrders(t, 2) // the spare, and one more
	})
}
