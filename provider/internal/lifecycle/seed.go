package lifecycle

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"bigfleet-providers/provider/internal/machine"
)

// seedBatch is how many slots are written at once. Each batch costs two syncs, and
// is in memory several times over while it is written; calls wait for one of them.
const seedBatch = 4096

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
	var planned []reslot
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
	e.o.Store.Records(func(rec machine.Record) bool {
		offer, offered := slots[rec.Slot]
		switch {
		case rec.Succeeded:
		case rec.ID != rec.Slot:
			successors[rec.Slot] = true
		case offered:
			filled++
		}
		if all && (offered == rec.Retired || offered && !equal(rec.Offer, offer)) {
			planned = append(planned, reslot{id: rec.ID, offer: offer})
		}
		return true
	})
	for slot, offer := range slots {
		if filled == len(slots) {
			break // the usual start: nothing to look for
		}
		if rec, ok := e.o.Store.Record(slot); successors[slot] || ok && !rec.Succeeded {
			continue
		}
		planned = append(planned, reslot{id: e.idFor(slot), offer: offer, slot: slot})
	}
	// In the order of ids, which is that of the state file: new machines fill its
	// pages one after the other.
	slices.SortFunc(planned, func(a, b reslot) int { return cmp.Or(cmp.Compare(a.id, b.id), cmp.Compare(a.slot, b.slot)) })
	planned = slices.CompactFunc(planned, func(a, b reslot) bool { return a.id == b.id })
	for batch := range slices.Chunk(planned, seedBatch) {
		if err := e.reslot(ctx, batch); err != nil {
			return err
		}
	}
	return nil
}

// reslot is what the offerings want of one machine.
type reslot struct {
	id    string
	offer *machine.Offer // nil when its slot is offered no more
	slot  string         // that the machine is to fill, if there is none yet; else ""
}

// reslot commits what is planned for several machines.
func (e *Engine) reslot(ctx context.Context, planned []reslot) error {
	ids := make([]string, len(planned))
	for i, p := range planned {
		ids[i] = p.id
	}
	now := time.Now()
	recs, err := e.o.Store.DoMany(ctx, ids, func(current []machine.Record) ([]machine.Next, error) {
		next := make([]machine.Next, len(current))
		for i, p := range planned {
			next[i].Record, next[i].Change = p.apply(current[i], now)
		}
		return next, nil
	})
	if err != nil {
		return err
	}
	for _, rec := range recs {
		e.forgetGone(rec.ID, rec, nil)
	}
	return nil
}

func (p reslot) apply(cur machine.Record, now time.Time) (machine.Record, machine.Change) {
	switch {
	case p.slot == "":
		return reoffer(cur, p.offer)
	case cur.State != machine.Unknown:
		return cur, machine.Unchanged
	default:
		return machine.Record{ID: p.id, Slot: p.slot, Offer: p.offer, State: machine.Speculative, Since: now, Marks: cur.Marks}, machine.Visible
	}
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
