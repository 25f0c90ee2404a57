package agent_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"bigfleet-providers/agent"
	ct "bigfleet-providers/agent/internal/channeltest"
	"bigfleet-providers/shared/command"
)

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
	h.options.Wait = time.Minute
	h.start(t)
	ct.Eventually(t, "a parked poll", func() bool { return len(h.server.Polls()) > 0 })
	begun := time.Now()
	h.server.Deliver(ct.Configure("op-1", "join"))
	acks := h.waitAcks(t, 1)
	if took := time.Since(begun); took > 10*time.Second {
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

// A run whose supervisor was killed is followed by another attempt, with or
// without a restart of the agent between them, but not for ever.
func TestKilledRunIsAnotherAttempt(t *testing.T) {
	for _, kills := range []int{1, 99} {
		t.Run(fmt.Sprintf("%d times", kills), func(t *testing.T) {
			server := ct.Start(t, ct.Options{})
			h := newHost(t, server, func(_ context.Context, call agent.Call) error {
				if call.Verb == agent.Configure && call.Attempt <= kills {
					return fmt.Errorf("hook configure: %w", agent.ErrKilled)
				}
				return nil
			})
			h.start(t)
			server.Deliver(ct.Configure("op-1", "join"))
			a := h.waitAcks(t, 1)[0]
			if kills == 1 {
				wantRuns(t, h, "configure op-1 1", "configure op-1 2", "ready op-1 2")
			} else {
				wantRuns(t, h, "configure op-1 1", "configure op-1 2", "configure op-1 3")
			}
			if a.OK != (kills == 1) || !a.OK && !strings.Contains(a.Error, "supervisor was killed") {
				t.Errorf("ack %+v", a)
			}
		})
	}
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

// shortly is until a deadline that a hook is to meet: ten times what a command has
// been seen to take to its hook, on a machine with four times as much to do as it
// can.
const shortly = 3 * time.Second

func TestNeverReady(t *testing.T) {
	t.Parallel()
	h := newHost(t, ct.Start(t, ct.Options{}), func(_ context.Context, call agent.Call) error {
		if call.Verb == agent.Ready {
			return errors.New("condition is NotReady")
		}
		return nil
	})
	h.start(t)
	cmd := ct.Configure("op-1", "join")
	cmd.Deadline = time.Now().Add(shortly)
	h.server.Deliver(cmd)
	if a := h.waitAcks(t, 1)[0]; a.OK || !strings.Contains(a.Error, "did not become ready") || !strings.Contains(a.Error, "condition is NotReady") {
		t.Errorf("ack %+v", a)
	}
}

// A check that never answers is the only one there is to tell why.
func TestReadyHangs(t *testing.T) {
	t.Parallel()
	h := newHost(t, ct.Start(t, ct.Options{}), func(ctx context.Context, call agent.Call) error {
		if call.Verb != agent.Ready {
			return nil
		}
		<-ctx.Done()
		return fmt.Errorf("hook ready: killed: %w: waiting for the network plugin", context.Cause(ctx))
	})
	h.start(t)
	cmd := ct.Configure("op-1", "join")
	cmd.Deadline = time.Now().Add(shortly)
	h.server.Deliver(cmd)
	a := h.waitAcks(t, 1)[0]
	for _, want := range []string{"did not become ready", "deadline passed", "waiting for the network plugin"} {
		if a.OK || !strings.Contains(a.Error, want) {
			t.Errorf("%q is missing in %+v", want, a)
		}
	}
}

// A hook may be told early that the deadline comes; no other check follows then.
func TestReadyIsEndedEarly(t *testing.T) {
	h := newHost(t, ct.Start(t, ct.Options{}), func(_ context.Context, call agent.Call) error {
		if call.Verb != agent.Ready {
			return nil
		}
		return fmt.Errorf("hook ready: killed: %w", agent.ErrDeadline)
	})
	h.start(t)
	h.server.Deliver(ct.Configure("op-1", "join"))
	if a := h.waitAcks(t, 1)[0]; a.OK || !strings.Contains(a.Error, "did not become ready") {
		t.Errorf("ack %+v", a)
	}
	wantRuns(t, h, "configure op-1 1", "ready op-1 1")
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
	t.Parallel()
	h := newHost(t, ct.Start(t, ct.Options{}), func(ctx context.Context, _ agent.Call) error {
		<-ctx.Done()
		return ctx.Err()
	})
	h.start(t)
	cmd := ct.Drain("op-1")
	cmd.Deadline = time.Now().Add(shortly)
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
