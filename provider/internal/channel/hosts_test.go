package channel

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"bigfleet-providers/provider/internal/telemetry"
	"bigfleet-providers/shared/command"
	"bigfleet-providers/shared/token"
)

// memoryLocks are Locks that a restart of the channel does not lose.
type memoryLocks struct {
	mu    sync.Mutex
	held  map[string]string
	fault error
}

func (l *memoryLocks) LockedTo(machineID string) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.held[machineID]
}

func (l *memoryLocks) Lock(_ context.Context, machineID, _, digest string) (string, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.fault != nil {
		return "", l.fault
	}
	if l.held[machineID] == "" {
		l.held[machineID] = digest
	}
	return l.held[machineID], nil
}

func (l *memoryLocks) unlock(machineID string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.held, machineID)
}

func newLocks() *memoryLocks { return &memoryLocks{held: map[string]string{}} }

func withLocks(l Locks) func(*Options) { return func(o *Options) { o.Locks = l } }

func from(hostID string) func(*http.Request) {
	return func(r *http.Request) {
		if hostID != "" {
			r.Header.Set(command.HeaderHost, hostID)
		}
	}
}

// TestSecondHostIsRefused: the token works for the host that used it first, over
// a restart of the provider, and for no other.
func TestSecondHostIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks := newLocks()
		h := newHarness(t, withLocks(locks))
		wantStatus(t, h.poll("m-1", "", from("host-one")), http.StatusNoContent)
		seen, _ := h.LastContact("m-1")
		time.Sleep(time.Second)
		report := h.deliver(t.Context(), configure("m-1", "op-1"))
		synctest.Wait()
		for name, id := range map[string]string{"another id": "host-two", "none": ""} {
			w := h.poll("m-1", "&wait=30", from(id))
			wantStatus(t, w, http.StatusForbidden)
			if body := w.Body.String(); strings.Contains(body, "op-1") || strings.Contains(body, blobCanary) || !strings.Contains(body, "capacityctl host unlock") {
				t.Errorf("%s: body %q", name, body)
			}
			wantStatus(t, h.do(h.ackRequest("m-1", ackBody(t, okAck("op-1")), from(id))), http.StatusForbidden)
		}
		if now, _ := h.LastContact("m-1"); now.At != seen.At {
			t.Error("a second host counts as the machine's")
		}
		if got := h.count(telemetry.MetricChannelClones.Name); got != 4 {
			t.Errorf("%v refusals counted, want 4", got)
		}
		if got := h.count(telemetry.MetricChannelContested.Name); got != 1 {
			t.Errorf("%v contested machines, want 1", got)
		}
		log := h.log.String()
		if got := strings.Count(log, `level=WARN msg="refused a second host`); got != 1 {
			t.Errorf("%d warnings in ten seconds, want 1", got)
		}
		if strings.Contains(log+h.metricsText(), "host-one") || strings.Contains(log, "host-two") {
			t.Error("the log holds a host's id, which is a secret of its")
		}
		views := h.Hosts()
		if len(views) != 1 || views[0].LockedTo != shorten(digest("host-one")) || views[0].Stranger == nil || views[0].Stranger.Count != 4 {
			t.Errorf("Hosts: %+v", views)
		}

		// The next process knows.
		again := newHarness(t, withLocks(locks))
		wantStatus(t, again.poll("m-1", "", from("host-two")), http.StatusForbidden)
		wantStatus(t, again.poll("m-1", "", from("host-one")), http.StatusNoContent)

		// The operator says otherwise. What the first host took stays with it.
		wantCommand(t, h.poll("m-1", "", from("host-one")), "op-1")
		locks.unlock("m-1")
		h.Unlocked("m-1")
		wantStatus(t, h.poll("m-1", "", from("host-two")), http.StatusNoContent)
		wantStatus(t, h.poll("m-1", "", from("host-one")), http.StatusForbidden)
		if !strings.Contains(h.log.String(), "a command is kept from a host") {
			t.Error("it is not said why the second host does not get the command")
		}
		if got := h.count(telemetry.MetricChannelContested.Name); got != 1 {
			t.Errorf("%v contested machines, want 1", got)
		}
		h.Forget("m-1")
		if d := <-report; !errors.Is(d.err, ErrForgotten) {
			t.Errorf("Deliver: %v", d.err)
		}
		if got := h.count(telemetry.MetricChannelContested.Name); got != 0 {
			t.Errorf("%v contested machines after Forget, want 0", got)
		}
	})
}

// TestSecondHostTakesNothingFromTheFirst: neither its rate nor its parked poll.
func TestSecondHostTakesNothingFromTheFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, withLocks(newLocks()))
		wantStatus(t, h.poll("m-1", "", from("host-one")), http.StatusNoContent)
		parked := h.background(h.pollRequest("m-1", "&wait=60", from("host-one")))
		synctest.Wait()
		codes := map[int]int{}
		for range 200 {
			codes[h.poll("m-1", "&wait=60", from("host-two")).Code]++
		}
		if codes[http.StatusForbidden] != 10 || codes[http.StatusTooManyRequests] != 190 {
			t.Errorf("the second host's flood got %v", codes)
		}
		h.deliver(t.Context(), configure("m-1", "op-1"))
		wantCommand(t, <-parked, "op-1")
		h.Forget("m-1")
	})
}

// TestHostThatIsNotRecordedIsNotServed: what could not be made durable does not
// count.
func TestHostThatIsNotRecordedIsNotServed(t *testing.T) {
	locks := newLocks()
	locks.fault = errors.New("no space left")
	h := newHarness(t, withLocks(locks))
	w := h.poll("m-1", "", from("host-one"))
	wantStatus(t, w, http.StatusServiceUnavailable)
	if w.Header().Get("Retry-After") == "" {
		t.Error("no Retry-After")
	}
	if _, ok := h.LastContact("m-1"); ok {
		t.Error("it counts as heard")
	}
}

// TestBlobGoesToOneHost: also when no token is tied to a host, a command that
// was taken is not given to a host that states another id.
func TestBlobGoesToOneHost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t) // ties nothing
		h.deliver(t.Context(), configure("m-1", "op-1"))
		synctest.Wait()
		wantCommand(t, h.poll("m-1", "", from("one")), "op-1")
		wantStatus(t, h.poll("m-1", "", from("two")), http.StatusNoContent)
		wantStatus(t, h.poll("m-1", ""), http.StatusNoContent)
		wantCommand(t, h.poll("m-1", "", from("one")), "op-1") // after a reboot, say
		h.Forget("m-1")
	})
}

// TestCloneOfTheDisk: two hosts with one id. The one that came second gets
// nothing, also while the first waits for a command.
func TestCloneOfTheDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, withLocks(newLocks()))
		boot := func(id string) func(*http.Request) {
			return func(r *http.Request) { from("one")(r); r.Header.Set(command.HeaderBoot, id) }
		}
		wantStatus(t, h.poll("m-1", "", boot("a")), http.StatusNoContent)
		parked := h.background(h.pollRequest("m-1", "&wait=60", boot("a")))
		synctest.Wait()
		h.deliver(t.Context(), drain("m-1", "op-0"))
		wantCommand(t, <-parked, "op-0")
		wantStatus(t, h.do(h.ackRequest("m-1", ackBody(t, okAck("op-0")), boot("a"))), http.StatusServiceUnavailable) // nobody records it here
		parked = h.background(h.pollRequest("m-1", "&wait=60", boot("a")))
		synctest.Wait()

		w := h.poll("m-1", "", boot("b")) // a reboot whose connection lingers, or a clone
		wantStatus(t, w, http.StatusServiceUnavailable)
		if w.Header().Get("Retry-After") != "10" {
			t.Errorf("Retry-After %q", w.Header().Get("Retry-After"))
		}
		wantStatus(t, <-parked, http.StatusNoContent) // so that it shows whether it is there
		parked = h.background(h.pollRequest("m-1", "&wait=60", boot("a")))
		time.Sleep(10 * time.Second)
		wantStatus(t, h.poll("m-1", "", boot("b")), http.StatusForbidden)
		h.deliver(t.Context(), configure("m-1", "op-1"))
		wantCommand(t, <-parked, "op-1")
		wantStatus(t, h.poll("m-1", "", boot("b")), http.StatusForbidden)
		h.Forget("m-1")
	})
}

// TestPreviousSecret: during a rollout both tokens work, and a host that the
// token is tied to is given the new one. Whoever merely knows the old secret is
// given nothing.
func TestPreviousSecret(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		old, err := token.NewSecret([]byte("the secret before: 0123456789abcdef0123456789abcdef"))
		if err != nil {
			t.Fatal(err)
		}
		h := newHarness(t, withLocks(newLocks()), func(o *Options) { o.Previous = old })
		before := func(id string) func(*http.Request) {
			return func(r *http.Request) {
				from("one")(r)
				r.Header.Set("Authorization", "Bearer "+token.Derive(old, id, life))
			}
		}
		w := h.poll("m-1", "", before("m-1"))
		wantStatus(t, w, http.StatusNoContent)
		if got := w.Header().Get(command.HeaderToken); got != token.Derive(h.secret, "m-1", life) {
			t.Errorf("the host is given %q", got)
		}
		if got := h.count(telemetry.MetricChannelPreviousSecret.Name); got != 1 || !h.Hosts()[0].PreviousSecret {
			t.Errorf("%v machines use the previous secret, want 1; %+v", got, h.Hosts())
		}
		w = h.poll("m-1", "", from("one"))
		wantStatus(t, w, http.StatusNoContent)
		if w.Header().Get(command.HeaderToken) != "" || h.count(telemetry.MetricChannelPreviousSecret.Name) != 0 {
			t.Error("a host that has the new token is given it again, or still counted")
		}
		if !strings.Contains(h.log.String(), "uses a token of the present bootstrap secret now") {
			t.Error("the change is not logged")
		}
		// Known to an attacker: the secret, not the host's id.
		w = h.poll("m-1", "", before("m-1"), func(r *http.Request) { r.Header.Set(command.HeaderHost, "attacker") })
		wantStatus(t, w, http.StatusForbidden)
		if w.Header().Get(command.HeaderToken) != "" {
			t.Error("a second host is given the token")
		}
		w = h.poll("m-2", "", before("m-2"), func(r *http.Request) { r.Header.Del(command.HeaderHost) })
		wantStatus(t, w, http.StatusNoContent)
		if w.Header().Get(command.HeaderToken) != "" {
			t.Error("a host that proves nothing is given the token")
		}
		if got := h.count(telemetry.MetricChannelPreviousSecret.Name); got != 1 {
			t.Errorf("%v machines use the previous secret, want 1", got)
		}
		h.Forget("m-2")
		if got := h.count(telemetry.MetricChannelPreviousSecret.Name); got != 0 {
			t.Errorf("%v machines use the previous secret after Forget, want 0", got)
		}
		other := newHarness(t) // the rollout is over
		wantStatus(t, other.poll("m-1", "", before("m-1")), http.StatusUnauthorized)
	})
}
