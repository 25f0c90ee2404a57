package channel

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"bigfleet-providers/provider/internal/telemetry"
	"bigfleet-providers/shared/command"
	"bigfleet-providers/shared/token"
)

func (h *harness) fetch(path string, change ...func(*http.Request)) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodGet, path, nil)
	r.Header.Set("Authorization", "Bearer "+token.Derive(h.secret, "m-1", life))
	for _, c := range change {
		c(r)
	}
	return h.do(r)
}

func TestPackages(t *testing.T) {
	dir := t.TempDir()
	deb := strings.Repeat("deb", 100_000)
	for name, content := range map[string]string{"agent_1_amd64.deb": deb, ".hidden": "x", "sub/inner.deb": "x", "../outside-" + filepath.Base(dir): "x"} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	outside := filepath.Join(filepath.Dir(dir), "outside-"+filepath.Base(dir))
	if err := os.Symlink(outside, filepath.Join(dir, "link.deb")); err != nil {
		t.Fatal(err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { root.Close() })
	h := newHarness(t, func(o *Options) { o.Packages = root.FS(); o.Limits.RequestBurst = 100 })

	w := h.fetch("/v1/packages/agent_1_amd64.deb?machine_id=m-1")
	wantStatus(t, w, http.StatusOK)
	if w.Body.String() != deb || w.Header().Get("Content-Type") != "application/octet-stream" {
		t.Errorf("got %d bytes of %s", w.Body.Len(), w.Header().Get("Content-Type"))
	}
	w = h.fetch("/v1/packages/agent_1_amd64.deb?machine_id=m-1", func(r *http.Request) { r.Header.Set("Range", "bytes=3-5") })
	wantStatus(t, w, http.StatusPartialContent)
	if w.Body.String() != "deb" {
		t.Errorf("range is %q", w.Body)
	}
	w = h.fetch("/v1/packages/agent_1_amd64.deb?machine_id=m-1", func(r *http.Request) { r.Header.Set("Range", "bytes=999999999-") })
	wantStatus(t, w, http.StatusRequestedRangeNotSatisfiable)

	for _, path := range []string{"", ".hidden", "sub", "sub/inner.deb", "missing.deb", "link.deb", "..", "../" + filepath.Base(outside), "%2e%2e%2f" + filepath.Base(outside), "a%00b"} {
		wantStatus(t, h.fetch("/v1/packages/"+path+"?machine_id=m-1"), http.StatusNotFound)
	}
	wantStatus(t, h.fetch("/v1/packages?machine_id=m-1"), http.StatusNotFound)
	wantStatus(t, h.fetch("/v1/packages/agent_1_amd64.deb?machine_id=m-1&x=1"), http.StatusBadRequest)
	wantStatus(t, h.fetch("/v1/packages/agent_1_amd64.deb?machine_id=m-1", func(r *http.Request) { r.Method = http.MethodPut }), http.StatusMethodNotAllowed)
	if _, ok := h.LastContact("m-1"); ok {
		t.Error("a fetch counts as first contact, though no agent runs yet")
	}
	if got := h.count(telemetry.MetricChannelPackages.Name, resultServed); got != 3 {
		t.Errorf("counted %v fetches, want 3", got)
	}
}

func TestNoPackages(t *testing.T) {
	wantStatus(t, newHarness(t).fetch(command.PathPackages+"/agent.deb?machine_id=m-1"), http.StatusNotFound)
}

func TestPackageFetchIsBounded(t *testing.T) {
	h := newHarness(t)
	w := &steadyWriter{ResponseWriter: httptest.NewRecorder(), s: h.Server, until: time.Now().Add(-time.Second)}
	if _, err := w.Write([]byte("x")); err == nil {
		t.Error("a package may be fetched for ever")
	}
}
