package lifecycle_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"bigfleet-providers/provider/internal/machine"
)

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
