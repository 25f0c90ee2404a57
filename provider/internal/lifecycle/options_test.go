package lifecycle_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"bigfleet-providers/provider/internal/cloud"
	"bigfleet-providers/provider/internal/lifecycle"
	"bigfleet-providers/provider/internal/machine"
)

// optionsSeen is a cloud that notes the options that its Create is given.
type optionsSeen struct {
	*scriptedCloud
	mu   sync.Mutex
	seen []string
}

func (c *optionsSeen) Create() []cloud.Step {
	steps := c.scriptedCloud.Create()
	for i, s := range steps {
		steps[i].Run = func(ctx context.Context, t *cloud.Task) error {
			c.mu.Lock()
			c.seen = append(c.seen, s.Name+" "+t.Spec.Options)
			c.mu.Unlock()
			return s.Run(ctx, t)
		}
	}
	return steps
}

// A Create under way keeps the options that it began with, over a change of the
// offering, its removal and a restart. The next one has the new ones.
func TestOptionsOfACreateUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		spy := &optionsSeen{}
		r := newRig(t, func(o *lifecycle.Options) {
			spy.scriptedCloud = o.Cloud.(*scriptedCloud)
			o.Cloud = spy
		})
		synctest.Wait()
		ctx := context.Background()
		seed := func(slots map[string]*machine.Offer) {
			t.Helper()
			if err := r.engine.Seed(ctx, slots); err != nil {
				t.Fatal(err)
			}
		}
		with := func(options string) *machine.Offer {
			o := *offer
			o.Options = options
			return &o
		}

		revision := r.record("m1").Revision
		seed(map[string]*machine.Offer{"m1": with("old")})
		if rec := r.record("m1"); rec.Offer.Options != "old" || rec.Revision != revision {
			t.Errorf("options %q at revision %d; want the new ones, and nothing new to list (%d)", rec.Offer.Options, rec.Revision, revision)
		}
		r.cloud.mu.Lock()
		r.cloud.fail["boot"] = []error{cloud.Again(30*time.Second, "booting")}
		r.cloud.mu.Unlock()
		r.must(machine.Create)
		time.Sleep(5 * time.Second)
		seed(map[string]*machine.Offer{"m1": with("new")})
		seed(nil)
		r.stop()
		r.start() // offers the slot again, without options
		r.settle(machine.Idle)
		if op := r.record("m1").Op; op != nil {
			t.Errorf("operation %+v", op)
		}
		seed(map[string]*machine.Offer{"m1": with("new")})
		r.must(machine.Delete)
		r.settle(machine.Speculative)
		r.must(machine.Create)
		r.settle(machine.Idle)

		spy.mu.Lock()
		defer spy.mu.Unlock()
		if want := []string{"order old", "boot old", "order new", "boot new"}; !slices.Equal(slices.Compact(spy.seen), want) {
			t.Errorf("steps were given %q, want %q", spy.seen, want)
		}
	})
}

// The machine after a failed one is made as its slot is offered by then: an
// operator may have mended just that.
func TestOptionsAfterAFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		synctest.Wait()
		r.cloud.mu.Lock()
		r.cloud.fail["boot"] = []error{cloud.ErrInvalid}
		r.cloud.fail["discard"] = []error{cloud.Again(time.Minute, "not yet")}
		r.cloud.mu.Unlock()
		r.must(machine.Create)
		failed := r.settle(machine.Failed)
		mended := *offer
		mended.Options = "mended"
		if err := r.engine.Seed(context.Background(), map[string]*machine.Offer{"m1": &mended}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Minute)
		if rec := r.record("m1"); rec.State != machine.Failed || rec.Revision != failed.Revision {
			t.Errorf("the failed machine was listed anew: %+v", rec)
		}
		if next := r.record("m1-r2"); next.State != machine.Speculative || next.Offer.Options != "mended" {
			t.Errorf("the next machine is %s, with options %q", next.State, next.Offer.Options)
		}
	})
}
