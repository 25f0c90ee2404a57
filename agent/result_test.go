package agent_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"bigfleet-providers/agent"
	ct "bigfleet-providers/agent/internal/channeltest"
	"bigfleet-providers/shared/command"
)

// fullDisk is a journal that can be read, and written when there is room.
type fullDisk struct {
	agent.Journal
	room atomic.Bool
}

func (f *fullDisk) Put(rec agent.Record) error {
	if f.room.Load() {
		return f.Journal.Put(rec)
	}
	return syscall.ENOSPC
}

// newFullDisk is a host whose journal has no room.
func newFullDisk(t *testing.T, server *ct.Server) (*host, *fullDisk) {
	t.Helper()
	h := newHost(t, server, nil)
	disk := &fullDisk{Journal: agent.NewMemoryJournal()}
	h.options.Journal = disk
	return h, disk
}

// short is cmd with a second to its deadline.
func short(cmd command.Command) command.Command {
	cmd.Deadline = time.Now().Add(time.Second)
	return cmd
}

// Nothing runs that is not on record. A command that cannot be recorded until its
// deadline has failed, and says why.
func TestNothingRunsUnrecorded(t *testing.T) {
	for _, cmd := range []command.Command{ct.Configure("op-1", "join"), ct.Drain("op-1")} {
		h, _ := newFullDisk(t, ct.Start(t, ct.Options{}))
		h.start(t)
		cmd = short(cmd)
		h.server.Deliver(cmd)
		a := h.waitAcks(t, 1)[0]
		if a.OK || !strings.Contains(a.Error, syscall.ENOSPC.Error()) || !strings.Contains(a.Error, "nothing was run") {
			t.Errorf("ack %+v", a)
		}
		if early := time.Until(cmd.Deadline); early > 0 {
			t.Errorf("refused %s before the deadline", early)
		}
		wantRuns(t, h)
	}
}

// A disk that is full for a moment delays a command and does not fail it; what
// it waits for is told meanwhile.
func TestRoomComesInTime(t *testing.T) {
	h, disk := newFullDisk(t, ct.Start(t, ct.Options{}))
	h.start(t)
	h.server.Deliver(ct.Drain("op-1"))
	h.waitLog(t, "trying again until its deadline")
	if n := len(h.server.Acks()); n > 0 {
		t.Fatalf("%d acks while the disk is full", n)
	}
	disk.room.Store(true)
	if a := h.waitAcks(t, 1)[0]; !a.OK {
		t.Errorf("ack %+v", a)
	}
	wantRuns(t, h, "drain op-1 1")
	if n := strings.Count(h.log.String(), "trying again until its deadline"); n != 1 {
		t.Errorf("%d lines say the same", n)
	}
}

// Whatever keeps a hook from being started may pass; its own failure does not.
func TestNotStartedIsNoFailure(t *testing.T) {
	var failures atomic.Int32
	h := newHost(t, ct.Start(t, ct.Options{}), func(_ context.Context, call agent.Call) error {
		if call.Verb == agent.Drain && failures.Add(1) < 3 {
			return fmt.Errorf("%w: prepare: %w", agent.ErrNotStarted, syscall.ENOSPC)
		}
		return nil
	})
	h.start(t)
	h.server.Deliver(ct.Drain("op-1"))
	if a := h.waitAcks(t, 1)[0]; !a.OK {
		t.Errorf("ack %+v", a)
	}
	wantRuns(t, h, "drain op-1 1", "drain op-1 2", "drain op-1 3")
}

// A refusal that could not be recorded, on a provider that asks again and again:
// neither run nor hurried.
func TestUnrecordedRefusalIsRemembered(t *testing.T) {
	server := ct.Start(t, ct.Options{})
	server.KeepAfterAck = true
	h, _ := newFullDisk(t, server)
	h.start(t)
	h.server.Deliver(short(ct.Configure("op-1", "join")))
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
	var refusals atomic.Int32
	server.Intercept = func(w http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path != command.PathAck || refusals.Add(1) > 5 {
			return false
		}
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
