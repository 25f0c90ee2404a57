package lifecycle

import (
	"context"
	"fmt"
	"slices"
	"time"

	"bigfleet-providers/provider/internal/machine"
	"bigfleet-providers/provider/internal/telemetry"
)

// KeptHost is the host of a FAILED machine that is kept for a while, since
// workloads may run there.
type KeptHost struct {
	MachineID, Ref, Type, Cluster string
	PricePerHour                  float64 // USD
	Since, Until                  time.Time
	LastError                     string
	// Then says what becomes of it; "" when it is removed with all it left.
	Then string
}

// Kept lists the kept hosts, the one that was kept first at the front.
func (e *Engine) Kept() []KeptHost {
	kept := []KeptHost{}
	e.o.Store.Records(func(rec machine.Record) bool {
		if rec.State == machine.Failed && rec.Leftover != nil && time.Until(rec.Leftover.After) > 0 {
			h := KeptHost{
				MachineID: rec.ID, Ref: rec.Leftover.Ref, Type: rec.Offer.InstanceType, Cluster: rec.Cluster, PricePerHour: rec.Offer.PricePerHour,
				Since: rec.Since, Until: rec.Leftover.After, LastError: rec.LastError,
			}
			if e.o.Keeper != nil {
				h.Then = e.o.Keeper.Keeps(h.Ref, h.Type)
			}
			kept = append(kept, h)
		}
		return true
	})
	slices.SortStableFunc(kept, func(a, b KeptHost) int { return a.Since.Compare(b.Since) })
	return kept
}

// Release ends the time for which the host of a FAILED machine is kept: its
// teardown begins at once, under the rules of a Delete. The error is a
// *machine.Error or the store's.
func (e *Engine) Release(ctx context.Context, id string) error {
	if err := e.admits(); err != nil {
		return err
	}
	refuse := func(code machine.Code, format string, args ...any) error {
		return &machine.Error{Code: code, Text: fmt.Sprintf(format, args...)}
	}
	rec, err := e.o.Store.Do(ctx, id, func(cur machine.Record) (machine.Record, machine.Change, error) {
		switch {
		case cur.State == machine.Unknown:
			return cur, machine.Unchanged, refuse(machine.NotFound, "there is no machine %q", id)
		case cur.State != machine.Failed:
			return cur, machine.Unchanged, refuse(machine.Misplaced, "machine %q is %s, and only a FAILED one has a host to release: drain and delete it instead", id, cur.State)
		case cur.Leftover == nil:
			return cur, machine.Unchanged, refuse(machine.Misplaced, "machine %q has nothing left at the cloud", id)
		case time.Until(cur.Leftover.After) <= 0:
			return cur, machine.Unchanged, refuse(machine.Misplaced, "the host of machine %q is not kept: it is being removed already", id)
		}
		next := cur.Clone()
		next.Leftover.After = time.Now()
		return next, machine.Private, nil
	})
	if err != nil {
		return err
	}
	e.o.Log.Info("the host of a failed machine is kept no longer", telemetry.KeyMachine, id, telemetry.KeyInstance, rec.Leftover.Ref)
	e.mu.Lock()
	released := e.released[id]
	e.mu.Unlock()
	select {
	case released <- struct{}{}:
	default: // its teardown has not begun to wait, or was told already
	}
	e.launchTeardown(rec) // where none runs
	return nil
}

// awaitRelease registers a teardown that can be told to go on at once.
func (e *Engine) awaitRelease(id string) (released <-chan struct{}, done func()) {
	c := make(chan struct{}, 1)
	e.mu.Lock()
	defer e.mu.Unlock()
	e.released[id] = c
	return c, func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		delete(e.released, id)
	}
}
