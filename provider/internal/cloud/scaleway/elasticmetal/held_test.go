package elasticmetal_test

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"bigfleet-providers/provider/internal/cloud"
	"bigfleet-providers/provider/internal/cloud/scaleway"
	"bigfleet-providers/provider/internal/fakecloud"
)

// TestServerThatNeedsPeople: what Scaleway locked or broke fails the Create at
// once, with advice of its own, and is never taken while it is so.
func TestServerThatNeedsPeople(t *testing.T) {
	for _, status := range []string{"locked", "error"} {
		t.Run(status, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				c, op := w.connect(t), operation("m-1")
				if err := op.RunTo(deadline(t), c.Create(), 1); err != nil {
					t.Fatal(err)
				}
				if err := w.ForceState(id(op.Ref), status, ""); err != nil {
					t.Fatal(err)
				}
				if in, err := c.Get(deadline(t), op.Ref); err != nil || in.Power != cloud.PowerLocked || in.PowerWord != status {
					t.Errorf("Get = %s (%q), %v; want one with which nothing can be done", in.Power, in.PowerWord, err)
				}
				err := op.Run(deadline(t), c.Create())
				if !errors.Is(err, cloud.ErrInvalid) || !strings.Contains(err.Error(), status) || !strings.Contains(cloud.Advice(err), "support") {
					t.Errorf("Create = %v (advice %q), want ErrInvalid that names the status and who can help", err, cloud.Advice(err))
				}
				discard(t, c, op)
				if next := w.create(t, c, "m-2"); next.Ref == op.Ref {
					t.Error("the next Create took it")
				}
				if err := w.ForceState(id(op.Ref), "ready", ""); err != nil {
					t.Fatal(err)
				}
				if next := w.create(t, c, "m-3"); next.Ref != op.Ref {
					t.Error("ready again, it is not taken")
				}
				w.wantOrders(t, 2)
			})
		})
	}
}

// TestInstallOfSomethingUnknown: a 404 of an install speaks of the system or a
// key. The server is there, and must not pass for gone.
func TestInstallOfSomethingUnknown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		notFound := fakecloud.Fault{Route: fakecloud.RouteInstallMetal, Reply: &fakecloud.Reply{Status: http.StatusNotFound, ContentType: "application/json", Body: `{"message":"Not Found"}`}}
		for times, fine := range map[int]bool{2: true, -1: false} {
			w := newWorld(t)
			notFound.Times = times
			w.Inject(notFound)
			err := operation("m-1").Run(deadline(t), w.connect(t).Create())
			switch {
			case fine && err != nil:
				t.Errorf("after %d of them: %v", times, err)
			case !fine && (!errors.Is(err, cloud.ErrInvalid) || errors.Is(err, cloud.ErrNotFound) || !strings.Contains(cloud.Advice(err), "--ssh-keys")):
				t.Errorf("for ever: %v (advice %q), want ErrInvalid, not ErrNotFound, and what to look at", err, cloud.Advice(err))
			}
			w.wantOrders(t, 1)
		}
	})
}

// TestServerTakenByAnother: a second provider of the same name takes the server
// of a Create that is under way. The first gives way at every step, and leaves
// the server alone when it cleans up.
func TestServerTakenByAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for steps := 1; steps <= 3; steps++ {
			w := newWorld(t)
			c, op := w.connect(t), operation("m-1")
			if err := op.RunTo(deadline(t), c.Create(), steps); err != nil {
				t.Fatal(err)
			}
			other := operation("m-1")
			other.Spec.OperationID = "op-of-another"
			if err := other.Run(deadline(t), w.connect(t).Create()); err != nil || other.Ref != op.Ref {
				t.Fatalf("the second provider: %v on %q", err, other.Ref)
			}
			err := op.Run(deadline(t), c.Create())
			if !errors.Is(err, cloud.ErrInvalid) || !strings.Contains(cloud.Advice(err), "--provider") {
				t.Errorf("after %d steps: Create = %v (advice %q), want ErrInvalid and the likely cause", steps, err, cloud.Advice(err))
			}
			discard(t, c, op)
			s, _ := w.server(other.Ref)
			if tags := scaleway.ParseTags(s.Tags); tags.Operation != "op-of-another" || tags.Machine != "m-1" || s.Boots != 1 {
				t.Errorf("after %d steps: the second one's server has tags %q and booted %d times", steps, s.Tags, s.Boots)
			}
			w.wantOrders(t, 1)
		}
	})
}

// TestSpareOfAGivenServer is for the slot that names it, and no other.
func TestSpareOfAGivenServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		c := w.connect(t)
		given := w.byHand(t, scaleway.OwnerTag(provider), scaleway.SpareTag("by-hand"))
		c.Reserve([]string{given})
		if words := c.Keeps(zone+"/"+given, offer); !strings.Contains(words, "Create of its slot") {
			t.Errorf("Keeps = %q", words)
		}
		if op := w.create(t, c, "m-1"); id(op.Ref) == given {
			t.Fatal("another slot's Create took it")
		}
		w.wantOrders(t, 2)
		op := operation("slot")
		op.Spec.Options = cloud.Options{Server: given}.Encode()
		if err := op.Run(deadline(t), c.Create()); err != nil || id(op.Ref) != given {
			t.Errorf("its own slot's Create: %v on %q", err, op.Ref)
		}
		discard(t, c, op)
		c.Reserve(nil) // the file names it no more
		if op := w.create(t, c, "m-2"); id(op.Ref) != given {
			t.Errorf("m-2 has %q, want the spare", op.Ref)
		}
		w.wantOrders(t, 2)
	})
}

// TestKeepsSaysTheCost once the offers were read.
func TestKeepsSaysTheCost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newWorld(t).connect(t)
		const ref = zone + "/11111111-2222-4333-8444-555555555555"
		if words := c.Keeps(ref, offer); strings.Contains(words, "EUR") {
			t.Errorf("before: %q", words)
		}
		if _, err := c.Types(deadline(t)); err != nil {
			t.Fatal(err)
		}
		if words := c.Keeps(ref, offer); !strings.Contains(words, "0.263 EUR an hour") {
			t.Errorf("Keeps = %q", words)
		}
		if words := c.Keeps("", offer); strings.Contains(words, "EUR") {
			t.Errorf("without a server: %q", words)
		}
	})
}
