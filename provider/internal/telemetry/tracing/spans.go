package tracing

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"math/rand/v2"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"bigfleet-providers/provider/internal/telemetry"
)

// Attributes of spans. Their values are ids and names, never anything that a
// host or a shard put into a blob.
const (
	attrOperation = "bigfleet.operation_id"
	attrMachine   = "bigfleet.machine_id"
	attrCluster   = "bigfleet.cluster_id"
	attrInstance  = "bigfleet.instance"
	attrOutcome   = "bigfleet.outcome"
)

// Outcomes that are no failure; all others are classes of one.
const (
	outcomeOK          = "ok"
	outcomeSkipped     = "skipped"
	outcomeInterrupted = "interrupted" // another process goes on with it
)

// TraceOf is the id of an operation's trace.
func TraceOf(operationID string) trace.TraceID {
	id, _ := idsOf(operationID)
	return id
}

// idsOf derives from the operation id what must be the same in each process. The
// id itself would do for most, but samplers take a trace's id for random, and a
// UUID is not in all of its bits.
func idsOf(operationID string) (trace.TraceID, trace.SpanID) {
	sum := sha256.Sum256([]byte("bigfleet trace " + operationID))
	return trace.TraceID(sum[:16]), trace.SpanID(sum[16:24])
}

// ids makes the ids of spans: those that the context asks for, else random ones.
type ids struct{}

type wanted struct{}

type wantedIDs struct {
	trace trace.TraceID
	span  trace.SpanID
}

// NewIDs implements sdktrace.IDGenerator.
func (g ids) NewIDs(ctx context.Context) (trace.TraceID, trace.SpanID) {
	if w, ok := ctx.Value(wanted{}).(wantedIDs); ok {
		return w.trace, w.span
	}
	var id trace.TraceID
	for !id.IsValid() {
		binary.BigEndian.PutUint64(id[:8], rand.Uint64())
		binary.BigEndian.PutUint64(id[8:], rand.Uint64())
	}
	return id, g.NewSpanID(ctx, id)
}

// NewSpanID implements sdktrace.IDGenerator.
func (ids) NewSpanID(context.Context, trace.TraceID) trace.SpanID {
	var id trace.SpanID
	for !id.IsValid() {
		binary.BigEndian.PutUint64(id[:], rand.Uint64())
	}
	return id
}

// first begins the first span of an operation. Each process that works on the
// operation has one, the same for all who look; only the one that ends it is sent.
func (t *Tracing) first(ctx context.Context, op telemetry.Operation) (context.Context, trace.Span) {
	w := wantedIDs{}
	w.trace, w.span = idsOf(op.ID)
	attrs := []attribute.KeyValue{attribute.String(attrOperation, op.ID), attribute.String(attrMachine, op.Machine)}
	if op.Cluster != "" {
		attrs = append(attrs, attribute.String(attrCluster, op.Cluster))
	}
	if op.Instance != "" {
		attrs = append(attrs, attribute.String(attrInstance, op.Instance))
	}
	_, span := t.tracer.Start(context.WithValue(ctx, wanted{}, w), op.Kind,
		trace.WithNewRoot(), trace.WithTimestamp(op.Started), trace.WithAttributes(attrs...))
	return trace.ContextWithSpan(ctx, span), span
}

// Accepted links the call that began an operation with its trace, both ways.
func (t *Tracing) Accepted(ctx context.Context, op telemetry.Operation) {
	call := trace.SpanFromContext(ctx)
	within, first := t.first(ctx, op)
	var links []trace.Link
	if call.SpanContext().IsValid() {
		links = append(links, trace.Link{SpanContext: call.SpanContext()})
		call.AddLink(trace.Link{SpanContext: first.SpanContext()})
		call.SetAttributes(attribute.String(attrOperation, op.ID), attribute.String(attrMachine, op.Machine))
	}
	_, span := t.tracer.Start(within, "accepted", trace.WithTimestamp(op.Started), trace.WithLinks(links...))
	span.End()
}

// Transition returns the context of an operation's steps, and what ends its
// trace.
func (t *Tracing) Transition(ctx context.Context, op telemetry.Operation) (context.Context, func(outcome string)) {
	ctx, span := t.first(ctx, op)
	return ctx, func(outcome string) { end(span, outcome) }
}

// Step returns the context of a step, and what ends it; the outcome is "" where
// another process goes on with it.
func (t *Tracing) Step(ctx context.Context, name string) (context.Context, func(outcome string)) {
	ctx, span := t.tracer.Start(ctx, name)
	return ctx, func(outcome string) {
		if outcome == "" {
			outcome = outcomeInterrupted
		}
		end(span, outcome)
	}
}

// Span shows what happened elsewhere, or before.
func (t *Tracing) Span(ctx context.Context, name string, began, ended time.Time, outcome string) {
	_, span := t.tracer.Start(ctx, name, trace.WithTimestamp(began))
	end(span, outcome, trace.WithTimestamp(ended))
}

func end(span trace.Span, outcome string, o ...trace.SpanEndOption) {
	span.SetAttributes(attribute.String(attrOutcome, outcome))
	switch outcome {
	case outcomeOK, outcomeSkipped, outcomeInterrupted:
	default:
		span.SetStatus(codes.Error, outcome)
	}
	span.End(o...)
}
