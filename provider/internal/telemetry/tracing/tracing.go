// Package tracing shows transitions as OpenTelemetry traces. A transition
// outlives the call that began it, and often the process. So the ids of its trace
// and of its first span derive from the operation id: whichever process goes on
// with it adds to the same trace, and the one that ends it sends the first span.
// Nothing about a trace is kept on disk.
//
// It is off unless the environment names an OTLP endpoint.
package tracing

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"bigfleet-providers/provider/internal/telemetry"
	"bigfleet-providers/shared/endpoint"
)

const (
	scope   = "bigfleet-providers/provider"
	service = "bigfleet-provider" // unless OTEL_SERVICE_NAME says otherwise
	// flushTime bounds how long a stop waits for the last spans.
	flushTime = 5 * time.Second
)

// Options say who is traced.
type Options struct {
	Cloud, Provider, Zone, Version string
	// Lookup reads the environment. The exporters read some variables of it by
	// themselves.
	Lookup func(string) (string, bool)
	Log    *slog.Logger
}

// Tracing makes spans and sends them. A nil one makes none.
type Tracing struct {
	provider *sdktrace.TracerProvider
	tracer   trace.Tracer
	log      *slog.Logger
}

// settings are what the environment says of traces.
type settings struct {
	endpoint, protocol string
}

// read returns nil when the environment asks for no traces, and every fault of
// what it asks for. It quotes no endpoint, which may hold a password.
func read(lookup func(string) (string, bool)) (*settings, error) {
	get := func(names ...string) (name, value string) {
		for _, name := range names {
			if v, _ := lookup(name); v != "" {
				return name, v
			}
		}
		return names[0], ""
	}
	variable, endpoint := get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
	_, disabled := get("OTEL_SDK_DISABLED")
	exporters, exporter := get("OTEL_TRACES_EXPORTER")
	if endpoint == "" || strings.EqualFold(disabled, "true") || exporter == "none" {
		return nil, nil
	}
	var faults []error
	// The exporters would take their default in place of what they cannot read.
	if err := judge(endpoint); err != nil {
		faults = append(faults, fmt.Errorf("%s: %w", variable, err))
	}
	if exporter != "" && exporter != "otlp" {
		faults = append(faults, fmt.Errorf("%s: %q, want otlp or none", exporters, exporter))
	}
	variable, protocol := get("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
	if protocol != "" && protocol != "http/protobuf" && protocol != "grpc" {
		faults = append(faults, fmt.Errorf("%s: %q, want http/protobuf or grpc", variable, protocol))
	}
	if err := errors.Join(faults...); err != nil {
		return nil, fmt.Errorf("traces: %w", err)
	}
	return &settings{endpoint, protocol}, nil
}

// Check judges what the environment says of traces, and opens nothing.
func Check(lookup func(string) (string, bool)) error {
	_, err := read(lookup)
	return err
}

// Open returns nil when the environment asks for no traces, and an error when
// what it asks for cannot be had. It does not wait for the endpoint.
func Open(ctx context.Context, o Options) (*Tracing, error) {
	s, err := read(o.Lookup)
	if s == nil || err != nil {
		return nil, err
	}
	// These are the process's, and what is behind them has no other way to report.
	// They come first: what the exporters cannot read they would print themselves.
	otel.SetErrorHandler(&thinned{log: o.Log})
	otel.SetLogger(logr.FromSlogHandler(warnings{o.Log.Handler()}))
	var send sdktrace.SpanExporter
	if s.protocol == "grpc" {
		send, err = otlptracegrpc.New(ctx)
	} else {
		send, err = otlptracehttp.New(ctx)
	}
	if err != nil {
		return nil, fmt.Errorf("traces: %w", err)
	}
	t, err := open(ctx, o, sdktrace.WithBatcher(send))
	if err != nil {
		return nil, errors.Join(fmt.Errorf("traces: %w", err), send.Shutdown(ctx))
	}
	o.Log.Info("traces are sent", "endpoint", redacted(s.endpoint))
	return t, nil
}

// judge judges where spans are sent. A user in the URL is the exporter's business.
func judge(text string) error {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" {
		return errors.New("not a URL of the form http://host:port or https://host:port")
	}
	u.User, u.RawQuery, u.Fragment = nil, "", ""
	_, err = endpoint.URL(u.String(), "http", "https")
	return err
}

func open(ctx context.Context, o Options, send sdktrace.TracerProviderOption) (*Tracing, error) {
	who, err := resource.New(ctx, resource.WithTelemetrySDK(), resource.WithAttributes(
		attribute.String("service.name", service),
		attribute.String("service.version", o.Version),
		attribute.String("cloud.provider", o.Cloud),
		attribute.String("cloud.availability_zone", o.Zone),
		attribute.String("bigfleet.provider", o.Provider),
	), resource.WithFromEnv())
	if err != nil {
		return nil, fmt.Errorf("OTEL_RESOURCE_ATTRIBUTES: %w", err)
	}
	p := sdktrace.NewTracerProvider(sdktrace.WithResource(who), sdktrace.WithIDGenerator(ids{}), send)
	return &Tracing{provider: p, tracer: p.Tracer(scope, trace.WithInstrumentationVersion(o.Version)), log: o.Log}, nil
}

// Close sends what is left, for a few seconds at most.
func (t *Tracing) Close(ctx context.Context) {
	if t == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushTime)
	defer cancel()
	if err := t.provider.Shutdown(ctx); err != nil {
		t.log.Warn("the last spans were not sent", telemetry.KeyError, err.Error())
	}
}

// redacted leaves credentials out, which a URL may hold.
func redacted(endpoint string) string {
	u, err := url.Parse(endpoint)
	if err != nil {
		return ""
	}
	return u.Scheme + "://" + u.Host + u.Path
}

// thinned logs what the exporter complains of, once a minute at most.
type thinned struct {
	log  *slog.Logger
	last atomic.Int64 // Unix seconds
}

// Handle implements otel.ErrorHandler.
func (h *thinned) Handle(err error) {
	now := time.Now().Unix()
	if last := h.last.Load(); now-last < 60 || !h.last.CompareAndSwap(last, now) {
		return
	}
	h.log.Warn("spans were not sent; the provider goes on without them", telemetry.KeyError, err.Error())
}

// warnings drops what the SDK says below that level: it would describe itself.
// Of a variable that it cannot read it says the value, which may be a secret.
type warnings struct{ slog.Handler }

// Handle implements slog.Handler.
func (w warnings) Handle(ctx context.Context, r slog.Record) error {
	var attrs []slog.Attr
	quotes := false
	r.Attrs(func(a slog.Attr) bool {
		quotes = quotes || a.Key == "input"
		attrs = append(attrs, a)
		return true
	})
	out := slog.NewRecord(r.Time, r.Level, r.Message, r.PC)
	if quotes {
		out.Message = "a variable OTEL_EXPORTER_OTLP_* cannot be read, and has no effect: " + r.Message
	} else {
		out.AddAttrs(attrs...)
	}
	return w.Handler.Handle(ctx, out)
}

// Enabled implements slog.Handler.
func (w warnings) Enabled(ctx context.Context, level slog.Level) bool {
	return level >= slog.LevelWarn && w.Handler.Enabled(ctx, level)
}
