package lifecycle

import (
	"context"
	"time"

	"bigfleet-providers/provider/internal/machine"
	"bigfleet-providers/provider/internal/telemetry"
)

// Tracer shows operations as traces. Whatever it needs to put one together it
// takes from the operation's id and start, so that the trace goes on in the next
// process. Its methods must not block.
type Tracer interface {
	// Accepted is told in the context of the call that began the operation.
	Accepted(ctx context.Context, op telemetry.Operation)
	// Transition returns the context in which the operation is driven, and what to
	// call with its outcome; an operation that this process does not end has none.
	Transition(ctx context.Context, op telemetry.Operation) (_ context.Context, settled func(outcome string))
	// Step returns the context in which a step runs, and what to call at its end;
	// the outcome is "" where another process will go on with it.
	Step(ctx context.Context, name string) (_ context.Context, done func(outcome string))
	// Span shows what happened elsewhere.
	Span(ctx context.Context, name string, began, ended time.Time, outcome string)
}

// Names of spans that are no steps.
const (
	spanQueued   = "queued"    // behind others of its kind
	spanHandOver = "hand-over" // until the host fetched the command
	spanHook     = "hook"      // on the host, by its clock
)

func traced(rec machine.Record) telemetry.Operation {
	return telemetry.Operation{
		ID: rec.Op.ID, Kind: rec.Op.Kind.String(), Machine: rec.ID, Cluster: rec.Cluster,
		Instance: rec.Host, Started: rec.Op.Started,
	}
}

// untraced is the Tracer of an engine without one.
type untraced struct{}

func nothing(string) {}

// Accepted implements Tracer.
func (untraced) Accepted(context.Context, telemetry.Operation) {}

// Transition implements Tracer.
func (untraced) Transition(ctx context.Context, _ telemetry.Operation) (context.Context, func(string)) {
	return ctx, nothing
}

// Step implements Tracer.
func (untraced) Step(ctx context.Context, _ string) (context.Context, func(string)) {
	return ctx, nothing
}

// Span implements Tracer.
func (untraced) Span(context.Context, string, time.Time, time.Time, string) {}
