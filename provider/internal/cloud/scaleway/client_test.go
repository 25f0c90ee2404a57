package scaleway_test

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/scaleway/scaleway-sdk-go/api/instance/v1"
	"github.com/scaleway/scaleway-sdk-go/logger"

	"bigfleet-providers/provider/internal/cloud"
	"bigfleet-providers/provider/internal/cloud/scaleway"
)

func TestClientSendsKeyAndUserAgent(t *testing.T) {
	seen := make(chan http.Header, 1)
	c := client(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { seen <- r.Header }))
	// The answer is empty, which the SDK takes for a success.
	if _, err := instance.NewAPI(c).GetServer(&instance.GetServerRequest{ServerID: serverID}); err != nil {
		t.Fatal(err)
	}
	h := <-seen
	if got := h.Get("X-Auth-Token"); got != secretKey {
		t.Errorf("token %q", got)
	}
	if got := h.Get("User-Agent"); !strings.Contains(got, "bigfleet-scaleway/1.2.3") {
		t.Errorf("user agent %q", got)
	}
}

// The key travels in a header of its own, which Go carries along on redirects.
func TestClientFollowsNoRedirect(t *testing.T) {
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the redirect was followed") }))
	t.Cleanup(elsewhere.Close)
	c := client(t, http.RedirectHandler(elsewhere.URL, http.StatusTemporaryRedirect))
	if _, err := instance.NewAPI(c).GetServer(&instance.GetServerRequest{ServerID: serverID}); err == nil {
		t.Error("a redirect is no answer")
	}
}

func TestClientReportsEveryFault(t *testing.T) {
	_, err := scaleway.NewClient(scaleway.ClientConfig{Zone: "paris"})
	if err == nil {
		t.Fatal("an empty configuration was accepted")
	}
	for _, want := range []string{"SCW_ACCESS_KEY", "SCW_SECRET_KEY", "SCW_DEFAULT_PROJECT_ID", `zone "paris"`} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error lacks %q: %v", want, err)
		}
	}
}

func TestClientKeepsABadSecretToItself(t *testing.T) {
	const secret = "not-a-uuid-but-secret"
	_, err := scaleway.NewClient(scaleway.ClientConfig{AccessKey: accessKey, SecretKey: secret, ProjectID: projectID, Zone: "fr-par-1"})
	if err == nil || strings.Contains(err.Error(), secret) {
		t.Errorf("NewClient = %v, want an error without the secret", err)
	}
}

// With SCW_DEBUG the SDK would print requests with all they carry.
func TestDebugDumpsAreRefused(t *testing.T) {
	t.Setenv(logger.DebugEnv, "1")
	stderr := capture(t, func() {
		logger.EnableDebugMode()
		var log bytes.Buffer
		c := client(t, answer(http.StatusOK, "application/json", `{"server":{"name":"secret-answer"}}`), func(cfg *scaleway.ClientConfig) {
			cfg.Log = slog.New(slog.NewTextHandler(&log, nil))
		})
		err := instance.NewAPI(c).SetServerUserData(&instance.SetServerUserDataRequest{
			ServerID: serverID, Key: "cloud-init", Content: strings.NewReader("secret-user-data"),
		})
		if err != nil {
			t.Error(err)
		}
		if logger.ShouldLog(logger.LogLevelDebug) {
			t.Error("the SDK's logger is still on")
		}
		if !strings.Contains(log.String(), "SCW_DEBUG is ignored") {
			t.Errorf("the operator was not told: %q", log.String())
		}
	})
	for _, secret := range []string{"secret-user-data", "secret-answer", secretKey[:8]} {
		if strings.Contains(stderr, secret) {
			t.Errorf("%q was printed", secret)
		}
	}
}

// capture returns what f writes to standard error.
func capture(t *testing.T, f func()) string {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	var wg sync.WaitGroup
	wg.Go(func() { _, _ = io.Copy(&out, r) })
	old := os.Stderr
	os.Stderr = w
	func() {
		defer func() { os.Stderr = old }()
		f()
	}()
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	wg.Wait()
	return out.String()
}

// The SDK's cache of the API's metadata has no lock; run with -race.
func TestSRNGuard(t *testing.T) {
	for name, metadata := range map[string]http.HandlerFunc{
		"there":   answer(http.StatusOK, "application/json", `{"platform":"external","partition":"scw","domain":"scw.eu"}`),
		"missing": answer(http.StatusNotFound, "text/plain", ""),
	} {
		t.Run(name, func(t *testing.T) {
			mux := http.NewServeMux()
			mux.Handle("/metadata", metadata)
			mux.Handle("/", answer(http.StatusOK, "application/json", `{"servers":[]}`))
			c := client(t, mux)
			api := instance.NewAPI(c)
			var guard scaleway.SRNGuard
			var wg sync.WaitGroup
			for range 8 {
				wg.Go(func() {
					err := guard.Do(c, func() error {
						_, err := api.ListServers(&instance.ListServersRequest{})
						return err
					})
					if err != nil {
						t.Error(err)
					}
				})
			}
			wg.Wait()
		})
	}
}

// A call that is not answered ends, so that it keeps neither a step nor a pass
// waiting for ever.
func TestClientGivesUpOnSilence(t *testing.T) {
	release := make(chan struct{})
	silent := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-release:
		case <-r.Context().Done():
		}
	})
	c := client(t, silent, func(cfg *scaleway.ClientConfig) { cfg.HTTP = &http.Client{Timeout: 50 * time.Millisecond} })
	t.Cleanup(func() { close(release) })
	ended := make(chan error, 1)
	go func() {
		_, err := instance.NewAPI(c).GetServer(&instance.GetServerRequest{ServerID: serverID})
		ended <- err
	}()
	select {
	case err := <-ended:
		if err == nil || scaleway.Refused(err) || errors.Is(scaleway.Explain(err), cloud.ErrNotFound) {
			t.Errorf("a call without an answer: %v; want an error that says nothing of the server", err)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("the call never ends")
	}
}
