package e2e

import (
	"bytes"
	"encoding/hex"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	coltracepb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	pb "bigfleet-providers/proto/bigfleet/v1alpha1"
)

// collector receives OTLP over HTTP and keeps the spans.
type collector struct {
	*httptest.Server
	mu    sync.Mutex
	spans []*tracepb.Span
	body  strings.Builder // all that was sent, for a search
}

func newCollector(t *testing.T) *collector {
	t.Helper()
	c := &collector{}
	c.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		req := new(coltracepb.ExportTraceServiceRequest)
		if err != nil || r.URL.Path != "/v1/traces" || proto.Unmarshal(body, req) != nil {
			http.Error(w, "no spans", http.StatusBadRequest)
			return
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		c.body.Write(body)
		for _, rs := range req.GetResourceSpans() {
			for _, ss := range rs.GetScopeSpans() {
				c.spans = append(c.spans, ss.GetSpans()...)
			}
		}
		w.Header().Set("Content-Type", "application/x-protobuf")
	}))
	t.Cleanup(c.Close)
	return c
}

// all returns what was sent so far.
func (c *collector) all() []*tracepb.Span {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.spans)
}

func attribute(attrs []*commonpb.KeyValue, key string) string {
	for _, a := range attrs {
		if a.GetKey() == key {
			return a.GetValue().GetStringValue()
		}
	}
	return ""
}

// first waits for the first span of the operation, which is sent with its end,
// and returns it and the names of the spans below it with their outcome; below a
// step those of its calls as "step/GET".
func (c *collector) first(t *testing.T, operation string) (*tracepb.Span, []string) {
	t.Helper()
	var root *tracepb.Span
	await(t, "the trace's first span", func() bool {
		for _, s := range c.all() {
			if attribute(s.GetAttributes(), "bigfleet.operation_id") == operation && len(s.GetParentSpanId()) == 0 && s.GetKind() != tracepb.Span_SPAN_KIND_SERVER {
				root = s
			}
		}
		return root != nil
	})
	var names []string
	await(t, "the spans below it", func() bool {
		below := map[string]string{hex.EncodeToString(root.GetSpanId()): ""}
		found := map[string]bool{}
		orphans := false
		for range 3 { // children may come before their parents
			orphans = false
			for _, s := range c.all() {
				if !bytes.Equal(s.GetTraceId(), root.GetTraceId()) || s == root {
					continue
				}
				parent, ok := below[hex.EncodeToString(s.GetParentSpanId())]
				if !ok {
					orphans = true
					continue
				}
				name := strings.TrimPrefix(parent+"/"+s.GetName(), "/")
				below[hex.EncodeToString(s.GetSpanId())] = name
				found[strings.TrimSpace(name+" "+attribute(s.GetAttributes(), "bigfleet.outcome"))] = true
			}
		}
		names = slices.Sorted(maps.Keys(found))
		return !orphans
	})
	return root, names
}

// TestTracesOverRestart follows a Create and a Configure from the shard's span to
// the host's report; the provider is killed while the hook runs.
func TestTracesOverRestart(t *testing.T) {
	t.Parallel()
	c := newCollector(t)
	g := newGate(t)
	env := environment("OTEL_EXPORTER_OTLP_ENDPOINT="+c.URL, "OTEL_BSP_SCHEDULE_DELAY=50")
	args := []string{"--use-fake-backend", "--provider=certify", "--fake-hosts=process", "--state=" + filepath.Join(t.TempDir(), "state.db")}
	p := startProvider(t, env, nil, args...)
	id := p.machines(1)[0]

	const trace, span = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
	shard := metadata.AppendToOutgoingContext(t.Context(), "traceparent", "00-"+trace+"-"+span+"-01")
	ack, err := p.Create(shard, &pb.CreateRequest{MachineId: id})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.await(id, idle); err != nil {
		t.Fatal(err)
	}
	root, names := c.first(t, ack.GetOperationId())
	if root.GetName() != "Create" || attribute(root.GetAttributes(), "bigfleet.outcome") != "ok" || attribute(root.GetAttributes(), "bigfleet.machine_id") != id {
		t.Errorf("the first span is %v", root)
	}
	for _, want := range []string{"accepted", "queued ok", "order ok", "order/POST", "power-on ok", "boot ok", "first-contact ok", "scrub ok"} {
		if !slices.Contains(names, want) {
			t.Errorf("the Create's trace has %q, and no %q", names, want)
		}
	}
	linked := false
	for _, s := range c.all() {
		for _, l := range s.GetLinks() {
			// The call's own span is a part of the shard's trace.
			linked = linked || s.GetName() == "accepted" && hex.EncodeToString(l.GetTraceId()) == trace
		}
	}
	if !linked {
		t.Error("nothing links the trace with the shard's")
	}

	ack, err = p.Configure(t.Context(), &pb.ConfigureRequest{MachineId: id, ClusterId: "c", BootstrapBlob: append(g.blob(), "# canary-blob\n"...)})
	if err != nil {
		t.Fatal(err)
	}
	p.line(`"gave a host its command".*kind=configure`)
	p.kill()
	p = startProvider(t, env, nil, args...)
	g.open(t, "configure")
	if _, err := p.await(id, configured); err != nil {
		t.Fatal(err)
	}
	root, names = c.first(t, ack.GetOperationId())
	if root.GetName() != "Configure" || root.GetStartTimeUnixNano() >= root.GetEndTimeUnixNano() {
		t.Errorf("the first span is %v", root)
	}
	// Of the killed process only what it had sent is there.
	for _, want := range []string{"deliver ok", "deliver/hook ok", "tag ok"} {
		if !slices.Contains(names, want) {
			t.Errorf("the Configure's trace has %q, and no %q", names, want)
		}
	}

	// The last spans are sent at a stop.
	p.must("Drain", id, token{}, unspecified)
	before := len(c.all())
	if code := p.terminate(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	await(t, "spans that a stop sends", func() bool { return len(c.all()) > before })
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, secret := range []string{"canary-blob", "Bearer", "X-Auth-Token"} {
		if strings.Contains(c.body.String(), secret) {
			t.Errorf("%s is in the spans", secret)
		}
	}
}

// TestNoTracesUnlessAsked: nothing is sent, and a wrong setting is an error and
// not silence.
func TestNoTracesUnlessAsked(t *testing.T) {
	t.Parallel()
	c := newCollector(t)
	p := startProvider(t, environment("OTEL_EXPORTER_OTLP_ENDPOINT="+c.URL, "OTEL_SDK_DISABLED=true"), nil, "--use-fake-backend", "--provider=certify")
	id := p.machines(1)[0]
	p.must("Create", id, token{}, idle)
	if code := p.terminate(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	if n := len(c.all()); n != 0 {
		t.Errorf("%d spans were sent", n)
	}
	bad := start(t, environment("OTEL_EXPORTER_OTLP_ENDPOINT=localhost:4317"), "scaleway", "--use-fake-backend", "--addr=127.0.0.1:0", "--metrics-addr=127.0.0.1:0")
	if code := bad.exit(20e9); code != 2 {
		t.Errorf("exit code %d, want 2", code)
	}
	bad.mu.Lock()
	defer bad.mu.Unlock()
	if !strings.Contains(bad.output.String(), "OTEL_EXPORTER_OTLP_ENDPOINT: not a URL") {
		t.Errorf("output: %s", bad.output.String())
	}
}
