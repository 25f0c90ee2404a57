package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"time"

	"bigfleet-providers/provider/internal/cloud"
	"bigfleet-providers/provider/internal/delivery"
	"bigfleet-providers/provider/internal/machine"
	"bigfleet-providers/shared/command"
)

// configureSteps binds a host to its cluster: power it on if somebody stopped
// it, have the agent join, then tag. A missing tag is not a failed join.
func (e *Engine) configureSteps() []step {
	return append(e.powerOnSteps(),
		step{name: stepDeliver, slow: true, run: e.deliver},
		step{name: stepTag, budget: e.o.Pace.TagBudget, run: func(ctx context.Context, t *task) error {
			return e.o.Cloud.SetCluster(ctx, t.Ref, t.rec.Cluster)
		}},
	)
}

// powerOnSteps start a host that somebody stopped. A host that is heard from
// needs no starting: what the agent can do must not depend on the cloud's API, nor
// on its word.
func (e *Engine) powerOnSteps() []step {
	plan := cloudSteps(e.o.Cloud.Start())
	for i := range plan {
		plan[i].sign = cloud.SignDone
	}
	return plan
}

// deliver has the host carry out the operation's command and records the
// outcome before the host is told that it may forget it.
func (e *Engine) deliver(ctx context.Context, t *task) error {
	if t.joined {
		return nil
	}
	cmd, err := e.commandOf(ctx, t)
	if err != nil {
		return err
	}
	var report delivery.Report
	err = e.whileThere(ctx, t, func(ctx context.Context) (err error) {
		report, err = e.o.Delivery.Deliver(ctx, cmd)
		return err
	})
	switch {
	case errors.Is(err, delivery.ErrSuperseded):
		return errSuperseded
	case err != nil:
		return err
	}
	e.showReport(ctx, t, report)
	if !report.OK {
		err := &agentError{text: report.Error}
		// The failure itself is the outcome to record; drive would do so too, but
		// the host must not be told before.
		recorded := e.fail(t, &stepError{step: stepDeliver, class: classAgent, failureRow: failureRow{last: err}})
		report.Confirm(recorded)
		if recorded != nil {
			return recorded
		}
		return errSuperseded
	}
	t.joined = true
	err = e.advance(t, stepDeliver)
	report.Confirm(err)
	return err
}

// showReport adds to the trace what the host says that it did.
func (e *Engine) showReport(ctx context.Context, t *task, r delivery.Report) {
	if !r.Fetched.IsZero() {
		e.o.Tracer.Span(ctx, spanHandOver, t.op.StepBegan, r.Fetched, classOK)
	}
	if !r.Finished.IsZero() {
		outcome := classOK
		if !r.OK {
			outcome = classAgent
		}
		e.o.Tracer.Span(ctx, spanHook, r.Started, r.Finished, outcome)
	}
}

// hostDeadline is when a host gives up: so much before the operation's own
// deadline that its report, with the hook's last words, still counts.
func hostDeadline(op *machine.Operation) time.Time {
	const margin = 10 * time.Second
	return op.Deadline.Add(-min(margin, op.Deadline.Sub(op.Started)/10))
}

// commandOf is the command of a Configure or a Drain. Its id is the operation's,
// so that a second delivery is the same command.
func (e *Engine) commandOf(ctx context.Context, t *task) (command.Command, error) {
	cmd := command.Command{
		CommandID:  t.op.ID,
		MachineID:  t.rec.ID,
		ClusterID:  t.rec.Cluster,
		ProviderID: e.o.Cloud.ProviderID(t.Ref),
		NodeName:   NodeName(t.rec.ID),
		Deadline:   hostDeadline(t.op).UTC().Truncate(time.Second),
	}
	switch t.op.Kind {
	case machine.Configure:
		blob, err := e.blobOf(ctx, t.rec.ID, t.op)
		if err != nil {
			return cmd, fmt.Errorf("waiting for the shard to send the bootstrap blob again: %w", err)
		}
		cmd.Kind, cmd.Blob = command.Configure, blob
	default:
		cmd.Kind, cmd.GraceSeconds = command.Drain, int64(t.op.Grace/time.Second)
	}
	return cmd, nil
}
