package agent_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"bigfleet-providers/agent"
	ct "bigfleet-providers/agent/internal/channeltest"
	"bigfleet-providers/shared/command"
)

// lasting is a hook whose work outlives the agent: Run and Resume end with the
// work, or leave it when the agent stops.
type lasting struct {
	*host
	done chan struct{}
}

func (l lasting) Run(ctx context.Context, call agent.Call) error { return l.wait(ctx, "run", call) }

func (l lasting) Resume(ctx context.Context, call agent.Call) error {
	return l.wait(ctx, "resume", call)
}

func (lasting) Attempts(agent.Call) (int, error) { return 0, nil }

func (l lasting) wait(ctx context.Context, how string, call agent.Call) error {
	l.mu.Lock()
	l.calls = append(l.calls, fmt.Sprintf("%s %s %s %d", how, call.Verb, call.Command.CommandID, call.Attempt))
	l.mu.Unlock()
	select {
	case <-l.done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func newLasting(t *testing.T) (*host, chan struct{}) {
	t.Helper()
	h := newHost(t, ct.Start(t, ct.Options{}), nil)
	done := make(chan struct{})
	h.options.Hook = lasting{h, done}
	return h, done
}

// interrupt delivers the command and stops the agent while its hook runs.
func (h *host) interrupt(t *testing.T, cmd command.Command) {
	t.Helper()
	stop := h.start(t)
	h.server.Deliver(cmd)
	ct.Eventually(t, "the hook", func() bool { return len(h.ran()) > 0 })
	stop()
}

// pollsFail makes the provider answer acks only.
func pollsFail(s *ct.Server) {
	s.Do(func() {
		s.Intercept = func(w http.ResponseWriter, r *http.Request) bool {
			if r.URL.Path != command.PathCommand {
				return false
			}
			w.WriteHeader(http.StatusBadGateway)
			return true
		}
	})
}

// In the same boot the next agent takes the work up, without waiting for the
// provider.
func TestNextAgentTakesUp(t *testing.T) {
	h, done := newLasting(t)
	h.interrupt(t, ct.Drain("op-1"))
	pollsFail(h.server)
	h.start(t)
	close(done)
	if a := h.waitAcks(t, 1)[0]; !a.OK {
		t.Errorf("ack %+v", a)
	}
	wantRuns(t, h, "run drain op-1 1", "resume drain op-1 1")
}

// After a reboot nothing can be taken up: the hook runs again when the provider
// sends the command again.
func TestNextBootRunsAgain(t *testing.T) {
	h, done := newLasting(t)
	h.interrupt(t, ct.Drain("op-1"))
	close(done)
	h.options.BootID = "boot-2"
	h.start(t)
	if a := h.waitAcks(t, 1)[0]; !a.OK {
		t.Errorf("ack %+v", a)
	}
	wantRuns(t, h, "run drain op-1 1", "run drain op-1 2")
}

// A hook that reboots the host each time is run three times, and the failure says
// so; how often is counted over boots.
func TestHookThatReboots(t *testing.T) {
	for _, cmd := range []command.Command{ct.Drain("op-1"), ct.Configure("op-1", "join")} {
		h, _ := newLasting(t)
		for boot := 1; boot <= 3; boot++ {
			h.options.BootID = fmt.Sprintf("boot-%d", boot)
			stop := h.start(t)
			if boot == 1 {
				h.server.Deliver(cmd)
			}
			ct.Eventually(t, "the hook", func() bool { return len(h.ran()) == boot })
			stop()
			if n := len(h.server.Acks()); n > 0 {
				t.Fatalf("ack after %d runs: %+v", boot, h.server.Acks())
			}
		}
		h.options.BootID = "boot-4"
		h.start(t)
		if a := h.waitAcks(t, 1)[0]; a.OK || !strings.Contains(a.Error, "rebooted 3 times") {
			t.Errorf("ack %+v", a)
		}
		if n := len(h.ran()); n != 3 {
			t.Errorf("%d runs: %q", n, h.ran())
		}
	}
}

// A hook that rebooted once, and whose time is over then: both are told.
func TestRebootAndDeadline(t *testing.T) {
	h, _ := newLasting(t)
	cmd := ct.Drain("op-1")
	cmd.Deadline = time.Now().Add(2 * time.Second)
	h.interrupt(t, cmd)
	h.options.BootID = "boot-2"
	h.start(t)
	if a := h.waitAcks(t, 1)[0]; a.OK || !strings.Contains(a.Error, "deadline passed") || !strings.Contains(a.Error, "rebooted once") {
		t.Errorf("ack %+v", a)
	}
}

// A restart of the agent neither stops nor resets the clock of a command.
func TestDeadlineOutlivesTheAgent(t *testing.T) {
	h, _ := newLasting(t)
	cmd := ct.Drain("op-1")
	cmd.Deadline = time.Now().Add(shortly)
	h.interrupt(t, cmd)
	pollsFail(h.server)
	h.start(t)
	a := h.waitAcks(t, 1)[0]
	if a.OK || !strings.Contains(a.Error, "deadline passed") {
		t.Errorf("ack %+v", a)
	}
	if late := time.Since(cmd.Deadline); late < -50*time.Millisecond || late > 30*time.Second {
		t.Errorf("the hook ended %s after its deadline", late)
	}
}

// A command that was replaced while no agent ran is ended, not finished.
func TestSupersededWhileNoAgentRan(t *testing.T) {
	h, done := newLasting(t)
	h.interrupt(t, ct.Configure("op-1", "join"))
	h.server.Deliver(ct.Drain("op-2"))
	h.start(t)
	ct.Eventually(t, "the drain", func() bool { return strings.Contains(strings.Join(h.ran(), "\n"), "run drain op-2 1") })
	close(done)
	ct.Eventually(t, "its ack", func() bool {
		for _, a := range h.server.Acks() {
			if a.CommandID == "op-2" {
				return a.OK
			}
		}
		return false
	})
	if rec, ok := h.options.Journal.Get("op-1"); !ok || rec.Ack == nil || rec.Ack.OK {
		t.Errorf("journal of op-1: %+v", rec)
	}
}
