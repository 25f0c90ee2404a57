package store

import (
	"maps"
	"math"

	"bigfleet-providers/provider/internal/machine"
)

// Group is what is the same of machines that are counted together.
type Group struct {
	State        machine.State
	Capacity     machine.CapacityType
	InstanceType string
}

// Count is how many machines a group has.
type Count struct {
	Machines int
	// PricePerHour is what those of them cost that have or may have a server, in
	// USD.
	PricePerHour float64
}

// tally counts the machines by group with each change, so that to ask costs the
// groups and not the machines.
type tally map[Group]count

// count adds prices up as whole numbers: sums of floats would drift with every
// machine that comes and goes.
type count struct {
	machines  int
	nanoPrice int64
}

const nanos = 1e9

// replace takes a machine out and its next state in; either may be nil.
func (t tally) replace(old, next *machine.Record) {
	t.add(old, -1)
	t.add(next, 1)
}

func (t tally) add(rec *machine.Record, n int) {
	if rec == nil {
		return
	}
	g, price := groupOf(rec), int64(0)
	if billed(rec) && rec.Offer != nil {
		price = int64(math.Round(rec.Offer.PricePerHour * nanos))
	}
	c := t[g]
	c.machines += n
	c.nanoPrice += int64(n) * price
	if c == (count{}) {
		delete(t, g) // types that are not offered any more must not pile up
		return
	}
	t[g] = c
}

func groupOf(rec *machine.Record) Group {
	g := Group{State: rec.State}
	if rec.Offer != nil {
		g.Capacity, g.InstanceType = rec.Offer.Capacity, rec.Offer.InstanceType
	}
	return g
}

// billed says whether the machine has, or may have, a server.
func billed(rec *machine.Record) bool {
	switch rec.State {
	case machine.Speculative:
		return false
	case machine.Failed:
		return rec.Leftover != nil
	default:
		return true
	}
}

// Counts returns how many machines there are of each group that has any.
func (s *Store) Counts() map[Group]Count {
	s.index.mu.RLock()
	counts := maps.Clone(s.index.tally)
	s.index.mu.RUnlock()
	out := make(map[Group]Count, len(counts))
	for g, c := range counts {
		out[g] = Count{Machines: c.machines, PricePerHour: float64(c.nanoPrice) / nanos}
	}
	return out
}
