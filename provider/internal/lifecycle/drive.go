package lifecycle

import (
	"context"
	"errors"
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
	sign cloud.Sign
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
	// doubted is when the cloud first gave no good word of the host; zero when it did.
	doubted time.Time
	// ends is when the operation does, see endOf.
	ends time.Time
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

// drive runs an operation to its end, its deadline, or the engine's stop. resumed
// says that a process before this one began it.
func (e *Engine) drive(parent context.Context, rec machine.Record, resumed bool) {
	op := rec.Op
	log := e.o.Log.With(telemetry.KeyMachine, rec.ID, telemetry.KeyKind, op.Kind.String(), telemetry.KeyOperation, op.ID)

	// The timer runs on the monotonic clock: a jump of the wall clock while the
	// process lives neither forces nor delays the deadline.
	ends := op.Deadline
	if resumed {
		ends = e.endOf(op)
	}
	ctx, cancel := context.WithTimeoutCause(parent, time.Until(ends), context.DeadlineExceeded)
	defer cancel()

	ctx, settled := e.o.Tracer.Transition(ctx, traced(rec))
	if op.Step == "" {
		e.o.Tracer.Span(ctx, spanQueued, op.Started, time.Now(), classOK)
	}
	t := &task{rec: rec, op: op, joined: op.Joined, ends: ends, settled: settled, Task: cloud.Task{
		Spec: e.spec(rec, op),
		Ref:  op.Ref,
		// Its own: a note in the record's would be there already when it is to be
		// made durable, and so would not be.
		Notes: copyNotes(op.Notes),
	}}
	err := e.runSteps(ctx, t)
	e.noteRefusal(t, err)
	if err == nil && op.Kind == machine.Delete {
		e.showElsewhere(cloud.WithPriority(ctx, cloud.Teardown), t.Ref)
	}
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
		UserData:    func() ([]byte, error) { return e.o.UserData(rec.ID, op.ID) },
	}
}

// priorityOf is how urgent the cloud calls of a step are. What has been ordered is
// finished before more is ordered, and a host that is up comes first.
func priorityOf(t *task, s step) cloud.Priority {
	switch {
	case t.op.Kind == machine.Delete:
		return cloud.Teardown
	case t.op.Kind != machine.Create, s.name == stepScrub:
		return cloud.Host
	case t.Ref == "":
		return cloud.Order
	default:
		return cloud.Work
	}
}

// advance makes the step's name and the task's memory durable, if they changed.
func (e *Engine) advance(t *task, name string) error {
	op := t.op
	if op.Step == name && op.Ref == t.Ref && op.Joined == t.joined && sameNotes(op.Notes, t.Notes) {
		return nil
	}
	p := t.progress()
	p.Step, p.Notes = name, copyNotes(t.Notes)
	if op.Step != name {
		p.Began = time.Now()
		e.o.Log.Debug("step begins", telemetry.KeyMachine, t.rec.ID, telemetry.KeyKind, op.Kind.String(), telemetry.KeyOperation, op.ID, telemetry.KeyStep, name)
	}
	return e.commitProgress(t, p)
}

// progress is what the task has reached, committed or not.
func (t *task) progress() machine.Progress {
	return machine.Progress{
		Step: t.op.Step, Began: t.op.StepBegan, Ref: t.Ref, Notes: t.Notes, Joined: t.joined,
		AsIs: t.Notes[cloud.NoteAsIs] != "",
	}
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
	p := t.progress()
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
	p := t.progress()
	keep := e.o.FailedRetention
	if hostGone(cause) {
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
