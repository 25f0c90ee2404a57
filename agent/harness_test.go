package agent_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
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
