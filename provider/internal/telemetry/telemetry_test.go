package telemetry

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
)

func TestTemplate(t *testing.T) {
	tests := map[string]string{
		"/instance/v1/zones/fr-par-1/servers": "/instance/v1/zones/{id}/servers",
		"/instance/v1/zones/fr-par-1/servers/11111111-2222-3333-4444-555555555555/user_data/cloud-init": "/instance/v1/zones/{id}/servers/{id}/user_data/cloud-init",
		"/block/v1alpha1/zones/nl-ams-1/volumes/abc1":                                                   "/block/v1alpha1/zones/{id}/volumes/{id}",
		"/v1/servers/42/actions/poweroff":                                                               "/v1/servers/{id}/actions/poweroff",
		"/providers/Microsoft.Compute/virtualMachines/bf-a1":                                            "/providers/Microsoft.Compute/virtualMachines/{id}",
		"/v1deadbeefdeadbeef":                                                                           "/{id}",
		"/" + strings.Repeat("a", 33):                                                                   "/{id}",
		"/a%b/ü/" + "x y":                                                                               "/{id}/{id}/{id}",
		"":                                                                                              "",
		strings.Repeat("/a", 40):                                                                        otherRoute,
		"/instance/v1/zones/fr-par-1/ips/":                                                              "/instance/v1/zones/{id}/ips/",
		"/marketplace/v2/local-images/v1.2":                                                             "/marketplace/v2/local-images/v1.2",
	}
	for path, want := range tests {
		if got := template(path); got != want {
			t.Errorf("%s: got %s, want %s", path, got, want)
		}
	}
}

func TestRoutesAreBounded(t *testing.T) {
	r := newRoutes()
	seen := map[string]bool{}
	for i := range 10_000 {
		name := strings.Map(func(c rune) rune { return c - '0' + 'a' }, fmt.Sprint(i)) // looks like a word
		seen[r.of("/objects/"+name)] = true
	}
	if len(seen) != maxRoutes+1 {
		t.Errorf("%d labels, want %d and the rest", len(seen), maxRoutes)
	}
	if got := r.of("/objects/a"); got != "/objects/a" {
		t.Errorf("a route that was there first became %s", got)
	}
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestTransport(t *testing.T) {
	const canary = "canary-credential"
	answer := func(code int) roundTrip {
		return func(*http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: code, Header: http.Header{"X": {canary}}, Body: io.NopCloser(strings.NewReader(canary))}, nil
		}
	}
	fail := func(err error) roundTrip {
		return func(*http.Request) (*http.Response, error) { return nil, err }
	}
	tests := map[string]struct {
		next   roundTrip
		method string
		want   string // method and status labels
	}{
		"ok":         {answer(200), "GET", "GET 2xx"},
		"created":    {answer(201), "POST", "POST 2xx"},
		"no method":  {answer(200), "", "GET 2xx"},
		"odd method": {answer(200), "BREW", "other 2xx"},
		"denied":     {answer(403), "GET", "GET 403"},
		"absent":     {answer(404), "GET", "GET 404"},
		"conflict":   {answer(409), "PUT", "PUT 4xx"},
		"throttled":  {answer(429), "GET", "GET 429"},
		"broken":     {answer(503), "DELETE", "DELETE 5xx"},
		"odd status": {answer(999), "GET", "GET other"},
		"cancelled":  {fail(fmt.Errorf("x: %w", context.Canceled)), "GET", "GET canceled"},
		"timeout":    {fail(context.DeadlineExceeded), "GET", "GET timeout"},
		"refused":    {fail(errors.New("proxy http://user:" + canary + "@p refused")), "GET", "GET error"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			reg := prometheus.NewRegistry()
			var log strings.Builder
			logger, err := NewLogger(&log, FormatText, "debug")
			if err != nil {
				t.Fatal(err)
			}
			tr := NewTransport(tt.next, "scaleway", reg, logger)
			r := httptest.NewRequest(http.MethodGet, "/instance/v1/zones/fr-par-1/servers?token="+canary, strings.NewReader(canary))
			r.Method = tt.method
			r.Header.Set("X-Auth-Token", canary)
			resp, err := tr.RoundTrip(r)
			wantResp, wantErr := tt.next(r)
			if (resp == nil) != (wantResp == nil) || fmt.Sprint(err) != fmt.Sprint(wantErr) {
				t.Errorf("got %v, %v; the caller must see what the cloud said", resp, err)
			}
			if resp != nil {
				if body, err := io.ReadAll(resp.Body); err != nil || string(body) != canary {
					t.Errorf("the body was touched: %q, %v", body, err)
				}
			}
			method, status, _ := strings.Cut(tt.want, " ")
			text := scrape(t, reg)
			want := fmt.Sprintf(`%s_count{method=%q,route="/instance/v1/zones/{id}/servers",status=%q} 1`, MetricCloudRequests.Name, method, status)
			if !strings.Contains(text, want) || !strings.Contains(text, MetricCloudInFlight.Name+" 0") {
				t.Errorf("no %s in\n%s", want, text)
			}
			if !strings.Contains(log.String(), "status="+status) {
				t.Errorf("log misses the status: %s", log.String())
			}
			if strings.Contains(text+log.String(), canary) {
				t.Errorf("a credential got out:\n%s%s", log.String(), text)
			}
		})
	}
}

func scrape(t *testing.T, reg prometheus.Gatherer) string {
	t.Helper()
	w := httptest.NewRecorder()
	NewHandler(reg, func() []string { return nil }).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	if w.Code != http.StatusOK {
		t.Fatalf("/metrics: %d %s", w.Code, w.Body)
	}
	return w.Body.String()
}

func TestRegistry(t *testing.T) {
	text := scrape(t, NewRegistry("scaleway", "scaleway-fr-par", "1.2.3"))
	for _, want := range []string{"bigfleet_scaleway_build_info{goversion=", `version="1.2.3"} 1`, `bigfleet_scaleway_provider_info{provider="scaleway-fr-par"} 1`, "go_goroutines ", "process_open_fds "} {
		if !strings.Contains(text, want) {
			t.Errorf("no %s among the metrics", want)
		}
	}
}

func TestProbes(t *testing.T) {
	var reasons []string
	h := NewHandler(prometheus.NewRegistry(), func() []string { return reasons })
	tests := []struct {
		method, path string
		reasons      []string
		status       int
		body         string
	}{
		{"GET", "/healthz", []string{"x"}, 200, "ok\n"},
		{"GET", "/readyz", nil, 200, "ready\n"},
		{"GET", "/readyz", []string{"the inventory was not read yet", "the state file is locked"}, 503, "not ready: the inventory was not read yet\nnot ready: the state file is locked\n"},
		{"POST", "/readyz", nil, 405, "Method Not Allowed\n"},
		{"GET", "/", nil, 404, "404 page not found\n"},
	}
	for _, tt := range tests {
		reasons = tt.reasons
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(tt.method, tt.path, nil))
		if w.Code != tt.status || w.Body.String() != tt.body {
			t.Errorf("%s %s: got %d %q, want %d %q", tt.method, tt.path, w.Code, w.Body, tt.status, tt.body)
		}
	}
}

func TestLogger(t *testing.T) {
	if _, err := NewLogger(io.Discard, "xml", "loud"); err == nil || !strings.Contains(err.Error(), "xml") || !strings.Contains(err.Error(), "loud") {
		t.Errorf("got %v, want both faults", err)
	}
	var out strings.Builder
	log, err := NewLogger(&out, "JSON", "Warn")
	if err != nil {
		t.Fatal(err)
	}
	log.Info("below the level")
	log.Warn("kept", KeyMachine, "m-1", "Token", "canary", slog.Group("cloud", "secret_key", "canary"))
	_, rest, _ := strings.Cut(strings.TrimSpace(out.String()), `"level"`)
	want := `:"WARN","msg":"kept","machine_id":"m-1","Token":"[redacted]","cloud":{"secret_key":"[redacted]"}}`
	if diff := cmp.Diff(want, rest); diff != "" {
		t.Errorf("log line (-want +got):\n%s", diff)
	}
}
