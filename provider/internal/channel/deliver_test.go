package channel

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"bigfleet-providers/provider/internal/delivery"
	"bigfleet-providers/shared/command"
)

func TestDeliverSupersedes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t)
		first := h.deliver(t.Context(), configure("m-1", "op-1"))
		synctest.Wait()
		old := h.mailboxes["m-1"].offered
		second := h.deliver(t.Context(), drain("m-1", "op-2"))
		if end := <-first; !errors.Is(end.err, delivery.ErrSuperseded) {
			t.Errorf("the first ended with %v, want ErrSuperseded", end.err)
		}
		if old.body != nil || old.blob != nil {
			t.Error("a replaced command keeps its blob")
		}
		wantCommand(t, h.poll("m-1", ""), "op-2")
		wantStatus(t, h.ack("m-1", okAck("op-1")), http.StatusConflict)
		acked := h.background(h.ackRequest("m-1", ackBody(t, okAck("op-2"))))
		(<-second).Confirm(nil)
		wantStatus(t, <-acked, http.StatusOK)
	})
}

func TestDeliverSupersedesItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t)
		first := h.deliver(t.Context(), configure("m-1", "op-1"))
		synctest.Wait()
		second := h.deliver(t.Context(), configure("m-1", "op-1"))
		if end := <-first; !errors.Is(end.err, delivery.ErrSuperseded) {
			t.Errorf("the first ended with %v, want ErrSuperseded", end.err)
		}
		acked := h.background(h.ackRequest("m-1", ackBody(t, okAck("op-1"))))
		(<-second).Confirm(nil)
		wantStatus(t, <-acked, http.StatusOK)
	})
}

func TestDeliverEndsWithItsContext(t *testing.T) {
	tests := map[string]struct {
		host func(h *harness)
		want string
	}{
		"never heard from": {func(*harness) {}, "never heard from since the provider started and did not fetch"},
		"did not report": {func(h *harness) {
			h.poll("m-1", "")
			time.Sleep(10 * time.Second)
		}, "last heard from 10s ago and fetched the command and did not report"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHarness(t)
				ctx, cancel := context.WithCancel(t.Context())
				end := h.deliver(ctx, configure("m-1", "op-1"))
				synctest.Wait()
				tt.host(h)
				cancel()
				err := (<-end).err
				if !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), tt.want) {
					t.Errorf("got %q, want it to say %q", err, tt.want)
				}
				wantStatus(t, h.poll("m-1", ""), http.StatusNoContent)
				wantStatus(t, h.ack("m-1", okAck("op-1")), http.StatusConflict)
			})
		})
	}
}

func TestReportWinsOverEndedContext(t *testing.T) {
	h := newHarness(t, func(o *Options) { o.Limits.ConfirmTimeout = time.Nanosecond })
	o := &offer{id: "op-1", kind: command.Drain, report: make(chan delivery.Report, 1), ended: make(chan error, 1), recorded: make(chan struct{})}
	h.offer("m-1", o)
	wantStatus(t, h.ack("m-1", okAck("op-1")), http.StatusServiceUnavailable)
	r, err := h.giveUp("m-1", o, context.DeadlineExceeded)
	if err != nil || !r.OK {
		t.Errorf("got %+v, %v, want the report", r, err)
	}
}

func TestForgetEndsEverything(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t)
		h.Forget("m-1") // nothing there: nothing happens
		end := h.deliver(t.Context(), configure("m-1", "op-1"))
		synctest.Wait()
		parked := h.background(h.pollRequest("m-2", "&wait=60"))
		synctest.Wait()
		h.Forget("m-1")
		h.Forget("m-2")
		if err := (<-end).err; !errors.Is(err, ErrForgotten) {
			t.Errorf("Deliver ended with %v, want ErrForgotten", err)
		}
		wantStatus(t, <-parked, http.StatusNoContent)
		if len(h.mailboxes) != 0 {
			t.Errorf("%d mailboxes left", len(h.mailboxes))
		}
	})
}

func TestDeliverRefusesInvalidCommands(t *testing.T) {
	h := newHarness(t)
	cmd := configure("m-1", "")
	cmd.Kind = "reboot"
	_, err := h.Deliver(t.Context(), cmd)
	if err == nil || !strings.Contains(err.Error(), "command_id") || !strings.Contains(err.Error(), "reboot") || strings.Contains(err.Error(), blobCanary) {
		t.Errorf("got %v, want every fault and no blob", err)
	}
	cmd = configure("m-1", "op-1")
	cmd.NodeName = strings.Repeat("n", command.MaxCommandBytes)
	if _, err := h.Deliver(t.Context(), cmd); err == nil || !strings.Contains(err.Error(), "limit") {
		t.Errorf("got %v, want the limit", err)
	}
	if len(h.mailboxes) != 0 {
		t.Error("a refused command left a mailbox behind")
	}
}

func TestBlobOfTheContractsSizeFits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t)
		cmd := configure("m-1", "op-1")
		cmd.Blob = make([]byte, command.MaxBlobBytes)
		ctx, cancel := context.WithCancel(t.Context())
		end := h.deliver(ctx, cmd)
		synctest.Wait()
		w := h.poll("m-1", "")
		wantStatus(t, w, http.StatusOK)
		if c, err := command.DecodeCommand(w.Body); err != nil || len(c.Blob) != command.MaxBlobBytes {
			t.Errorf("the host cannot read it: %v", err)
		}
		cancel()
		<-end
	})
}

// An agent that does not know a kind could not even report that it does not.
func TestOldAgentFailsTheCommandItDoesNotKnow(t *testing.T) {
	old := func(r *http.Request) {
		r.Header.Set(command.HeaderKinds, "configure")
		r.Header.Set(command.HeaderVersion, "0.1")
	}
	check := func(t *testing.T, end delivered) {
		t.Helper()
		if end.err != nil || end.OK || !strings.Contains(end.Error, `"0.1"`) || !strings.Contains(end.Error, `"drain"`) {
			t.Errorf("got %+v, want a failure that names version and kind", end)
		}
		end.Confirm(nil)
	}
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t)
		end := h.deliver(t.Context(), drain("m-1", "op-1"))
		synctest.Wait()
		wantStatus(t, h.poll("m-1", "", old), http.StatusNoContent)
		check(t, <-end)

		parked := h.background(h.pollRequest("m-1", "&wait=60", old))
		synctest.Wait()
		check(t, <-h.deliver(t.Context(), drain("m-1", "op-2")))
		end = h.deliver(t.Context(), configure("m-1", "op-3"))
		wantCommand(t, <-parked, "op-3") // the poll stayed for what it can do
		h.Forget("m-1")
		<-end
	})
}

func TestContact(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t)
		wait := func(ctx context.Context, after time.Time) <-chan error {
			done := make(chan error, 1)
			go func() { done <- h.Contact(ctx, "m-1", after) }()
			synctest.Wait()
			return done
		}
		begun := time.Now()
		first, second := wait(t.Context(), begun), wait(t.Context(), begun)
		time.Sleep(time.Minute)
		h.Forget("m-1") // waits on, for the next host
		synctest.Wait()
		h.poll("m-1", "")
		if err := errors.Join(<-first, <-second); err != nil {
			t.Error(err)
		}
		if err := <-wait(t.Context(), begun); err != nil { // heard from already
			t.Error(err)
		}

		later := wait(t.Context(), time.Now().Add(time.Minute))
		h.poll("m-1", "") // too early to count
		synctest.Wait()
		select {
		case err := <-later:
			t.Errorf("ended early: %v", err)
		default:
		}
		time.Sleep(2 * time.Minute)
		h.ack("m-1", okAck("op-0")) // a report is a contact too
		if err := <-later; err != nil {
			t.Error(err)
		}

		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := h.Contact(ctx, "m-2", time.Time{}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v, want the deadline", err)
		}
	})
}
