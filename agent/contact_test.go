package agent_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"bigfleet-providers/agent"
	ct "bigfleet-providers/agent/internal/channeltest"
	"bigfleet-providers/shared/command"
)

// waitLog waits until the agent's log has every text.
func (h *host) waitLog(t *testing.T, texts ...string) {
	t.Helper()
	for _, text := range texts {
		ct.Eventually(t, fmt.Sprintf("%q in the log", text), func() bool { return strings.Contains(h.log.String(), text) })
	}
}

// A token that is refused is kept: the next poll with it is accepted. The log
// says what a wrong clock would look like.
func TestUnauthorisedIsNotTheEnd(t *testing.T) {
	server := ct.Start(t, ct.Options{})
	var denied atomic.Int32
	server.Intercept = func(w http.ResponseWriter, r *http.Request) bool {
		w.Header().Set("Date", time.Now().Add(2*time.Hour).UTC().Format(http.TimeFormat))
		if denied.Add(1) > 5 {
			return false
		}
		// A proxy that answers with what it was sent.
		http.Error(w, "bad "+r.Header.Get("Authorization"), http.StatusUnauthorized)
		return true
	}
	h := newHost(t, server, nil)
	h.start(t)
	cmd := ct.Configure("op-1", "join")
	cmd.Deadline = cmd.Deadline.Add(2 * time.Hour)
	server.Deliver(cmd)
	if a := h.waitAcks(t, 1)[0]; !a.OK {
		t.Errorf("ack %+v", a)
	}
	h.waitLog(t, "401", "local clock", "certificate valid from", "difference -", "in contact with the provider again")
	if strings.Contains(h.log.String(), server.Token) {
		t.Error("the token is in the log")
	}
}

// An agent that was just started, or whose provider just came back, says so
// while it waits for a command, not when that wait is over.
func TestContactIsKnownAtOnce(t *testing.T) {
	server := ct.Start(t, ct.Options{})
	var denied atomic.Int32 // answers to come
	server.Intercept = func(w http.ResponseWriter, _ *http.Request) bool {
		if denied.Add(-1) < 0 {
			return false
		}
		http.Error(w, "away", http.StatusInternalServerError)
		return true
	}
	h := newHost(t, server, nil)
	h.options.Wait, h.options.StatusFile = time.Hour, filepath.Join(t.TempDir(), "status.json")
	stop := h.start(t)
	inContact := func() bool {
		s, err := agent.ReadStatus(h.options.StatusFile)
		return err == nil && !s.LastContact.IsZero() && s.LastError == ""
	}
	ct.Eventually(t, "contact after the start", inContact)
	stop()

	denied.Store(3)
	h.start(t)
	h.waitLog(t, "in contact with the provider again")
	ct.Eventually(t, "contact after a failure", inContact)
}

func TestTLSFaultsAreExplained(t *testing.T) {
	now := time.Now()
	soon := now.Add(time.Hour)
	tests := []struct {
		name  string
		opt   ct.Options
		other bool // pin another CA
		texts []string
	}{
		{"not yet valid", ct.Options{NotBefore: soon, NotAfter: soon.Add(time.Hour)}, false,
			[]string{"set the clock", "local clock", soon.UTC().Format(time.RFC3339)}},
		{"expired", ct.Options{NotBefore: now.Add(-2 * time.Hour), NotAfter: now.Add(-time.Hour)}, false,
			[]string{"set the clock", "valid from", now.Add(-time.Hour).UTC().Format(time.RFC3339)}},
		{"another CA", ct.Options{}, true, []string{"not signed by ca_pem"}},
		{"another host", ct.Options{Host: "elsewhere.test"}, false, []string{"does not name the endpoint"}},
		{"plain HTTP", ct.Options{CloseTLS: true}, false, []string{"does not speak TLS"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			server := ct.Start(t, tt.opt)
			if tt.other {
				server.CAPEM = ct.Start(t, ct.Options{}).CAPEM
			}
			h := newHost(t, server, nil)
			h.start(t)
			h.waitLog(t, tt.texts...)
			// It keeps trying, and says so once.
			if n := strings.Count(h.log.String(), "level=WARN"); n != 1 {
				t.Errorf("%d warnings", n)
			}
			if len(server.Polls()) > 0 {
				t.Error("the token was sent")
			}
		})
	}
}

func TestOldTLSIsRefused(t *testing.T) {
	server := httptest.NewUnstartedServer(http.NotFoundHandler())
	client, err := agent.NewHTTPClient(ct.Start(t, ct.Options{}).CAPEM)
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	if v := client.Transport.(*http.Transport).TLSClientConfig.MinVersion; v != 0x0304 {
		t.Errorf("the oldest TLS is %#x", v)
	}
}

// A provider that restarts asks its agents to come back: that is no failure.
func TestComeBackLaterIsNoFailure(t *testing.T) {
	for _, code := range []int{http.StatusServiceUnavailable, http.StatusTooManyRequests} {
		t.Run(http.StatusText(code), func(t *testing.T) {
			server := ct.Start(t, ct.Options{})
			asked := make(chan time.Time, 2)
			server.Intercept = func(w http.ResponseWriter, _ *http.Request) bool {
				select {
				case asked <- time.Now():
				default:
					return false
				}
				if len(asked) == 2 {
					return false
				}
				w.Header().Set("Retry-After", "1")
				w.WriteHeader(code)
				return true
			}
			h := newHost(t, server, nil)
			h.start(t)
			server.Deliver(ct.Configure("op-1", "join"))
			h.waitAcks(t, 1)
			if pause := (<-asked).Sub(<-asked).Abs(); pause < 900*time.Millisecond {
				t.Errorf("the agent came back after %s", pause)
			}
			if strings.Contains(h.log.String(), "level=WARN") {
				t.Error("it counts as a failure")
			}
		})
	}
}

func TestBadAnswersAreSurvived(t *testing.T) {
	for name, answer := range map[string]http.HandlerFunc{
		"500":        func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) },
		"HTML":       func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprint(w, "<html>captive portal</html>") },
		"empty 200":  func(http.ResponseWriter, *http.Request) {},
		"no id":      func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprint(w, "{}") },
		"huge":       func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, command.MaxCommandBytes+1)) },
		"hanging up": func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
		"redirect":   func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/elsewhere", http.StatusFound) },
	} {
		t.Run(name, func(t *testing.T) {
			server := ct.Start(t, ct.Options{})
			var mu sync.Mutex
			bad, followed := 0, false
			server.Intercept = func(w http.ResponseWriter, r *http.Request) bool {
				mu.Lock()
				bad++
				n := bad
				followed = followed || r.URL.Path == "/elsewhere"
				mu.Unlock()
				if n > 3 {
					return false
				}
				answer(w, r)
				return true
			}
			h := newHost(t, server, nil)
			h.start(t)
			server.Deliver(ct.Configure("op-1", "join"))
			if a := h.waitAcks(t, 1)[0]; !a.OK {
				t.Errorf("ack %+v", a)
			}
			mu.Lock()
			defer mu.Unlock()
			if followed {
				t.Error("a redirect was followed with the token")
			}
		})
	}
}

// A provider that does not park polls is not asked all the time.
func TestImmediateAnswersArePaced(t *testing.T) {
	server := ct.Start(t, ct.Options{})
	server.Intercept = func(_ http.ResponseWriter, r *http.Request) bool {
		r.URL.RawQuery = url.Values{command.ParamMachineID: {ct.MachineID}}.Encode()
		return false
	}
	h := newHost(t, server, nil)
	h.options.BusyPause = 100 * time.Millisecond
	begun := time.Now()
	stop := h.start(t)
	// The first does not park, and the second follows at once.
	ct.Eventually(t, "a few polls", func() bool { return len(server.Polls()) >= 5 })
	if took := time.Since(begun); took < 3*50*time.Millisecond {
		t.Errorf("5 polls in %s", took)
	}
	stop()
}

func TestEndpointThatDoesNotResolve(t *testing.T) {
	server := ct.Start(t, ct.Options{})
	server.URL = "https://no-such-host.invalid:9443"
	h := newHost(t, server, nil)
	h.start(t)
	h.waitLog(t, "check the host's resolver")
}

// recorder notes what the service manager would be told.
type recorder struct {
	mu    sync.Mutex
	calls []string
}

func (r *recorder) add(s string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls = append(r.calls, s)
}
func (r *recorder) Ready()          { r.add("ready") }
func (r *recorder) Stopping()       { r.add("stopping") }
func (r *recorder) Watchdog()       { r.add("watchdog") }
func (r *recorder) Status(s string) { r.add("status " + s) }
func (r *recorder) String() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return strings.Join(r.calls, "\n")
}

// READY comes before the first contact, or a provider that is away for ten
// minutes would have the unit killed and started again.
func TestServiceManagerIsTold(t *testing.T) {
	server := ct.Start(t, ct.Options{})
	release := make(chan struct{})
	server.Intercept = func(http.ResponseWriter, *http.Request) bool { <-release; return false }
	h := newHost(t, server, nil)
	notified := &recorder{}
	h.options.Notifier = notified
	h.options.Watchdog = 200 * time.Millisecond
	stop := h.start(t)
	ct.Eventually(t, "ready", func() bool { return strings.HasPrefix(notified.String(), "ready\n") })
	close(release)
	server.Deliver(ct.Configure("op-1", "join"))
	h.waitAcks(t, 1)
	stop()
	for _, want := range []string{"watchdog", "status running configure for cluster cluster-a", "status polling", "stopping"} {
		if !strings.Contains(notified.String(), want) {
			t.Errorf("%q is missing in:\n%s", want, notified)
		}
	}
}

// While the agent waits for a provider that is away, its main loop shows that
// it turns.
func TestWatchdogWhileRetrying(t *testing.T) {
	server := ct.Start(t, ct.Options{})
	server.URL = "https://127.0.0.1:1"
	h := newHost(t, server, nil)
	notified := &recorder{}
	h.options.Notifier, h.options.Watchdog = notified, 40*time.Millisecond
	h.options.BackoffMin, h.options.BackoffMax = time.Hour, time.Hour
	h.start(t)
	h.waitLog(t, "trying again")
	ct.Eventually(t, "watchdog calls in one pause", func() bool { return strings.Count(notified.String(), "watchdog") > 5 })
}

func TestManyAgentsShareAClient(t *testing.T) {
	server := ct.Start(t, ct.Options{})
	h := newHost(t, server, nil)
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	const n = 200
	for range n {
		opt := h.options
		opt.Journal = agent.NewMemoryJournal()
		wg.Go(func() {
			if err := agent.Run(ctx, h.config, opt); err != nil {
				t.Error(err)
			}
		})
	}
	ct.Eventually(t, "a poll of each", func() bool { return len(server.Polls()) >= n })
	begun := time.Now()
	cancel()
	wg.Wait()
	if took := time.Since(begun); took > 5*time.Second {
		t.Errorf("stopping took %s", took)
	}
}
