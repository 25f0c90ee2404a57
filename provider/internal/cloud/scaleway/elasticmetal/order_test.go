package elasticmetal_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"bigfleet-providers/provider/internal/cloud"
	"bigfleet-providers/provider/internal/cloud/cloudtest"
	"bigfleet-providers/provider/internal/cloud/scaleway"
	"bigfleet-providers/provider/internal/cloud/scaleway/elasticmetal"
	"bigfleet-providers/provider/internal/fakecloud"
)

func operation(machine string) *cloudtest.Operation {
	return &cloudtest.Operation{Spec: cloud.Spec{
		MachineID: machine, OperationID: "op-of-" + machine, Type: offer, Zone: zone,
		UserData: func() ([]byte, error) { return []byte("#cloud-config\n"), nil },
	}}
}

func deadline(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour) // of a bubble's time
	t.Cleanup(cancel)
	return ctx
}

func (w *world) create(t *testing.T, c *elasticmetal.Cloud, machine string) *cloudtest.Operation {
	t.Helper()
	op := operation(machine)
	if err := op.Run(deadline(t), c.Create()); err != nil {
		t.Fatalf("Create of %s: %v", machine, err)
	}
	return op
}

// discard makes what is left of an operation a spare, as the lifecycle does.
func discard(t *testing.T, c *elasticmetal.Cloud, op *cloudtest.Operation) {
	t.Helper()
	if err := op.Teardown().Run(deadline(t), c.Discard()); err != nil {
		t.Fatalf("Discard: %v", err)
	}
}

func (w *world) wantOrders(t *testing.T, want int) {
	t.Helper()
	if got := w.orders(); got != want {
		t.Fatalf("%d servers were ordered, want %d", got, want)
	}
}

// TestLostOrder loses the order's answer in every way, and each byte of it: one
// server is ordered and found.
func TestLostOrder(t *testing.T) {
	reply := func(status int) *fakecloud.Reply { return &fakecloud.Reply{Status: status} }
	faults := map[string]fakecloud.Fault{
		"hangup":      {Hangup: true},
		"reset":       {Reset: true},
		"500":         {Reply: reply(http.StatusInternalServerError)},
		"502":         {Reply: reply(http.StatusBadGateway)},
		"503":         {Reply: reply(http.StatusServiceUnavailable)},
		"504":         {Reply: reply(http.StatusGatewayTimeout)},
		"empty 200":   {Reply: reply(http.StatusOK)},
		"408":         {Reply: reply(http.StatusRequestTimeout)},
		"html":        {Reply: &fakecloud.Reply{Status: http.StatusOK, ContentType: "text/html", Body: "<html>"}},
		"other shape": {Reply: &fakecloud.Reply{Status: http.StatusOK, ContentType: "application/json", Body: `{}`}},
	}
	for n := 1; n < 700; n += 17 {
		faults[fmt.Sprintf("after %d bytes", n)] = fakecloud.Fault{HangupAfter: n}
	}
	for name, f := range faults {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				f.Route, f.Commit = fakecloud.RouteCreateMetal, true
				w.Inject(f)
				op := w.create(t, w.connect(t), "m-1")
				w.wantOrders(t, 1)
				if s, _ := w.server(op.Ref); s.InstallStatus != "completed" {
					t.Errorf("server %+v", s)
				}
			})
		})
	}
}

// TestRefusedOrderIsSentAgain: a refusal is no order.
func TestRefusedOrderIsSentAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.Inject(fakecloud.Fault{Route: fakecloud.RouteCreateMetal, Times: 10, Reply: &fakecloud.Reply{Status: http.StatusTooManyRequests}})
		w.create(t, w.connect(t), "m-1")
		w.wantOrders(t, 1)
	})
}

// TestUncertainOrder: an answer that may stand for an order, and no server. It
// is not ordered again, not even for the slot's next machine at once; later the
// slot is free.
func TestUncertainOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.Inject(fakecloud.Fault{Route: fakecloud.RouteCreateMetal, Reply: &fakecloud.Reply{Status: http.StatusInternalServerError}})
		c := w.connect(t)
		op := operation("m-1")
		begun := time.Now()
		err := op.Run(deadline(t), c.Create())
		if !errors.Is(err, cloud.ErrUncertain) || !strings.Contains(cloud.Advice(err), "console") || !strings.Contains(err.Error(), scaleway.OperationTag("op-of-m-1")) {
			t.Fatalf("Create = %v, want ErrUncertain that names the tag", err)
		}
		if n := orderCalls(w); n != 1 {
			t.Errorf("%d orders were sent, want 1", n)
		}
		discard(t, c, op)
		if held := time.Since(begun); held < 160*time.Millisecond { // Settle and Hold
			t.Errorf("the slot was free after %s", held)
		}
		w.create(t, c, "m-2")
		w.wantOrders(t, 1)
	})
}

// TestLateServer: the server of an order in doubt turns up after the Create has
// failed. It becomes a spare, and the next Create takes it.
func TestLateServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.Inject(fakecloud.Fault{Route: fakecloud.RouteCreateMetal, Commit: true, Hangup: true})
		hidden := w.Inject(fakecloud.Fault{
			Route: fakecloud.RouteListMetal, Times: -1,
			Reply: &fakecloud.Reply{Status: http.StatusOK, ContentType: "application/json", Body: `{"servers":[],"total_count":0}`},
		})
		c := w.connect(t, func(cfg *elasticmetal.Config) { cfg.Timing.Hold = time.Minute })
		op := operation("m-1")
		if err := op.Run(deadline(t), c.Create()); !errors.Is(err, cloud.ErrUncertain) {
			t.Fatalf("Create = %v, want ErrUncertain", err)
		}
		hidden()
		discard(t, c, op)
		if n := len(w.spares()); n != 1 {
			t.Fatalf("%d spares, want 1", n)
		}
		again := w.create(t, c, "m-2")
		w.wantOrders(t, 1)
		if n := len(w.spares()); n != 0 {
			t.Errorf("%d spares after the server was taken", n)
		}
		if in, err := c.Get(deadline(t), again.Ref); err != nil || in.MachineID != "m-2" || in.OperationID != "op-of-m-2" || in.Unfinished {
			t.Errorf("the server of m-2 is %+v, %v", in, err)
		}
	})
}

// TestKilledBetweenMarkAndOrder: the next process cannot know whether the order
// went out. It looks, and does not order.
func TestKilledBetweenMarkAndOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		op := operation("m-1")
		steps := w.connect(t).Create()
		task := &cloud.Task{Spec: op.Spec}
		err := steps[0].Run(deadline(t), task)
		if again, ok := errors.AsType[*cloud.AgainError](err); !ok || again.After != 0 || len(task.Notes) == 0 || w.orders() != 0 {
			t.Fatalf("the first run: %v with notes %q and %d servers; want a mark and no order", err, task.Notes, w.orders())
		}
		op.Notes = task.Notes
		begun := time.Now()
		patience := func(cfg *elasticmetal.Config) { cfg.Timing.Patience = 10 * time.Second }
		if err := op.Run(deadline(t), w.connect(t, patience).Create()); !errors.Is(err, cloud.ErrUncertain) {
			t.Fatalf("in the next process: %v, want ErrUncertain", err)
		}
		// It may have been sent at the end of its turn, and have waited to go out.
		if took := time.Since(begun); took < 10*time.Second+260*time.Millisecond {
			t.Errorf("its server was given up after %s, want Turn, Patience and Settle", took)
		}
		if n := orderCalls(w); n != 0 {
			t.Errorf("%d orders were sent, want none", n)
		}
	})
}

// TestOrdersGoOneAtATime: the API answers 500 to orders that cross.
func TestOrdersGoOneAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		// Each order takes longer than a turn, so that others would cross it.
		w.Inject(fakecloud.Fault{Route: fakecloud.RouteCreateMetal, Times: -1, Delay: 300 * time.Millisecond, Commit: true})
		orders := &crossing{}
		c := w.connect(t, func(cfg *elasticmetal.Config) {
			cfg.Client = w.served.Client(t, zone, func(next http.RoundTripper) http.RoundTripper {
				orders.next = next
				return orders
			})
		})
		var wg sync.WaitGroup
		for i := range 6 {
			wg.Go(func() {
				if err := operation(fmt.Sprint("m-", i)).Run(deadline(t), c.Create()); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		w.wantOrders(t, 6)
		if most := orders.most.Load(); most != 1 {
			t.Errorf("%d orders at a time, want 1", most)
		}
	})
}

// crossing counts the orders that are under way together.
type crossing struct {
	next      http.RoundTripper
	now, most atomic.Int64
}

func (c *crossing) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Method == http.MethodPost && strings.HasSuffix(req.URL.Path, "/servers") {
		c.most.Store(max(c.most.Load(), c.now.Add(1)))
		defer c.now.Add(-1)
	}
	return c.next.RoundTrip(req)
}

// TestDoubtHoldsOtherOrders: while one order is in doubt no other goes out.
func TestDoubtHoldsOtherOrders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.Inject(fakecloud.Fault{Route: fakecloud.RouteCreateMetal, BodyContains: "op-of-m-1", Reply: &fakecloud.Reply{Status: http.StatusBadGateway}})
		c := w.connect(t)
		first := c.Create()[0]
		doubtful := &cloud.Task{Spec: operation("m-1").Spec}
		for range 2 {
			if err := first.Run(deadline(t), doubtful); !isAgain(err) {
				t.Fatal(err)
			}
		}
		other := &cloud.Task{Spec: operation("m-2").Spec}
		if err := first.Run(deadline(t), other); !isAgain(err) || len(other.Notes) != 0 {
			t.Fatalf("beside an order in doubt: %v, notes %q; want to be told to wait", err, other.Notes)
		}
		w.create(t, c, "m-2") // once the doubt is over
		w.wantOrders(t, 1)
	})
}

func isAgain(err error) bool {
	_, ok := errors.AsType[*cloud.AgainError](err)
	return ok
}

// orderCalls counts the orders that reached the API, whatever it did.
func orderCalls(w *world) int {
	return w.Requests(fakecloud.RouteCreateMetal)
}

func TestStock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.SetStock(zone, offer, fakecloud.Shortage)
		err := operation("m-1").Run(deadline(t), w.connect(t).Create())
		if !errors.Is(err, cloud.ErrNoCapacity) || orderCalls(w) != 0 {
			t.Errorf("of an empty stock: %v after %d orders; want ErrNoCapacity and none", err, orderCalls(w))
		}
		// Sold out between the look and the order.
		w = newWorld(t)
		w.Inject(fakecloud.Fault{Route: fakecloud.RouteCreateMetal, Match: func(fakecloud.Request) bool {
			w.SetStock(zone, offer, fakecloud.Shortage)
			return false
		}})
		c, op := w.connect(t), operation("m-1")
		if err := op.Run(deadline(t), c.Create()); !errors.Is(err, cloud.ErrNoCapacity) {
			t.Errorf("of a server that was never delivered: %v, want ErrNoCapacity", err)
		}
		discard(t, c, op)
		w.ClearFaults()
		w.SetStock(zone, offer, fakecloud.Available)
		w.create(t, c, "m-2") // which does not wait for what is out of stock
		w.wantOrders(t, 2)
		if left := w.spares(); len(left) != 1 || left[0] != id(op.Ref) {
			t.Errorf("spares %q, want %s", left, op.Ref)
		}
	})
}

// TestTagsOfTheOrder: they are in the order itself, with the operator's own.
func TestTagsOfTheOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		op := operation("m-1")
		op.Spec.Options = cloud.Options{Tags: []string{"team=a"}}.Encode()
		if err := op.Run(deadline(t), w.connect(t).Create()); err != nil {
			t.Fatal(err)
		}
		s, _ := w.server(op.Ref)
		want := []string{"bigfleet=" + provider, "bigfleet-machine=m-1", "bigfleet-operation=op-of-m-1", "bigfleet-life=op-of-m-1", "team=a"}
		if !slices.Equal(s.Tags, want) || s.Offer != offer {
			t.Errorf("%s with tags %q, want %q", s.Offer, s.Tags, want)
		}
	})
}
