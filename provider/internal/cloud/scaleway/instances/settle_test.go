package instances_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"bigfleet-providers/provider/internal/cloud"
	"bigfleet-providers/provider/internal/cloud/cloudtest"
	"bigfleet-providers/provider/internal/fakecloud"
)

// answersLate has the API's answers to a route come so long after they were
// true: the cloud says how things were when it was asked.
func (w *world) answersLate(route string, times int, late time.Duration) {
	w.Inject(fakecloud.Fault{Route: route, Times: times, Commit: true, Delay: late})
}

// The server of an order without an answer is listed within the window, but not
// in the list that was begun before and answered after its end: no second order.
func TestWindowEndsDuringAList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.SetLag(40*time.Millisecond, 0)
		w.Inject(fakecloud.Fault{Route: fakecloud.RouteCreateServer, Commit: true, Hangup: true})
		w.answersLate(fakecloud.RouteListServers, -1, 65*time.Millisecond)
		must(t, operation("m-1").Run(within(t), w.connect(t).Create()))
		if posts := w.Requests(fakecloud.RouteCreateServer); posts != 1 || len(w.Servers()) != 1 {
			t.Errorf("%d POSTs made %d servers, want one of each", posts, len(w.Servers()))
		}
	})
}

// Nor does a Discard conclude from such a list that there is nothing.
func TestDiscardDuringTheWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.SetLag(40*time.Millisecond, 0)
		w.Inject(fakecloud.Fault{Route: fakecloud.RouteCreateServer, Commit: true, Hangup: true})
		c := w.connect(t)
		task := &cloud.Task{Spec: operation("m-1").Spec}
		if err := c.Create()[0].Run(within(t), task); !isAgain(err) {
			t.Fatalf("order = %v, want to look for the server", err)
		}
		w.answersLate(fakecloud.RouteListServers, -1, 65*time.Millisecond)
		must(t, (&cloudtest.Operation{Spec: task.Spec, Notes: task.Notes}).Run(within(t), c.Discard()))
		if left := w.remains(); len(left) > 0 {
			t.Errorf("left behind: %q", left)
		}
	})
}

// A read that was begun when the order was young says "not found" when it is so
// no more.
func TestJustOrderedIsNotGone(t *testing.T) {
	for _, name := range []string{"label-volumes", "power-on", "boot"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.SetLag(0, 50*time.Millisecond)
				c, op := w.connect(t), operation("m-1")
				must(t, op.RunTo(within(t), c.Create(), 1))
				w.answersLate(fakecloud.RouteGetServer, -1, 65*time.Millisecond)
				step := func() error {
					for _, s := range c.Create() {
						if s.Name == name {
							return s.Run(within(t), &cloud.Task{Spec: op.Spec, Ref: op.Ref, Notes: op.Notes, Rerun: true})
						}
					}
					return errors.New("no such step")
				}
				if err := step(); !isAgain(err) {
					t.Errorf("%s = %v, want to wait", name, err)
				}
				time.Sleep(time.Second)
				w.SetLag(0, time.Hour)
				if err := step(); !errors.Is(err, cloud.ErrNotFound) {
					t.Errorf("later, %s = %v, want ErrNotFound", name, err)
				}
			})
		})
	}
}

// A server is stuck by what was read of it, not by when the answer came.
func TestStuckByWhatWasRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		c := w.connect(t)
		op := made(t, c, "m-1")
		task := &cloud.Task{Spec: op.Spec, Ref: op.Ref}
		steps := c.Delete()
		must(t, steps[0].Run(within(t), task))
		w.force(t, op.Ref, fakecloud.StateStarting, "rebooting")
		if err := steps[1].Run(within(t), task); !isAgain(err) {
			t.Fatalf("a server in transition: %v", err)
		}
		time.Sleep(140 * time.Millisecond) // Stuck is 150
		w.answersLate(fakecloud.RouteGetServer, -1, 20*time.Millisecond)
		before := w.Requests(fakecloud.RouteServerAction)
		for want := range 2 {
			if err := steps[1].Run(within(t), task); !isAgain(err) {
				t.Fatalf("a server in transition: %v", err)
			}
			if sent := w.Requests(fakecloud.RouteServerAction) - before; (sent > 0) != (want > 0) {
				t.Errorf("%d actions were sent after read %d", sent, want+1)
			}
		}
	})
}

func isAgain(err error) bool {
	_, ok := errors.AsType[*cloud.AgainError](err)
	return ok
}
