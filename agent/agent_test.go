package agent_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"bigfleet-providers/agent"
	ct "bigfleet-providers/agent/internal/channeltest"
	"bigfleet-providers/shared/command"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// host is an agent in this process, its hook and what they did.
type host struct {
	server  *ct.Server
	config  agent.Config
	options agent.Options
	log     *logBuffer

	mu    sync.Mutex
	calls []string // verb, command and attempt of each run of the hook
}

// logBuffer collects a log that other goroutines write.
type logBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *logBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// newHost makes an agent whose hook is f; nil succeeds at once.
func newHost(t *testing.T, server *ct.Server, f func(context.Context, agent.Call) error) *host {
	t.Helper()
	h := &host{server: server, log: &logBuffer{}}
	h.config = agent.Config{Endpoint: server.URL, CAPEM: server.CAPEM, MachineID: ct.MachineID, Token: agent.Token(server.Token)}
	client, err := agent.NewHTTPClient(server.CAPEM)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.CloseIdleConnections)
	h.options = agent.Options{
		Log: slog.New(slog.NewTextHandler(h.log, &slog.HandlerOptions{Level: slog.LevelDebug})), HTTPClient: client,
		Journal: agent.NewMemoryJournal(), Version: "test", BootID: "boot-1", Wait: 2 * time.Second,
		BackoffMin: 5 * time.Millisecond, BackoffMax: 20 * time.Millisecond, ReadyPause: 5 * time.Millisecond, BusyPause: 10 * time.Millisecond,
		Hook: agent.HookFunc(func(ctx context.Context, call agent.Call) error {
			h.mu.Lock()
			h.calls = append(h.calls, fmt.Sprintf("%s %s %d", call.Verb, call.Command.CommandID, call.Attempt))
			h.mu.Unlock()
			if f == nil {
				return nil
			}
			return f(ctx, call)
		}),
	}
	return h
}

// start runs the agent and returns what stops it.
func (h *host) start(t *testing.T) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- agent.Run(ctx, h.config, h.options) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	t.Cleanup(func() {
		stop()
		if t.Failed() {
			text := h.log.String()
			t.Log(text[max(0, len(text)-4000):])
		}
	})
	return stop
}

func (h *host) ran() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return append([]string(nil), h.calls...)
}

func (h *host) waitAcks(t *testing.T, n int) []command.Ack {
	t.Helper()
	ct.Eventually(t, fmt.Sprintf("%d acks", n), func() bool { return len(h.server.Acks()) >= n })
	return h.server.Acks()
}

func wantRuns(t *testing.T, h *host, want ...string) {
	t.Helper()
	if got := h.ran(); strings.Join(got, ", ") != strings.Join(want, ", ") {
		t.Errorf("the hook ran %q, want %q", got, want)
	}
}

func TestConfigureThenDrain(t *testing.T) {
	h := newHost(t, ct.Start(t, ct.Options{}), func(_ context.Context, call agent.Call) error {
		switch call.Verb {
		case agent.Configure:
			if string(call.Command.Blob) != "join" {
				return errors.New("wrong blob")
			}
		case agent.Ready, agent.Drain:
			if call.Command.Blob != nil {
				return errors.New("the blob outlives configure")
			}
		}
		return nil
	})
	h.start(t)
	ct.Eventually(t, "a parked poll", func() bool { return len(h.server.Polls()) > 0 })
	begun := time.Now()
	h.server.Deliver(ct.Configure("op-1", "join"))
	acks := h.waitAcks(t, 1)
	if took := time.Since(begun); took > time.Second {
		t.Errorf("a parked poll brought the command only after %s", took)
	}
	h.server.Deliver(ct.Drain("op-2"))
	acks = append(acks, h.waitAcks(t, 2)[1])
	for i, id := range []string{"op-1", "op-2"} {
		if a := acks[i]; a.CommandID != id || !a.OK {
			t.Errorf("ack %d: %+v", i, a)
		}
	}
	wantRuns(t, h, "configure op-1 1", "ready op-1 1", "drain op-2 1")
	header := h.server.Polls()[0]
	if header.Get(command.HeaderKinds) != "configure,drain" || header.Get(command.HeaderVersion) != "test" || header.Get(command.HeaderBoot) != "boot-1" {
		t.Errorf("the poll does not say what the agent is: %v", header)
	}
}

func TestHookFails(t *testing.T) {
	h := newHost(t, ct.Start(t, ct.Options{}), func(context.Context, agent.Call) error {
		return errors.New("bad bytes \xff and " + strings.Repeat("ü", command.MaxErrorBytes))
	})
	h.start(t)
	h.server.Deliver(ct.Configure("op-1", "join"))
	a := h.waitAcks(t, 1)[0]
	if a.OK || !strings.HasPrefix(a.Error, "bad bytes") || a.Validate() != nil {
		t.Errorf("ack %+v", a)
	}
	wantRuns(t, h, "configure op-1 1")
}

func TestReadyIsAskedAgain(t *testing.T) {
	asked := 0
	h := newHost(t, ct.Start(t, ct.Options{}), func(_ context.Context, call agent.Call) error {
		if call.Verb == agent.Ready {
			if asked++; asked < 3 {
				return errors.New("NotReady")
			}
		}
		return nil
	})
	h.start(t)
	h.server.Deliver(ct.Configure("op-1", "join"))
	if a := h.waitAcks(t, 1)[0]; !a.OK || asked != 3 {
		t.Errorf("after %d checks: %+v", asked, a)
	}
}

func TestNeverReady(t *testing.T) {
	h := newHost(t, ct.Start(t, ct.Options{}), func(_ context.Context, call agent.Call) error {
		if call.Verb == agent.Ready {
			return errors.New("condition is NotReady")
		}
		return nil
	})
	h.start(t)
	cmd := ct.Configure("op-1", "join")
	cmd.Deadline = time.Now().Add(300 * time.Millisecond)
	h.server.Deliver(cmd)
	if a := h.waitAcks(t, 1)[0]; a.OK || !strings.Contains(a.Error, "did not become ready") || !strings.Contains(a.Error, "condition is NotReady") {
		t.Errorf("ack %+v", a)
	}
}

func TestDeadlinePassed(t *testing.T) {
	h := newHost(t, ct.Start(t, ct.Options{}), nil)
	h.start(t)
	cmd := ct.Configure("op-1", "join")
	cmd.Deadline = time.Now().Add(-time.Second)
	h.server.Deliver(cmd)
	if a := h.waitAcks(t, 1)[0]; a.OK || !strings.Contains(a.Error, "deadline") {
		t.Errorf("ack %+v", a)
	}
	wantRuns(t, h)
}

func TestDeadlineEndsHook(t *testing.T) {
	h := newHost(t, ct.Start(t, ct.Options{}), func(ctx context.Context, _ agent.Call) error {
		<-ctx.Done()
		return ctx.Err()
	})
	h.start(t)
	cmd := ct.Drain("op-1")
	cmd.Deadline = time.Now().Add(200 * time.Millisecond)
	h.server.Deliver(cmd)
	if a := h.waitAcks(t, 1)[0]; a.OK || !strings.Contains(a.Error, "deadline passed") {
		t.Errorf("ack %+v", a)
	}
}

// A host whose clock is wrong must neither refuse in vain nor run for ever: the
// provider's Date decides.
func TestDeadlineByTheProvidersClock(t *testing.T) {
	for _, skew := range []time.Duration{-2 * time.Hour, 2 * time.Hour, 24 * 365 * 10 * time.Hour} {
		t.Run(skew.String(), func(t *testing.T) {
			server := ct.Start(t, ct.Options{})
			h := newHost(t, server, nil)
			server.Intercept = func(w http.ResponseWriter, _ *http.Request) bool {
				w.Header().Set("Date", time.Now().Add(skew).UTC().Format(http.TimeFormat))
				return false
			}
			h.start(t)
			late := ct.Configure("late", "join")
			late.Deadline = time.Now().Add(skew - time.Minute)
			server.Deliver(late)
			if a := h.waitAcks(t, 1)[0]; a.OK || !strings.Contains(a.Error, "deadline") {
				t.Errorf("late: %+v", a)
			}
			good := ct.Configure("good", "join")
			good.Deadline = time.Now().Add(skew + time.Minute)
			server.Deliver(good)
			if a := h.waitAcks(t, 2)[1]; !a.OK {
				t.Errorf("good: %+v", a)
			}
		})
	}
}

func TestRefusals(t *testing.T) {
	tests := []struct {
		name   string
		change func(*command.Command)
		reason string
	}{
		{"a kind from the future", func(c *command.Command) { c.Kind, c.Blob = "reboot", nil }, `"reboot" is unknown`},
		{"another machine's", func(c *command.Command) { c.MachineID = "m-2" }, `for machine "m-2"`},
		{"a field that no environment can hold", func(c *command.Command) { c.NodeName = "a\x00b" }, "node_name"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			h := newHost(t, ct.Start(t, ct.Options{}), nil)
			h.start(t)
			cmd := ct.Configure("op-1", "join")
			tt.change(&cmd)
			h.server.Deliver(cmd)
			if a := h.waitAcks(t, 1)[0]; a.OK || !strings.Contains(a.Error, tt.reason) {
				t.Errorf("ack %+v", a)
			}
			wantRuns(t, h)
		})
	}
}

// fullDisk is a journal that can be read and not written.
type fullDisk struct{ agent.Journal }

func (fullDisk) Put(agent.Record) error { return syscall.ENOSPC }

func TestNothingRunsUnrecorded(t *testing.T) {
	h := newHost(t, ct.Start(t, ct.Options{}), nil)
	h.options.Journal = fullDisk{agent.NewMemoryJournal()}
	h.start(t)
	h.server.Deliver(ct.Configure("op-1", "join"))
	if a := h.waitAcks(t, 1)[0]; a.OK || !strings.Contains(a.Error, syscall.ENOSPC.Error()) {
		t.Errorf("ack %+v", a)
	}
	wantRuns(t, h)
}

// The same on a provider that asks again and again: neither run nor hurried.
func TestUnrecordedRefusalIsRemembered(t *testing.T) {
	server := ct.Start(t, ct.Options{})
	server.KeepAfterAck = true
	h := newHost(t, server, nil)
	h.options.Journal = fullDisk{agent.NewMemoryJournal()}
	h.start(t)
	h.server.Deliver(ct.Configure("op-1", "join"))
	h.waitAcks(t, 3)
	wantRuns(t, h)
	if !strings.Contains(h.log.String(), "asks again") || strings.Count(h.log.String(), "command failed") != 1 {
		t.Error("the refusal was forgotten")
	}
}

func TestSupersession(t *testing.T) {
	for _, ignoreHave := range []bool{false, true} {
		t.Run(fmt.Sprintf("old provider %t", ignoreHave), func(t *testing.T) {
			server := ct.Start(t, ct.Options{})
			server.IgnoreHave = ignoreHave
			started := make(chan struct{}, 10)
			h := newHost(t, server, func(ctx context.Context, call agent.Call) error {
				if call.Command.CommandID != "op-1" {
					return nil
				}
				started <- struct{}{}
				<-ctx.Done()
				return ctx.Err()
			})
			h.start(t)
			server.Deliver(ct.Configure("op-1", "join"))
			<-started
			polls := len(server.Polls())
			if ignoreHave { // the same command again changes nothing
				ct.Eventually(t, "polls while the hook runs", func() bool { return len(server.Polls()) > polls+5 })
			}
			server.Deliver(ct.Drain("op-2"))
			ct.Eventually(t, "the ack of op-2", func() bool {
				for _, a := range server.Acks() {
					if a.CommandID == "op-2" && a.OK {
						return true
					}
				}
				return false
			})
			for _, a := range server.Acks() {
				if a.CommandID == "op-1" && (a.OK || !strings.Contains(a.Error, "superseded")) {
					t.Errorf("ack of the superseded command: %+v", a)
				}
			}
			wantRuns(t, h, "configure op-1 1", "drain op-2 1")
			rec, ok := h.options.Journal.Get("op-1")
			if !ok || rec.Ack == nil || rec.Ack.OK {
				t.Errorf("journal of op-1: %+v", rec)
			}
		})
	}
}

// While a hook runs with a provider that knows HeaderHave, the blob is sent once.
func TestBlobIsSentOnce(t *testing.T) {
	server := ct.Start(t, ct.Options{})
	release := make(chan struct{})
	h := newHost(t, server, func(_ context.Context, call agent.Call) error {
		if call.Verb == agent.Configure {
			<-release
		}
		return nil
	})
	h.start(t)
	server.Deliver(ct.Configure("op-1", "join"))
	ct.Eventually(t, "a poll during the hook", func() bool {
		polls := server.Polls()
		return len(polls) > 0 && polls[len(polls)-1].Get(command.HeaderHave) == "op-1"
	})
	n := len(server.Polls())
	close(release)
	h.waitAcks(t, 1)
	if more := len(server.Polls()) - n; more > 2 {
		t.Errorf("%d polls during the hook", more)
	}
}

func TestFinishedCommandIsNeverRunAgain(t *testing.T) {
	server := ct.Start(t, ct.Options{})
	server.KeepAfterAck = true // as if the provider lost the ack in a restart
	h := newHost(t, server, nil)
	stop := h.start(t)
	server.Deliver(ct.Configure("op-1", "join"))
	h.waitAcks(t, 3)
	stop()
	n := len(server.Acks())
	h.start(t) // another agent on the same journal
	acks := h.waitAcks(t, n+2)
	for _, a := range acks {
		if a != acks[0] {
			t.Errorf("the repeated ack %+v is not %+v", a, acks[0])
		}
	}
	wantRuns(t, h, "configure op-1 1", "ready op-1 1")
}

func TestResultIsReportedUntilItIsTaken(t *testing.T) {
	server := ct.Start(t, ct.Options{})
	refusals := 0
	server.Intercept = func(w http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path != command.PathAck || refusals == 5 {
			return false
		}
		refusals++
		http.Error(w, "disk full", http.StatusInternalServerError)
		return true
	}
	h := newHost(t, server, nil)
	h.start(t)
	server.Deliver(ct.Configure("op-1", "join"))
	h.waitAcks(t, 1)
	ct.Eventually(t, "a settled record", func() bool { rec, _ := h.options.Journal.Get("op-1"); return rec.Settled })
	wantRuns(t, h, "configure op-1 1", "ready op-1 1")
}

func TestConflictDropsTheResult(t *testing.T) {
	server := ct.Start(t, ct.Options{})
	h := newHost(t, server, nil)
	server.Intercept = func(w http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path == command.PathAck {
			server.Deliver(ct.Drain("op-2"))
			http.Error(w, "moved on", http.StatusConflict)
			server.Do(func() { server.Intercept = nil })
			return true
		}
		return false
	}
	h.start(t)
	server.Deliver(ct.Configure("op-1", "join"))
	if a := h.waitAcks(t, 1)[0]; a.CommandID != "op-2" {
		t.Errorf("ack %+v", a)
	}
	if !strings.Contains(h.log.String(), "no longer waits") {
		t.Error("the dropped result is not logged")
	}
}

// An in-process hook cannot be resumed: the next agent, and the next boot, run
// it again as another attempt, once the provider has sent the command again.
func TestInterruptedCommandIsAnotherAttempt(t *testing.T) {
	started := make(chan struct{}, 10)
	block := true
	h := newHost(t, ct.Start(t, ct.Options{}), func(ctx context.Context, call agent.Call) error {
		started <- struct{}{}
		if !block || call.Verb == agent.Ready {
			return nil
		}
		<-ctx.Done()
		return ctx.Err()
	})
	stop := h.start(t)
	h.server.Deliver(ct.Configure("op-1", "join"))
	<-started
	stop()
	if n := len(h.server.Acks()); n > 0 {
		t.Fatalf("a stopped agent sent %d acks", n)
	}
	h.options.BootID = "boot-2"
	block = false
	h.start(t)
	if a := h.waitAcks(t, 1)[0]; !a.OK {
		t.Errorf("ack %+v", a)
	}
	wantRuns(t, h, "configure op-1 1", "configure op-1 2", "ready op-1 2")
}

// After configure succeeded, another agent asks for readiness only.
func TestConfigureIsNotRepeatedForReady(t *testing.T) {
	ready := false
	h := newHost(t, ct.Start(t, ct.Options{}), func(_ context.Context, call agent.Call) error {
		if call.Verb == agent.Ready && !ready {
			return errors.New("NotReady")
		}
		return nil
	})
	stop := h.start(t)
	h.server.Deliver(ct.Configure("op-1", "join"))
	ct.Eventually(t, "a readiness check", func() bool { return len(h.ran()) > 1 })
	stop()
	ready = true
	h.options.BootID = "boot-2"
	h.start(t)
	if a := h.waitAcks(t, 1)[0]; !a.OK {
		t.Errorf("ack %+v", a)
	}
	for _, call := range h.ran()[1:] {
		if strings.HasPrefix(call, "configure") {
			t.Errorf("configure ran again: %q", h.ran())
		}
	}
}
