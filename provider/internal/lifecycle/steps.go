package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime/debug"
	"slices"
	"time"

	"bigfleet-providers/provider/internal/cloud"
	"bigfleet-providers/provider/internal/machine"
	"bigfleet-providers/provider/internal/telemetry"
)

// runSteps runs the plan from where the record says it is.
func (e *Engine) runSteps(ctx context.Context, t *task) error {
	if t.op.Kind == machine.Create && t.op.Step == "" {
		var err error
		if t.stockSerial, err = e.stock.admit(productOf(t.rec.Offer)); err != nil {
			return err
		}
	}
	plan := e.steps(t.op.Kind)
	at := slices.IndexFunc(plan, func(s step) bool { return s.name == t.op.Step })
	// A step that another release named is not in the plan: all of the plan is gone
	// through again, and every step looks for what exists before it makes more.
	foreign := at < 0 && t.op.Step != ""
	t.Rerun = t.op.Step != ""
	for at = max(at, 0); at < len(plan); at++ {
		s := plan[at]
		if err := e.advance(t, s.name); err != nil {
			return err
		}
		if err := e.runTraced(ctx, t, s); err != nil {
			return err
		}
		t.Rerun = foreign
	}
	return nil
}

// runTraced runs one step and says what came of it. A failure that ends the
// transition is counted where that is recorded.
func (e *Engine) runTraced(ctx context.Context, t *task, s step) error {
	op := t.op
	within, done := e.o.Tracer.Step(ctx, s.name)
	err := e.runStep(within, t, s)
	outcome := classOK
	switch failed := (*stepError)(nil); {
	case errors.Is(err, errSkipped):
		outcome, err = classSkipped, nil
	case errors.As(err, &failed):
		outcome = failed.class
	case err != nil:
		outcome = ""
	}
	if err != nil && stopping(ctx) {
		outcome = "" // the next process goes on with it
	}
	done(outcome)
	if err == nil {
		took := time.Since(op.StepBegan)
		e.o.Observer.StepDone(op.Kind, s.name, outcome, took)
		e.o.Log.Debug("step done", telemetry.KeyMachine, t.rec.ID, telemetry.KeyKind, op.Kind.String(), telemetry.KeyOperation, op.ID,
			telemetry.KeyStep, s.name, telemetry.KeyOutcome, outcome, telemetry.KeyDuration, took.Round(time.Millisecond).String())
	}
	return err
}

// runStep repeats one step until it is done, hopeless or out of time.
func (e *Engine) runStep(ctx context.Context, t *task, s step) error {
	if s.budget > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, s.budget)
		defer cancel()
	}
	var row failureRow
	for failures := 0; ; {
		began := time.Now()
		err := e.attempt(ctx, t, s)
		if err == nil || errors.Is(err, errSuperseded) {
			return err
		}
		t.Rerun = true
		if again := (*cloud.AgainError)(nil); errors.As(err, &again) {
			if again.After > 0 { // else it only has its notes made durable
				failures, row.last = 0, err
			}
			if err := e.advance(t, s.name); err != nil {
				return err
			}
			done, inTime := e.pause(ctx, t, s, again.After, began)
			if done {
				return nil
			}
			if !inTime {
				return e.outOfTime(ctx, t, s, row)
			}
			continue
		}
		if ctx.Err() != nil {
			if row.last == nil || !errors.Is(err, context.Cause(ctx)) {
				row.last = err
			}
			return e.outOfTime(ctx, t, s, row)
		}
		row.add(err)
		class := classOf(err)
		e.o.Observer.StepFailed(t.op.Kind, s.name, class)
		failures++
		if hopeless(err, failures) {
			if s.budget > 0 {
				return e.tolerate(t, s, err)
			}
			return &stepError{step: s.name, class: class, failureRow: row}
		}
		pause := e.backoff(failures)
		if class == classThrottled {
			pause = e.backoff(min(failures, throttledGrowth)) // the limit on calls sets the pace
		}
		e.o.Log.Warn("step failed; trying again", telemetry.KeyMachine, t.rec.ID, telemetry.KeyKind, t.op.Kind.String(), telemetry.KeyOperation, t.op.ID,
			telemetry.KeyStep, s.name, "class", class, "failures", failures, "pause", pause, telemetry.KeyError, err.Error())
		if err := e.advance(t, s.name); err != nil {
			return err
		}
		waits := s
		if errors.Is(err, cloud.ErrNotFound) {
			waits.sign = cloud.SignNothing // no host is left that could say otherwise
		}
		done, inTime := e.pause(ctx, t, waits, pause, began)
		if done {
			return nil
		}
		if !inTime {
			return e.outOfTime(ctx, t, s, row)
		}
	}
}

// pause waits before a step is run again, but no longer than until the host is
// heard from, if that says something. since is before the cloud gave the word that
// is waited out. It says whether the step is done, and whether there is time left.
func (e *Engine) pause(ctx context.Context, t *task, s step, d time.Duration, since time.Time) (done, inTime bool) {
	if s.sign == cloud.SignNothing || d <= 0 {
		return false, sleep(ctx, d)
	}
	if s.sign == cloud.SignDone {
		switch {
		case t.op.Kind == machine.Create:
			since = t.op.Started // there was no host before
		case t.doubted.IsZero():
			t.doubted = since
		default:
			since = t.doubted // one sign does for both steps of a start
		}
	}
	within, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	// A host that has shown itself waits for its command, and is not sent away again.
	if s.sign == cloud.SignDone && !e.o.Delivery.HeardWithin(t.rec.ID, time.Since(since)) {
		e.o.Delivery.Knock(t.rec.ID)
	}
	if e.o.Delivery.Contact(within, t.rec.ID, since) != nil {
		return false, ctx.Err() == nil
	}
	if s.sign == cloud.SignDone {
		e.o.Log.Info("the host was heard from: a step that waited for the cloud's word is done", telemetry.KeyMachine, t.rec.ID,
			telemetry.KeyKind, t.op.Kind.String(), telemetry.KeyOperation, t.op.ID, telemetry.KeyStep, s.name)
	}
	return s.sign == cloud.SignDone, true
}

// attempt runs a step once, holding a cloud token unless the step is slow.
func (e *Engine) attempt(ctx context.Context, t *task, s step) error {
	if !s.slow { // which changes nothing at the cloud, and whose host works on meanwhile
		if err := e.awaitOwnership(ctx); err != nil {
			return err
		}
		priority := priorityOf(t, s)
		ctx = cloud.WithPriority(ctx, priority)
		leave, err := e.gates.enter(ctx)
		if err != nil {
			return err
		}
		defer leave()
		if priority != cloud.Host {
			e.yield(ctx)
		}
	}
	err := e.guarded(t.rec.ID, s.name, func() error { return s.run(ctx, t) })
	e.noticeOwner(ctx, err)
	return err
}

// guarded makes a panic in a step an error: it must not take the other machines
// down.
func (e *Engine) guarded(machineID, step string, run func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			e.o.Observer.Panicked()
			e.o.Log.Error("panic in a step", telemetry.KeyMachine, machineID, telemetry.KeyStep, step, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
			err = &panicError{value: fmt.Sprint(p)}
		}
	}()
	return run()
}

// outOfTime judges a step whose context ended.
func (e *Engine) outOfTime(ctx context.Context, t *task, s step, row failureRow) error {
	if time.Until(t.ends) > 0 && s.budget > 0 && !stopping(ctx) {
		return e.tolerate(t, s, row.last)
	}
	return &stepError{step: s.name, class: classTimeout, failureRow: row}
}

// errSkipped ends a step without which the operation goes on.
var errSkipped = errors.New("given up")

// tolerate goes on without a step that is not worth the operation.
func (e *Engine) tolerate(t *task, s step, err error) error {
	text := "no answer"
	if err != nil {
		text = err.Error()
	}
	e.o.Log.Warn("step given up; the transition goes on without it", telemetry.KeyMachine, t.rec.ID,
		telemetry.KeyKind, t.op.Kind.String(), telemetry.KeyOperation, t.op.ID, telemetry.KeyStep, s.name, telemetry.KeyError, text)
	return errSkipped
}

// stopping says whether ctx ended by the engine's stop rather than by time.
func stopping(ctx context.Context) bool { return errors.Is(ctx.Err(), context.Canceled) }

// throttledGrowth is for how many failures in a row the pause grows where calls
// were too many: each of them waits for its turn anyway, and for what the cloud
// told all of them.
const throttledGrowth = 2

// backoff is the pause after a number of failures in a row: exponential, jittered
// down by up to a half so that many machines do not knock together.
func (e *Engine) backoff(failures int) time.Duration {
	d := e.o.Pace.RetryMin << min(failures-1, 16)
	if d <= 0 || d > e.o.Pace.RetryMax {
		d = e.o.Pace.RetryMax
	}
	return d/2 + rand.N(d/2+1)
}

// sleep waits for d and reports false when ctx ended first.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
