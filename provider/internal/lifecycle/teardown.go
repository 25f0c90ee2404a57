package lifecycle

import (
	"context"
	"errors"
	"time"

	"bigfleet-providers/provider/internal/cloud"
	"bigfleet-providers/provider/internal/machine"
	"bigfleet-providers/provider/internal/telemetry"
)

func (e *Engine) launchTeardown(rec machine.Record) {
	e.goFor("teardown "+rec.ID, func(ctx context.Context) { e.teardown(cloud.WithPriority(ctx, cloud.Teardown), rec) })
}

// teardown removes what a failed machine has left in the cloud, gives its slot
// to a successor with a new id, and takes the failed id off the list for good
// once it was shown for long enough. It repeats each part for ever: a server
// that bills must not be forgotten.
func (e *Engine) teardown(ctx context.Context, rec machine.Record) {
	released, done := e.awaitRelease(rec.ID)
	defer done()
	// As it is now: a release before this line woke no teardown.
	if now, ok := e.o.Store.Record(rec.ID); ok {
		rec = now
	}
	parts := []func(context.Context, machine.Record) (machine.Record, error){e.discard, e.succeed, e.unlist}
	for _, part := range parts {
		for failures := 0; ; {
			next, err := part(ctx, rec)
			if err == nil {
				rec = next
				break
			}
			pause := e.backoff(failures + 1)
			if again, ok := errors.AsType[*cloud.AgainError](err); ok {
				pause, failures = again.After, 0
			} else {
				failures++
				e.o.Log.Warn("the remains of a failed machine cannot be removed yet", telemetry.KeyMachine, rec.ID,
					"failures", failures, "pause", pause.String(), telemetry.KeyError, err.Error())
			}
			if storeFailed(err) {
				return
			}
			timer := time.NewTimer(pause)
			select {
			case <-timer.C:
			case <-released:
				if now, ok := e.o.Store.Record(rec.ID); ok {
					rec = now
				}
			case <-ctx.Done():
				timer.Stop()
				return
			}
			timer.Stop()
		}
	}
}

// discard tears the leftover down, step by step, from the step it had reached.
func (e *Engine) discard(ctx context.Context, rec machine.Record) (machine.Record, error) {
	if rec.Leftover == nil {
		return rec, nil
	}
	if wait := time.Until(rec.Leftover.After); wait > 0 {
		return rec, cloud.Again(wait, "the host is kept, since workloads may run there")
	}
	plan := e.o.Cloud.Discard()
	for i, s := range plan {
		reached := indexOf(plan, rec.Leftover.Step)
		if i < reached {
			continue
		}
		t := &cloud.Task{
			Spec: cloud.Spec{
				MachineID: rec.ID, OperationID: rec.Leftover.OperationID,
				Type: rec.Offer.InstanceType, Zone: rec.Offer.Zone,
			},
			Ref: rec.Leftover.Ref, Notes: copyNotes(rec.Leftover.Notes), Rerun: i == reached,
		}
		if i != reached {
			e.o.Log.Debug("step begins", telemetry.KeyMachine, rec.ID, telemetry.KeyKind, "Discard", telemetry.KeyOperation, t.Spec.OperationID, telemetry.KeyStep, s.Name)
			var err error
			if rec, err = e.noteLeftover(rec, s.Name, t); err != nil {
				return rec, err
			}
		}
		err := e.discardStep(ctx, s, t)
		// Also after a failure: what the step learned must survive.
		noted, noteErr := e.noteLeftover(rec, s.Name, t)
		if noteErr != nil {
			return rec, noteErr
		}
		rec = noted
		if err != nil {
			return rec, err
		}
	}
	e.o.Log.Info("a failed machine has nothing left at the cloud", telemetry.KeyMachine, rec.ID, telemetry.KeyInstance, rec.Leftover.Ref)
	rec, err := e.change(rec.ID, func(cur machine.Record) (machine.Record, machine.Change) {
		cur = cur.Clone()
		cur.Leftover = nil
		return cur, machine.Private
	})
	if err == nil {
		e.o.Delivery.Forget(rec.ID) // it is refused now; a spare's former system may run on
	}
	return rec, err
}

func (e *Engine) discardStep(ctx context.Context, s cloud.Step, t *cloud.Task) error {
	if err := e.awaitOwnership(ctx); err != nil {
		return err
	}
	leave, err := e.gates.enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	err = e.guarded(t.Spec.MachineID, s.Name, func() error { return s.Run(ctx, t) })
	e.noticeOwner(ctx, err)
	return err
}

func indexOf(plan []cloud.Step, name string) int {
	for i, s := range plan {
		if s.Name == name {
			return i
		}
	}
	return -1
}

func (e *Engine) noteLeftover(rec machine.Record, step string, t *cloud.Task) (machine.Record, error) {
	l := rec.Leftover
	if l.Step == step && l.Ref == t.Ref && sameNotes(l.Notes, t.Notes) {
		return rec, nil
	}
	return e.change(rec.ID, func(cur machine.Record) (machine.Record, machine.Change) {
		if cur.Leftover == nil {
			return cur, machine.Unchanged
		}
		cur = cur.Clone()
		cur.Leftover.Step, cur.Leftover.Ref, cur.Leftover.Notes = step, t.Ref, copyNotes(t.Notes)
		return cur, machine.Private
	})
}

// succeed gives the slot of a failed machine to a new id. The successor is
// written before the predecessor is marked, so that a crash between the two
// leaves a slot with a machine; the successor's id is derived, so that the
// repetition finds it. A slot whose type cannot be ordered yet waits, and one for
// which each Create fails: it could only fail again, at once, one id after another.
func (e *Engine) succeed(_ context.Context, rec machine.Record) (machine.Record, error) {
	if now, ok := e.o.Store.Record(rec.ID); ok {
		rec = now // the slot may have gone since, or come back
	}
	if rec.Succeeded || rec.Retired {
		return rec, nil
	}
	if wait := e.stock.wait(productOf(rec.Offer)); wait > 0 {
		return rec, cloud.Again(wait, "the cloud refused the type a moment ago")
	}
	if wait := e.succession.wait(rec.Slot); wait > 0 {
		return rec, cloud.Again(wait, "one Create after the other fails for the slot")
	}
	slot, generation := rec.Following()
	id := machine.IDOf(slot, max(generation, e.o.Store.Generation(slot)))
	_, err := e.change(id, func(cur machine.Record) (machine.Record, machine.Change) {
		if cur.State != machine.Unknown {
			return cur, machine.Unchanged
		}
		return machine.Record{ID: id, Slot: rec.Slot, Offer: rec.Offer, State: machine.Speculative, Since: time.Now(), Marks: cur.Marks}, machine.Visible
	})
	if err != nil {
		return rec, err
	}
	e.o.Log.Info("a new machine fills the slot of a failed one", telemetry.KeyMachine, id, "failed", rec.ID)
	return e.change(rec.ID, func(cur machine.Record) (machine.Record, machine.Change) {
		cur = cur.Clone()
		cur.Succeeded = true
		return cur, machine.Private
	})
}

// unlist takes a failed machine off the list once it was shown for long enough.
// A slot that is offered again meanwhile gets its successor first.
func (e *Engine) unlist(ctx context.Context, rec machine.Record) (machine.Record, error) {
	if wait := time.Until(rec.Since.Add(e.o.FailedListed)); wait > 0 {
		return rec, cloud.Again(wait, "the failed machine is shown a while longer")
	}
	rec, err := e.succeed(ctx, rec)
	if err != nil {
		return rec, err
	}
	id, failed := rec.ID, rec
	rec, err = e.change(id, func(cur machine.Record) (machine.Record, machine.Change) {
		if cur.State != machine.Failed || !cur.Retired && !cur.Succeeded {
			return cur, machine.Unchanged
		}
		return cur, machine.Gone
	})
	e.forgetGone(id, rec, err)
	if err == nil && rec.State == machine.Unknown {
		e.succession.unlisted(failed)
	}
	if err == nil && rec.State == machine.Failed {
		err = cloud.Again(e.o.Pace.RetryMin, "its slot was offered again this moment")
	}
	return rec, err
}

// forgetGone drops what is held for the host of a machine whose record was
// removed. A host that was given up, or a copy of one, may have polled until then,
// and nobody would drop it later.
func (e *Engine) forgetGone(id string, rec machine.Record, err error) {
	if err == nil && rec.State == machine.Unknown {
		e.o.Delivery.Forget(id)
	}
}

func (e *Engine) change(id string, f func(machine.Record) (machine.Record, machine.Change)) (machine.Record, error) {
	return e.record(id, func(cur machine.Record) (machine.Record, machine.Change, error) {
		next, change := f(cur)
		return next, change, nil
	})
}
