package cloudtest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"bigfleet-providers/provider/internal/cloud"
)

// Operation runs the steps of one operation as a provider does: a step's name
// is saved before the step runs, the task's memory whenever it returns. What is
// saved survives Crash, everything else does not.
type Operation struct {
	Spec  cloud.Spec
	Ref   string // as saved
	Notes map[string]string
	step  string
	rerun bool
}

// retries is how often in a row a step may fail for a reason that can pass.
const retries = 20

// Run runs the steps from the saved one on, to the end.
func (o *Operation) Run(ctx context.Context, steps []cloud.Step) error {
	return o.RunTo(ctx, steps, len(steps))
}

// RunTo runs the steps before the n-th.
func (o *Operation) RunTo(ctx context.Context, steps []cloud.Step, n int) error {
	at := 0
	for i, s := range steps {
		if s.Name == o.step {
			at, o.rerun = i, true
		}
	}
	for ; at < n; at++ {
		o.step = steps[at].Name
		for failures := 0; ; {
			err := o.once(ctx, steps[at])
			if err == nil {
				break
			}
			pause := time.Millisecond
			if again, ok := errors.AsType[*cloud.AgainError](err); ok {
				pause, failures = again.After, 0
			} else if failures++; hopeless(err, failures) {
				return fmt.Errorf("step %q: %w", o.step, err)
			}
			select {
			case <-time.After(pause):
			case <-ctx.Done():
				return fmt.Errorf("step %q: %w; last: %w", o.step, ctx.Err(), err)
			}
		}
		o.rerun = false
	}
	return nil
}

// Lost runs the n-th step as far as it goes in one call and forgets what it
// learned: the process died after the effect and before it could write it down.
// A call that asks for another at once has only had something written down, and
// is not the one. The steps before must have been run.
func (o *Operation) Lost(ctx context.Context, steps []cloud.Step, n int) {
	o.step, o.rerun = steps[n].Name, false
	for {
		saved := *o
		saved.Notes = maps.Clone(o.Notes)
		// Whatever else it says, nobody hears it.
		again, ok := errors.AsType[*cloud.AgainError](o.once(ctx, steps[n]))
		if ok && again.After == 0 {
			continue
		}
		*o = saved
		return
	}
}

// Died records that the process died as the n-th step began: whether the step
// had any effect is not known.
func (o *Operation) Died(steps []cloud.Step, n int) { o.step = steps[n].Name }

// once runs a step once on a copy and saves what it learned.
func (o *Operation) once(ctx context.Context, s cloud.Step) error {
	t := &cloud.Task{Spec: o.Spec, Ref: o.Ref, Notes: maps.Clone(o.Notes), Rerun: o.rerun}
	err := s.Run(ctx, t)
	o.rerun = true
	o.Ref, o.Notes = t.Ref, maps.Clone(t.Notes)
	size := 0
	for k, v := range o.Notes {
		size += len(k) + len(v)
	}
	if size > cloud.MaxNotesBytes {
		return fmt.Errorf("%w: step %q left %d bytes of notes, the limit is %d", cloud.ErrInvalid, s.Name, size, cloud.MaxNotesBytes)
	}
	return err
}

// Teardown is the operation that discards what this one made, knowing no more
// than was saved.
func (o *Operation) Teardown() *Operation {
	return &Operation{Spec: o.Spec, Ref: o.Ref, Notes: maps.Clone(o.Notes)}
}

// hopeless says whether a step that failed so often in a row is given up.
func hopeless(err error, failures int) bool {
	switch {
	case errors.Is(err, cloud.ErrNoCapacity), errors.Is(err, cloud.ErrQuota), errors.Is(err, cloud.ErrInvalid), errors.Is(err, cloud.ErrDenied), errors.Is(err, cloud.ErrUncertain):
		return true
	case errors.Is(err, cloud.ErrNotFound):
		return failures >= 3
	default:
		return failures > retries
	}
}
