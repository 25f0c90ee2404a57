package tracing

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"bigfleet-providers/provider/internal/telemetry"
)

var op = telemetry.Operation{ID: "9be3a6a0-0a4c-4b3c-9a52-0c0d8b6a1f11", Kind: "Configure", Machine: "m-1", Cluster: "c-1", Instance: "z/1", Started: time.Unix(1_800_000_000, 0)}

// process is one process of several that work on an operation: each has its own
// SDK.
func process(t *testing.T, sent *tracetest.InMemoryExporter) *Tracing {
	t.Helper()
	tr, err := open(t.Context(), Options{Log: slog.New(slog.DiscardHandler)}, sdktrace.WithSyncer(sent))
	if err != nil {
		t.Fatal(err)
	}
	return tr
}

// tree is the spans as "parent > name outcome", where each must be of the trace.
func tree(t *testing.T, spans tracetest.SpanStubs, id trace.TraceID) map[string]int {
	t.Helper()
	names := map[trace.SpanID]string{}
	for _, s := range spans {
		if s.SpanContext.TraceID() == id {
			names[s.SpanContext.SpanID()] = s.Name
		}
	}
	got := map[string]int{}
	for _, s := range spans {
		if s.SpanContext.TraceID() != id {
			continue
		}
		outcome := ""
		for _, a := range s.Attributes {
			if a.Key == attrOutcome {
				outcome = a.Value.AsString()
			}
		}
		parent, ok := "", true
		if s.Parent.IsValid() {
			parent, ok = names[s.Parent.SpanID()]
		}
		if !ok {
			t.Errorf("%s has a parent that was not sent", s.Name)
		}
		got[strings.TrimSpace(parent+" > "+s.Name+" "+outcome)]++
	}
	return got
}

// TestTraceGoesOnAfterARestart: three processes work on one operation, and the
// trace is whole.
func TestTraceGoesOnAfterARestart(t *testing.T) {
	sent := tracetest.NewInMemoryExporter()
	first := process(t, sent)
	call, rpc := first.tracer.Start(t.Context(), "rpc")
	first.Accepted(call, op)
	rpc.End()
	ctx, _ := first.Transition(t.Context(), op)
	first.Span(ctx, "queued", op.Started, op.Started.Add(time.Second), "ok")
	_, done := first.Step(ctx, "power-on")
	done("ok")
	first.Step(ctx, "boot") // and the process is killed

	second := process(t, sent)
	ctx, _ = second.Transition(t.Context(), op)
	_, done = second.Step(ctx, "boot")
	done("") // stopped in order

	third := process(t, sent)
	ctx, settled := third.Transition(t.Context(), op)
	within, done := third.Step(ctx, "boot")
	third.Span(within, "hook", op.Started, op.Started.Add(time.Minute), "agent")
	done("agent")
	settled("agent")

	spans := sent.GetSpans()
	want := map[string]int{
		"> Configure agent": 1, "Configure > accepted": 1, "Configure > queued ok": 1, "Configure > power-on ok": 1,
		"Configure > boot interrupted": 1, "Configure > boot agent": 1, "boot > hook agent": 1,
	}
	if diff := cmp.Diff(want, tree(t, spans, TraceOf(op.ID))); diff != "" {
		t.Errorf("trace (-want +got):\n%s", diff)
	}
	for _, s := range spans {
		switch s.Name {
		case "rpc":
			if len(s.Links) != 1 || s.Links[0].SpanContext.TraceID() != TraceOf(op.ID) {
				t.Errorf("the call's span has the links %v", s.Links)
			}
		case "accepted":
			if len(s.Links) != 1 || s.Links[0].SpanContext.SpanID() != rpc.SpanContext().SpanID() {
				t.Errorf("the transition has the links %v", s.Links)
			}
		case "Configure":
			if !s.StartTime.Equal(op.Started) || s.Status.Description != "agent" {
				t.Errorf("the first span began at %v with status %v", s.StartTime, s.Status)
			}
		}
	}
}

// TestSamplingIsTheSameInEachProcess: half a trace is worth nothing.
func TestSamplingIsTheSameInEachProcess(t *testing.T) {
	t.Setenv("OTEL_TRACES_SAMPLER", "traceidratio")
	t.Setenv("OTEL_TRACES_SAMPLER_ARG", "0.25")
	sent := tracetest.NewInMemoryExporter()
	a, b := process(t, sent), process(t, sent)
	sampled := 0
	for i := range 400 {
		o := op
		o.ID = strings.Repeat("x", i)
		_, one := a.first(t.Context(), o)
		_, two := b.first(t.Context(), o)
		if one.SpanContext().IsSampled() != two.SpanContext().IsSampled() {
			t.Fatalf("operation %d is sampled by one process alone", i)
		}
		if one.SpanContext().IsSampled() {
			sampled++
		}
	}
	if sampled < 60 || sampled > 140 {
		t.Errorf("%d of 400 sampled, want about a quarter", sampled)
	}
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestTransport(t *testing.T) {
	const canary = "canary-credential"
	sent := tracetest.NewInMemoryExporter()
	tr := process(t, sent)
	rt := tr.Transport(roundTrip(func(r *http.Request) (*http.Response, error) {
		if r.Header.Get("Traceparent") != "" {
			t.Error("the cloud is told of the trace")
		}
		return &http.Response{StatusCode: http.StatusConflict, Body: io.NopCloser(strings.NewReader(canary))}, nil
	}))
	call := func(ctx context.Context) {
		r := httptest.NewRequest(http.MethodPost, "http://api.example/servers?token="+canary, strings.NewReader(canary)).WithContext(ctx)
		r.Header.Set("X-Auth-Token", canary)
		if _, err := rt.RoundTrip(r); err != nil {
			t.Error(err)
		}
	}
	call(t.Context()) // of no step
	if n := len(sent.GetSpans()); n != 0 {
		t.Errorf("%d spans of a call outside of a step", n)
	}
	ctx, _ := tr.Transition(t.Context(), op)
	ctx, done := tr.Step(ctx, "order")
	call(ctx)
	done("ok")
	spans := sent.GetSpans()
	if len(spans) != 2 || spans[0].Name != "POST" || spans[0].Parent.SpanID() != spans[1].SpanContext.SpanID() {
		t.Fatalf("spans: %v", spans)
	}
	for _, a := range spans[0].Attributes {
		if strings.Contains(a.Value.String(), canary) {
			t.Errorf("%s holds a credential", a.Key)
		}
	}
	if got := (*Tracing)(nil).Transport(http.DefaultTransport); got != http.DefaultTransport {
		t.Error("without traces the transport is wrapped all the same")
	}
}

func TestOpen(t *testing.T) {
	const endpoint = "OTEL_EXPORTER_OTLP_ENDPOINT"
	tests := map[string]struct {
		env  map[string]string
		on   bool
		want []string // in the error
		says string   // in the log
	}{
		"nothing":         {},
		"disabled":        {env: map[string]string{endpoint: "http://127.0.0.1:1", "OTEL_SDK_DISABLED": "TRUE"}},
		"no traces":       {env: map[string]string{endpoint: "http://127.0.0.1:1", "OTEL_TRACES_EXPORTER": "none"}},
		"HTTP":            {env: map[string]string{endpoint: "http://user:canary@127.0.0.1:1"}, on: true},
		"of traces, gRPC": {env: map[string]string{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://127.0.0.1:1", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, on: true},
		"headers that cannot be read": {
			env: map[string]string{endpoint: "http://127.0.0.1:1", "OTEL_EXPORTER_OTLP_HEADERS": "canary"}, on: true,
			says: "OTEL_EXPORTER_OTLP_* cannot be read",
		},
		"all wrong": {
			env:  map[string]string{endpoint: "127.0.0.1:canary", "OTEL_EXPORTER_OTLP_PROTOCOL": "http/json", "OTEL_TRACES_EXPORTER": "zipkin"},
			want: []string{endpoint, `"http/json"`, `"zipkin"`},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var log strings.Builder
			for k, v := range tt.env {
				t.Setenv(k, v)
			}
			tr, err := Open(t.Context(), Options{
				Lookup: func(name string) (string, bool) { v, ok := tt.env[name]; return v, ok },
				Log:    slog.New(slog.NewTextHandler(&log, nil)),
			})
			if (tr != nil) != tt.on || (err != nil) != (tt.want != nil) {
				t.Fatalf("got %v, %v", tr, err)
			}
			for _, want := range tt.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%v does not name %s", err, want)
				}
			}
			tr.Close(t.Context())
			if err := Check(func(name string) (string, bool) { v, ok := tt.env[name]; return v, ok }); (err != nil) != (tt.want != nil) {
				t.Errorf("Check: %v", err)
			}
			if !strings.Contains(log.String(), tt.says) {
				t.Errorf("%q is not in the log: %s", tt.says, &log)
			}
			if text := log.String(); strings.Contains(text, "canary") || err != nil && strings.Contains(err.Error(), "canary") {
				t.Errorf("a credential got out: %s %v", text, err)
			}
		})
	}
}

// TestCloseIsBounded: a collector that accepts and says nothing must not hold up
// a stop.
func TestCloseIsBounded(t *testing.T) {
	release := make(chan struct{})
	silent := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-r.Context().Done():
		case <-release:
		}
	}))
	defer silent.Close()
	defer close(release)
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", silent.URL)
	tr, err := Open(t.Context(), Options{Lookup: func(name string) (string, bool) {
		if name == "OTEL_EXPORTER_OTLP_ENDPOINT" {
			return silent.URL, true
		}
		return "", false
	}, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	_, settled := tr.Transition(t.Context(), op)
	settled("ok")
	began := time.Now()
	tr.Close(t.Context())
	if took := time.Since(began); took > flushTime+2*time.Second {
		t.Errorf("Close took %v, the limit is %v", took, flushTime)
	}
}
