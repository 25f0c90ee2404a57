package lifecycle

import (
	"context"
	"maps"
	"time"

	"golang.org/x/sync/errgroup"

	"bigfleet-providers/provider/internal/machine"
)

// seedWorkers is how many slots are written at once: enough to fill the store's
// batches, so that 100,000 new slots take seconds.
const seedWorkers = 256

// Seed brings the slots in line with what is offered: a new slot gets a
// SPECULATIVE machine, changed prices and hardware reach the list, and a slot
// that is offered no more goes, at once when it is SPECULATIVE, else when its
// host does. It may be called again while the engine runs, and changes nothing
// when nothing changed.
func (e *Engine) Seed(ctx context.Context, slots map[string]*machine.Offer) error {
	return e.seed(ctx, slots, true)
}

// SeedMissing only adds the slots that have no machine. It is for slots that
// rest on less than the cloud's own word, by which no slot may go and no price
// may change.
func (e *Engine) SeedMissing(ctx context.Context, slots map[string]*machine.Offer) error {
	return e.seed(ctx, slots, false)
}

func (e *Engine) seed(ctx context.Context, slots map[string]*machine.Offer, all bool) error {
	var changes []func(context.Context) error
	filled := 0                     // offered slots that have their first machine
	successors := map[string]bool{} // slots that a machine of another id fills
	// Many machines share an offer, before and after: each pair is compared once.
	same := map[[2]*machine.Offer]bool{}
	equal := func(a, b *machine.Offer) bool {
		pair := [2]*machine.Offer{a, b}
		eq, known := same[pair]
		if !known {
			eq = sameOffer(a, b)
			same[pair] = eq
		}
		return eq
	}
	plan := func(id string, f func(machine.Record) (machine.Record, machine.Change)) {
		changes = append(changes, func(ctx context.Context) error {
			rec, err := e.o.Store.Do(ctx, id, func(cur machine.Record) (machine.Record, machine.Change, error) {
				next, change := f(cur)
				return next, change, nil
			})
			e.forgetGone(id, rec, err)
			return err
		})
	}
	e.o.Store.Records(func(rec machine.Record) bool {
		offer, offered := slots[rec.Slot]
		switch {
		case rec.Succeeded:
		case rec.ID != rec.Slot:
			successors[rec.Slot] = true
		case offered:
			filled++
		}
		if !all || offered != rec.Retired && (!offered || equal(rec.Offer, offer)) {
			return true
		}
		plan(rec.ID, func(cur machine.Record) (machine.Record, machine.Change) { return reoffer(cur, offer) })
		return true
	})
	for slot, offer := range slots {
		if filled == len(slots) {
			break // the usual start: nothing to look for
		}
		if rec, ok := e.o.Store.Record(slot); successors[slot] || ok && !rec.Succeeded {
			continue
		}
		id := e.idFor(slot)
		plan(id, func(cur machine.Record) (machine.Record, machine.Change) {
			if cur.State != machine.Unknown {
				return cur, machine.Unchanged
			}
			return machine.Record{ID: id, Slot: slot, Offer: offer, State: machine.Speculative, Since: time.Now(), Marks: cur.Marks}, machine.Visible
		})
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(seedWorkers)
	for _, change := range changes {
		group.Go(func() error { return change(ctx) })
	}
	return group.Wait()
}

// idFor is the id of the machine that is to fill a slot which has none. It was
// never that of one that FAILED.
func (e *Engine) idFor(slot string) string {
	slot, generation := machine.Lineage(slot)
	return machine.IDOf(slot, max(generation, e.o.Store.Generation(slot)))
}

// reoffer applies an offering to a machine; nil when its slot is offered no
// more. A failed machine keeps what List shows of it, and hands the rest on to
// the machine that follows it in its slot.
func reoffer(cur machine.Record, offer *machine.Offer) (machine.Record, machine.Change) {
	switch {
	case cur.State == machine.Unknown:
		return cur, machine.Unchanged
	case offer == nil && cur.State == machine.Speculative:
		return cur, machine.Gone
	case offer == nil:
		cur = cur.Clone()
		cur.Retired = true
		return cur, machine.Private
	case cur.State == machine.Failed && !looksLike(cur.Offer, offer) || sameOffer(cur.Offer, offer):
		if !cur.Retired {
			return cur, machine.Unchanged
		}
		cur = cur.Clone()
		cur.Retired = false
		return cur, machine.Private
	case looksLike(cur.Offer, offer):
		cur = cur.Clone()
		cur.Retired, cur.Offer = false, offer
		return cur, machine.Private
	default:
		cur = cur.Clone()
		cur.Retired = false
		cur.Offer = offer
		return cur, machine.Visible
	}
}

func sameOffer(a, b *machine.Offer) bool {
	return a == b || looksLike(a, b) && a.Options == b.Options
}

// looksLike says that List shows the two alike.
func looksLike(a, b *machine.Offer) bool {
	return a == b || a != nil && b != nil &&
		a.InstanceType == b.InstanceType && a.Zone == b.Zone && a.Capacity == b.Capacity &&
		a.PricePerHour == b.PricePerHour && a.Interruption == b.Interruption &&
		maps.Equal(a.Resources, b.Resources) && maps.Equal(a.Labels, b.Labels) && maps.Equal(a.Allocatable, b.Allocatable)
}
