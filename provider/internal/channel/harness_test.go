package channel

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"bigfleet-providers/provider/internal/delivery"
	"bigfleet-providers/shared/command"
	"bigfleet-providers/shared/token"
)

const (
	secretCanary = "canary-secret-0123456789abcdef-0123456789abcdef"
	blobCanary   = "canary-blob: join with 0a1b2c.3d4e5f"
)

// life is that of every machine, unless a test says otherwise.
const life = "op-1"

// everybody is a machine, and lives.
func everybody(o *Options) { o.Life = func(string) (Life, bool) { return Life{ID: life}, true } }

// harness is a Server whose log, metrics and surroundings the test can see.
type harness struct {
	*Server
	t       testing.TB
	secret  token.Secret
	reg     *prometheus.Registry
	log     *lockedBuffer
	handler http.Handler

	mu      sync.Mutex
	lives   map[string]Life // of machines; without an id for one that has no host
	settled map[string]bool // machine + " " + command
}

func newHarness(t testing.TB, change ...func(*Options)) *harness {
	t.Helper()
	secret, err := token.NewSecret([]byte(secretCanary))
	if err != nil {
		t.Fatal(err)
	}
	h := &harness{
		t: t, secret: secret, reg: prometheus.NewRegistry(), log: &lockedBuffer{},
		lives: map[string]Life{"m-1": {ID: life}, "m-2": {ID: life}}, settled: map[string]bool{},
	}
	o := Options{
		Secret: secret,
		Life: func(id string) (Life, bool) {
			h.mu.Lock()
			defer h.mu.Unlock()
			l, known := h.lives[id]
			return l, known
		},
		Settled: func(m, c string) bool { h.mu.Lock(); defer h.mu.Unlock(); return h.settled[m+" "+c] },
		Log:     slog.New(slog.NewTextHandler(h.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
		Metrics: h.reg,
	}
	for _, c := range change {
		c(&o)
	}
	h.Server, err = New(o)
	if err != nil {
		t.Fatal(err)
	}
	h.handler = h.Handler()
	return h
}

// live begins another life of a machine.
func (h *harness) live(machineID string, l Life) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lives[machineID] = l
}

// leave takes a machine out of the fleet.
func (h *harness) leave(machineID string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.lives, machineID)
}

func (h *harness) setSettled(machineID, commandID string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.settled[machineID+" "+commandID] = true
}

// do calls the handler without a socket.
func (h *harness) do(r *http.Request) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.handler.ServeHTTP(w, r)
	return w
}

func (h *harness) poll(machineID, query string, change ...func(*http.Request)) *httptest.ResponseRecorder {
	return h.do(h.pollRequest(machineID, query, change...))
}

func (h *harness) pollRequest(machineID, query string, change ...func(*http.Request)) *http.Request {
	target := command.PathCommand + "?machine_id=" + url.QueryEscape(machineID) + query
	r := httptest.NewRequest(http.MethodGet, target, nil)
	r.Header.Set("Authorization", "Bearer "+token.Derive(h.secret, machineID, life))
	for _, c := range change {
		c(r)
	}
	return r
}

func (h *harness) ack(machineID string, a command.Ack) *httptest.ResponseRecorder {
	return h.do(h.ackRequest(machineID, ackBody(h.t, a)))
}

func (h *harness) ackRequest(machineID, body string, change ...func(*http.Request)) *http.Request {
	r := httptest.NewRequest(http.MethodPost, command.PathAck+"?machine_id="+url.QueryEscape(machineID), strings.NewReader(body))
	r.Header.Set("Authorization", "Bearer "+token.Derive(h.secret, machineID, life))
	r.Header.Set("Content-Type", command.MediaType)
	for _, c := range change {
		c(r)
	}
	return r
}

// background runs a request in a goroutine; the result comes when it is done.
func (h *harness) background(r *http.Request) <-chan *httptest.ResponseRecorder {
	done := make(chan *httptest.ResponseRecorder, 1)
	go func() { done <- h.do(r) }()
	return done
}

// delivered is the end of a Deliver.
type delivered struct {
	delivery.Report
	err error
}

func (h *harness) deliver(ctx context.Context, cmd command.Command) <-chan delivered {
	done := make(chan delivered, 1)
	go func() {
		r, err := h.Deliver(ctx, cmd)
		done <- delivered{r, err}
	}()
	return done
}

// count reads one counter or gauge, by name and label values.
func (h *harness) count(name string, labels ...string) float64 {
	h.t.Helper()
	families, err := h.reg.Gather()
	if err != nil {
		h.t.Fatal(err)
	}
	var sum float64
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
	metrics:
		for _, m := range f.GetMetric() {
			for i, want := range labels {
				if m.GetLabel()[i].GetValue() != want {
					continue metrics
				}
			}
			sum += m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	return sum
}

// metricsText is everything that a scrape would show.
func (h *harness) metricsText() string {
	h.t.Helper()
	w := httptest.NewRecorder()
	promhttp.HandlerFor(h.reg, promhttp.HandlerOpts{}).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	return w.Body.String()
}

func configure(machineID, commandID string) command.Command {
	return command.Command{
		CommandID: commandID, Kind: command.Configure, MachineID: machineID, ClusterID: "c-1",
		ProviderID: "scaleway://instance/fr-par-1/x", NodeName: "n-1", Blob: []byte(blobCanary),
		Deadline: time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC),
	}
}

func drain(machineID, commandID string) command.Command {
	c := configure(machineID, commandID)
	c.Kind, c.Blob, c.GraceSeconds = command.Drain, nil, 30
	return c
}

func okAck(commandID string) command.Ack {
	begun := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	return command.Ack{CommandID: commandID, OK: true, Started: begun, Finished: begun.Add(time.Second)}
}

func ackBody(t testing.TB, a command.Ack) string {
	t.Helper()
	body, err := json.Marshal(&a)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}

func wantStatus(t testing.TB, w *httptest.ResponseRecorder, want int) {
	t.Helper()
	if w.Code != want {
		t.Errorf("status %d, want %d; body %q", w.Code, want, w.Body)
	}
	if got := w.Header().Get("Cache-Control"); got != "no-store" {
		t.Errorf("Cache-Control %q, want no-store", got)
	}
}

func wantCommand(t testing.TB, w *httptest.ResponseRecorder, id string) {
	t.Helper()
	wantStatus(t, w, http.StatusOK)
	c, err := command.DecodeCommand(w.Body)
	if err != nil {
		t.Fatal(err)
	}
	if c.CommandID != id {
		t.Errorf("got command %s, want %s", c.CommandID, id)
	}
	if c.Kind == command.Configure && string(c.Blob) != blobCanary {
		t.Error("the blob did not arrive verbatim")
	}
}

// lockedBuffer is a log that many goroutines write.
type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}
