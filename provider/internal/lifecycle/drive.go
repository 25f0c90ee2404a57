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

// step is one re-runnable piece of an operation, the cloud's or ours.
type step struct {
	name string
	run  func(ctx context.Context, t *task) error
	// slow steps wait for a host and hold no cloud token meanwhile.
	slow bool
	// budget bounds a step whose failure is not the operation's: when it is
	// spent, the operation goes on without it. 0 for steps that must succeed.
	budget time.Duration
}

// task is what the steps of one operation work on.
type task struct {
	cloud.Task
	rec    machine.Record // as of the last commit
	op     *machine.Operation
	joined bool
	// settled ends the trace; failures inside of a step end it there.
	settled func(outcome string)
	// stockSerial is what the stock knew when the type was ordered.
	stockSerial int
}

// errSuperseded ends a driver whose operation is no longer the machine's.
var errSuperseded = errors.New("the operation is over")

// errShutdown ends a driver because the engine stops.
var errShutdown = errors.New("the provider is stopping")

// steps is the plan of one kind of operation.
func (e *Engine) steps(k machine.Kind) []step {
	switch k {
	case machine.Create:
		return e.createSteps()
	case machine.Configure:
		return e.configureSteps()
	case machine.Drain:
		return e.drainSteps()
	default:
		return e.deleteSteps()
	}
}

// drive runs an operation to its end, its deadline, or the engine's stop.
func (e *Engine) drive(parent context.Context, rec machine.Record) {
	op := rec.Op
	log := e.o.Log.With(telemetry.KeyMachine, rec.ID, telemetry.KeyKind, op.Kind.String(), telemetry.KeyOperation, op.ID)

	// The timer runs on the monotonic clock: a jump of the wall clock while the
	// process lives neither forces nor delays the deadline.
	ctx, cancel := context.WithTimeoutCause(parent, time.Until(op.Deadline), context.DeadlineExceeded)
	defer cancel()

	ctx, settled := e.o.Tracer.Transition(ctx, traced(rec))
	if op.Step == "" {
		e.o.Tracer.Span(ctx, spanQueued, op.Started, time.Now(), classOK)
	}
	t := &task{rec: rec, op: op, joined: op.Joined, settled: settled, Task: cloud.Task{
		Spec: e.spec(rec, op),
		Ref:  op.Ref,
		// Its own: a note in the record's would be there already when it is to be
		// made durable, and so would not be.
		Notes: copyNotes(op.Notes),
	}}
	err := e.runSteps(cloud.WithPriority(ctx, priorityOf(op.Kind)), t)
	e.noteRefusal(t, err)
	switch {
	case err == nil:
		err = e.finish(t)
	case parent.Err() != nil:
		err = errShutdown
	case errors.Is(err, errSuperseded), storeFailed(err):
	case t.joined:
		// The host has joined: what is left is bookkeeping that reconcile repeats.
		log.Warn("the host reported success, but the cloud's tag could not be written; reconcile repeats it", telemetry.KeyError, err.Error())
		err = e.finish(t)
	default:
		err = e.fail(t, err)
	}
	switch {
	case err == nil:
	case errors.Is(err, errShutdown):
		log.Info("transition interrupted; it continues at the next start", telemetry.KeyStep, t.op.Step)
	case errors.Is(err, errSuperseded):
		log.Info("transition was already settled")
	default:
		log.Error("the outcome could not be recorded; it will be found again at the next start", telemetry.KeyError, err.Error())
	}
}

func (e *Engine) spec(rec machine.Record, op *machine.Operation) cloud.Spec {
	created := rec.History.Create
	if op.Kind == machine.Create {
		created = op.ID
	}
	return cloud.Spec{
		MachineID:   rec.ID,
		OperationID: created,
		Type:        rec.Offer.InstanceType,
		Zone:        rec.Offer.Zone,
		Options:     op.Options,
		UserData:    func() ([]byte, error) { return e.o.UserData(rec.ID) },
	}
}

// priorityOf is how urgent the cloud calls of an operation are.
func priorityOf(k machine.Kind) cloud.Priority {
	if k == machine.Delete {
		return cloud.Teardown
	}
	return cloud.Work
}

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
			if !sleep(ctx, again.After) {
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
		if !sleep(ctx, pause) {
			return e.outOfTime(ctx, t, s, row)
		}
	}
}

// attempt runs a step once, holding a cloud token unless the step is slow.
func (e *Engine) attempt(ctx context.Context, t *task, s step) error {
	if err := e.awaitOwnership(ctx); err != nil {
		return err
	}
	if !s.slow {
		leave, err := e.gates.enter(ctx)
		if err != nil {
			return err
		}
		defer leave()
		if t.op.Kind != machine.Configure { // an agent waits for it
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
	if time.Until(t.op.Deadline) > 0 && s.budget > 0 && !stopping(ctx) {
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

// advance makes the step's name and the task's memory durable, if they changed.
func (e *Engine) advance(t *task, name string) error {
	op := t.op
	if op.Step == name && op.Ref == t.Ref && op.Joined == t.joined && sameNotes(op.Notes, t.Notes) {
		return nil
	}
	p := machine.Progress{Step: name, Began: op.StepBegan, Ref: t.Ref, Notes: copyNotes(t.Notes), Joined: t.joined}
	if op.Step != name {
		p.Began = time.Now()
		e.o.Log.Debug("step begins", telemetry.KeyMachine, t.rec.ID, telemetry.KeyKind, op.Kind.String(), telemetry.KeyOperation, op.ID, telemetry.KeyStep, name)
	}
	return e.commitProgress(t, p)
}

// commitProgress does not end at the deadline, which is judged where steps are.
func (e *Engine) commitProgress(t *task, p machine.Progress) error {
	mine := false
	record := e.record
	if t.op.Kind == machine.Configure {
		record = e.recordNow
	}
	rec, err := record(t.rec.ID, func(cur machine.Record) (machine.Record, machine.Change, error) {
		next, ok := machine.Advance(cur, t.op.ID, p)
		mine = ok
		if !ok {
			return cur, machine.Unchanged, nil
		}
		if e.o.Keeper != nil && cur.Op.Kind == machine.Create && cur.Op.Step != p.Step {
			if p.Step == stepContact {
				next.Lock = nil // an install that was repeated makes another host of the same server
			}
			return next, machine.Visible, nil // List shows how far a dedicated server has got
		}
		return next, machine.Private, nil
	})
	if err != nil {
		return err
	}
	if !mine {
		return errSuperseded
	}
	t.rec, t.op = rec, rec.Op
	return nil
}

// finish settles an operation well.
func (e *Engine) finish(t *task) error {
	mine := false
	op := t.op
	// Progress that no step committed yet, such as the host's reference, belongs
	// to the outcome.
	p := machine.Progress{Step: op.Step, Began: op.StepBegan, Ref: t.Ref, Notes: t.Notes, Joined: t.joined}
	rec, err := e.record(t.rec.ID, func(cur machine.Record) (machine.Record, machine.Change, error) {
		cur, ok := machine.Advance(cur, op.ID, p)
		if !ok {
			mine = false
			return cur, machine.Unchanged, nil
		}
		next, ok := machine.Finish(cur, op.ID, time.Now())
		mine = ok
		if op.Kind == machine.Delete && next.Retired {
			return next, machine.Gone, nil
		}
		return next, machine.Visible, nil
	})
	if err != nil {
		return err
	}
	if !mine {
		return errSuperseded
	}
	switch op.Kind {
	case machine.Create:
		e.succession.made(rec.Slot)
	case machine.Delete:
		e.o.Delivery.Forget(t.rec.ID)
	case machine.Configure, machine.Drain:
	}
	took := time.Since(op.Started)
	e.o.Observer.Settled(op.Kind, classOK, took)
	t.settled(classOK)
	e.o.Log.Info("transition done", telemetry.KeyMachine, t.rec.ID, telemetry.KeyKind, op.Kind.String(), telemetry.KeyOperation, op.ID,
		telemetry.KeyState, rec.State.String(), telemetry.KeyStep, op.Step, telemetry.KeyDuration, took.Round(time.Millisecond).String())
	return nil
}

// fail settles an operation badly and starts to tear down what it left.
func (e *Engine) fail(t *task, cause error) error {
	op := t.op
	reason, class := e.explain(t, cause)
	p := machine.Progress{Step: op.Step, Began: op.StepBegan, Ref: t.Ref, Notes: t.Notes, Joined: t.joined}
	keep := e.o.FailedRetention
	if class == classMissing {
		keep = 0 // nothing can run on a host that is gone, and the slot is wanted
	}
	mine := false
	rec, err := e.record(t.rec.ID, func(cur machine.Record) (machine.Record, machine.Change, error) {
		cur, ok := machine.Advance(cur, op.ID, p)
		if !ok {
			mine = false
			return cur, machine.Unchanged, nil
		}
		next, ok := machine.Fail(cur, op.ID, reason, time.Now(), keep)
		mine = ok
		return next, machine.Visible, nil
	})
	if err != nil {
		return err
	}
	if !mine {
		return errSuperseded
	}
	took := time.Since(op.Started)
	if op.Step != "" {
		e.o.Observer.StepDone(op.Kind, op.Step, class, time.Since(op.StepBegan))
	}
	e.o.Observer.Settled(op.Kind, class, took)
	t.settled(class)
	e.o.Log.Error("transition failed", telemetry.KeyMachine, rec.ID, telemetry.KeyKind, op.Kind.String(), telemetry.KeyOperation, op.ID, telemetry.KeyState, rec.State.String(),
		telemetry.KeyStep, op.Step, "class", class, telemetry.KeyDuration, took.Round(time.Millisecond).String(), telemetry.KeyReason, reason)
	if op.Kind == machine.Create {
		e.succession.failed(rec, e.backoff)
	}
	e.launchTeardown(rec)
	return nil
}

// throttledGrowth is for how many failures in a row the pause grows where calls
// were too many: each of them waits for its turn anyway, and for what the cloud
// told all of them.
const throttledGrowth = 2

// backoff is the pause after so many failures in a row: exponential, jittered
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
