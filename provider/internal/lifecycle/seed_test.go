package lifecycle_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"bigfleet-providers/provider/internal/machine"
)

// TestSeedIsFewWrites: many new slots, and a new price of them, are a handful of
// transactions, and none is left out.
func TestSeedIsFewWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		synctest.Wait()
		const n = 10_000
		slots := func(o *machine.Offer) map[string]*machine.Offer {
			out := map[string]*machine.Offer{"m1": o}
			for i := range n {
				out[fmt.Sprintf("slot-%05d", i)] = o
			}
			return out
		}
		dearer := *offer
		dearer.PricePerHour = 2
		for _, o := range []*machine.Offer{offer, &dearer} {
			before := r.store.Stats()
			if err := r.engine.Seed(t.Context(), slots(o)); err != nil {
				t.Fatal(err)
			}
			after := r.store.Stats()
			if batches := after.Batches - before.Batches; after.Machines != n+1 || batches > 4 {
				t.Errorf("%d machines after %d transactions", after.Machines, batches)
			}
			for i := range n {
				if rec := r.record(fmt.Sprintf("slot-%05d", i)); rec.State != machine.Speculative || rec.Offer != o || rec.Revision <= before.Revision {
					t.Fatalf("slot %d: %+v", i, rec)
				}
			}
		}
	})
}

func TestSeed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		synctest.Wait()
		r.must(machine.Create)
		r.settle(machine.Idle)
		ctx := context.Background()
		seed := func(slots map[string]*machine.Offer) {
			t.Helper()
			if err := r.engine.Seed(ctx, slots); err != nil {
				t.Fatal(err)
			}
		}
		dearer := *offer
		dearer.PricePerHour = 2
		seed(map[string]*machine.Offer{"m1": &dearer, "m2": offer})
		if rec := r.record("m1"); rec.Offer.PricePerHour != 2 || rec.State != machine.Idle {
			t.Errorf("m1: %+v", rec)
		}
		before := r.record("m1").Revision
		seed(map[string]*machine.Offer{"m1": &dearer, "m2": offer})
		if r.record("m1").Revision != before {
			t.Error("the same offer moved the revision")
		}
		seed(nil)
		if r.record("m2").State != machine.Unknown {
			t.Error("a SPECULATIVE slot outlives its offering")
		}
		if rec := r.record("m1"); rec.State != machine.Idle || !rec.Retired {
			t.Errorf("a live machine went with its offering: %+v", rec)
		}
		r.must(machine.Delete)
		for range 100 {
			time.Sleep(time.Second)
		}
		if rec := r.record("m1"); rec.State != machine.Unknown || r.cloud.size() != 0 {
			t.Errorf("a retired machine outlives its Delete: %+v", rec)
		}
	})
}
