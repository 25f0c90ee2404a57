package channel

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"bigfleet-providers/provider/internal/telemetry"
	"bigfleet-providers/shared/command"
	"bigfleet-providers/shared/token"
)

// bearing presents another token than the machine's present one.
func bearing(presented string) func(*http.Request) {
	return func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+presented) }
}

// wantNoContact fails if a Contact that waits for the machine's host has ended.
func wantNoContact(t *testing.T, contact <-chan error) {
	t.Helper()
	synctest.Wait()
	select {
	case err := <-contact:
		t.Errorf("it counts as contact: %v", err)
	default:
	}
}

func (h *harness) contact(ctx context.Context, machineID string, after time.Time) <-chan error {
	done := make(chan error, 1)
	go func() { done <- h.Contact(ctx, machineID, after) }()
	return done
}

// TestFormerHostIsRefused: what a host of a machine's earlier life sends is refused
// from the moment at which that life ends, whatever the machine does since and
// whichever of its tokens it sends, and changes nothing for the host of the next.
func TestFormerHostIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		before, err := token.NewSecret([]byte("the secret before: 0123456789abcdef0123456789abcdef"))
		if err != nil {
			t.Fatal(err)
		}
		h := newHarness(t, withLocks(newLocks()), func(o *Options) { o.Previous = before; o.Limits.RequestBurst = 1000 })
		former := func(r *http.Request) { from("former")(r); r.Header.Set(command.HeaderBoot, "former") }
		renewed := h.poll("m-1", "", former, bearing(token.Derive(before, "m-1", life))).Header().Get(command.HeaderToken)
		if renewed != token.Derive(h.secret, "m-1", life) {
			t.Fatalf("renewed to %q: the test proves nothing", renewed)
		}
		end := h.deliver(t.Context(), drain("m-1", "drain-1"))
		synctest.Wait()
		wantCommand(t, h.poll("m-1", "", former), "drain-1")
		reported := h.background(h.ackRequest("m-1", ackBody(t, okAck("drain-1")), former))
		(<-end).Confirm(nil)
		wantStatus(t, <-reported, http.StatusOK)
		h.setSettled("m-1", "drain-1")
		parked := h.background(h.pollRequest("m-1", "&wait=60", former))
		synctest.Wait()

		requests := func(what string, reason string) {
			t.Helper()
			was := h.count(telemetry.MetricChannelAuthFailures.Name, reason)
			sent := 0.0
			for _, presented := range []string{
				renewed, token.Derive(before, "m-1", life), token.DerivePlain(h.secret, "m-1"), token.DerivePlain(before, "m-1"), token.Derive(h.secret, "m-1", ""),
			} {
				for _, host := range []string{"former", "", "new"} {
					as := func(r *http.Request) { former(r); r.Header.Set(command.HeaderHost, host); bearing(presented)(r) }
					for path, w := range map[string]*httptest.ResponseRecorder{
						"poll": h.poll("m-1", "", as), "long poll": h.poll("m-1", "&wait=60", as),
						"report":  h.do(h.ackRequest("m-1", ackBody(t, okAck("drain-1")), as)),
						"package": h.fetch("/v1/packages/agent.deb?machine_id=m-1", as),
					} {
						sent++
						if w.Code != http.StatusUnauthorized || w.Header().Get(command.HeaderToken) != "" || w.Header().Get("Connection") != "close" {
							t.Errorf("%s, %s: %d %v, want 401", what, path, w.Code, w.Header())
						}
					}
				}
			}
			if got := h.count(telemetry.MetricChannelAuthFailures.Name, reason) - was; got != sent {
				t.Errorf("%s: %v of %v refusals have the reason %s", what, got, sent, reason)
			}
		}

		h.live("m-1", Life{}) // a Delete was accepted
		h.Forget("m-1")
		wantStatus(t, <-parked, http.StatusUnauthorized)
		requests("while it is deleted", reasonNoHost)
		if log := h.log.String(); strings.Contains(log, "level=WARN") || !strings.Contains(log, "was deleted") {
			t.Errorf("what each Delete causes is a warning, or is not said: %s", log)
		}
		h.live("m-1", Life{ID: "op-2"})
		contact := h.contact(t.Context(), "m-1", time.Now().Add(-time.Nanosecond))
		requests("before the new host", reasonBadToken)
		wantNoContact(t, contact)
		if got := h.locks.LockedTo("m-1"); got != digest("former") { // memoryLocks do not know of lives
			t.Errorf("tied to %q", got)
		}
		h.locks.(*memoryLocks).unlock("m-1")

		fresh := func(r *http.Request) {
			from("new")(r)
			bearing(token.Derive(before, "m-1", "op-2"))(r)
		}
		parked = h.background(h.pollRequest("m-1", "&wait=60", fresh))
		if err := <-contact; err != nil {
			t.Error(err)
		}
		requests("while the new host polls", reasonBadToken)
		h.deliver(t.Context(), configure("m-1", "configure-2"))
		w := <-parked
		wantCommand(t, w, "configure-2")
		if got := w.Header().Get(command.HeaderToken); got != token.Derive(h.secret, "m-1", "op-2") {
			t.Errorf("the new host's token is renewed to %q", got)
		}
		requests("after it", reasonBadToken)
		if v := h.Hosts(); len(v) != 1 || v[0].Stranger != nil {
			t.Errorf("the former host is a stranger of the new life: %+v", v)
		}
		h.leave("m-1")
		h.Forget("m-1")
		requests("when the machine is gone", reasonUnknown)
		if len(h.mailboxes) != 0 {
			t.Error("a mailbox is left")
		}
	})
}

// turningLocks end the life of whatever machine they are asked about, between the
// authorisation of a request and what it changes.
type turningLocks struct {
	*memoryLocks
	onLook, onLock func()
}

func (l *turningLocks) LockedTo(machineID string) string {
	if l.onLook != nil {
		l.onLook()
		l.onLook = nil
	}
	return l.memoryLocks.LockedTo(machineID)
}

func (l *turningLocks) Lock(ctx context.Context, machineID, life, digest string) (string, error) {
	if l.onLock != nil {
		l.onLock()
		return "", nil // the life is not the machine's any more
	}
	return l.memoryLocks.Lock(ctx, machineID, life, digest)
}

// TestLifeEndsUnderARequest: a request that was authorised in one life and goes on
// in the next is refused, and leaves no trace there.
func TestLifeEndsUnderARequest(t *testing.T) {
	for _, next := range []Life{{}, {ID: "op-2"}, {ID: "op-2", Plain: true}} {
		for name, at := range map[string]func(*turningLocks, func()){
			"at the look for its lock": func(l *turningLocks, turn func()) { l.onLook = turn },
			"while it is tied":         func(l *turningLocks, turn func()) { l.onLock = turn },
			"after another host was tied": func(l *turningLocks, turn func()) {
				l.onLook = func() { turn(); l.held["m-1"] = digest("new") }
			},
		} {
			for path, send := range map[string]func(*harness) *httptest.ResponseRecorder{
				"poll":      func(h *harness) *httptest.ResponseRecorder { return h.poll("m-1", "", from("former")) },
				"long poll": func(h *harness) *httptest.ResponseRecorder { return h.poll("m-1", "&wait=1", from("former")) },
				"report": func(h *harness) *httptest.ResponseRecorder {
					return h.do(h.ackRequest("m-1", ackBody(t, okAck("drain-1")), from("former")))
				},
			} {
				t.Run(name+"/"+path+"/"+next.ID, func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						locks := &turningLocks{memoryLocks: newLocks()}
						h := newHarness(t, withLocks(locks))
						h.setSettled("m-1", "drain-1")
						at(locks, func() { h.live("m-1", next); h.Forget("m-1") })
						w := send(h)
						wantStatus(t, w, http.StatusUnauthorized)
						if _, heard := h.LastContact("m-1"); heard || h.HeardWithin("m-1", time.Hour) {
							t.Error("it counts as heard")
						}
						if v := h.Hosts(); len(v) != 0 {
							t.Errorf("it is a host of the new life: %+v", v)
						}
					})
				})
			}
		}
	}
}

// TestNextLifeFindsNothingOfTheLast: also when nobody said that the host was gone,
// what it said, took and parked is not the next host's.
func TestNextLifeFindsNothingOfTheLast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t)
		wantStatus(t, h.poll("m-1", ""), http.StatusNoContent)
		parked := h.background(h.pollRequest("m-1", "&wait=60"))
		synctest.Wait()
		h.live("m-1", Life{ID: "op-2"})
		if _, heard := h.LastContact("m-1"); heard || h.HeardWithin("m-1", time.Hour) {
			t.Error("the next life's host was heard from")
		}
		end := h.deliver(t.Context(), configure("m-1", "configure-2"))
		wantStatus(t, <-parked, http.StatusUnauthorized)
		wantCommand(t, h.poll("m-1", "", bearing(token.Derive(h.secret, "m-1", "op-2"))), "configure-2")
		h.live("m-1", Life{})
		h.Forget("m-1")
		if err := (<-end).err; !errors.Is(err, ErrForgotten) {
			t.Errorf("the command of a life that is over: %v", err)
		}
		for what, err := range map[string]error{
			"a contact": <-h.contact(t.Context(), "m-1", time.Now()), "a command": (<-h.deliver(t.Context(), configure("m-1", "configure-3"))).err,
		} {
			if !errors.Is(err, ErrForgotten) {
				t.Errorf("%s without a host: %v", what, err)
			}
		}
	})
}

// TestPlainToken: of a life that began under an earlier release, or by hand, the
// token without a life is accepted beside the other, and renewed in kind.
func TestPlainToken(t *testing.T) {
	before, err := token.NewSecret([]byte("the secret before: 0123456789abcdef0123456789abcdef"))
	if err != nil {
		t.Fatal(err)
	}
	h := newHarness(t, withLocks(newLocks()), func(o *Options) { o.Previous = before; o.Limits.RequestBurst = 1000 })
	plain, bound := token.DerivePlain(h.secret, "m-1"), token.Derive(h.secret, "m-1", life)
	plainBefore, boundBefore := token.DerivePlain(before, "m-1"), token.Derive(before, "m-1", life)
	for _, tt := range []struct {
		plain              bool
		presented, renewed string
		status             int
	}{
		{true, plain, "", http.StatusNoContent},
		{true, bound, "", http.StatusNoContent},
		{true, plainBefore, plain, http.StatusNoContent},
		{true, boundBefore, bound, http.StatusNoContent},
		{false, plain, "", http.StatusUnauthorized},
		{false, bound, "", http.StatusNoContent},
		{false, plainBefore, "", http.StatusUnauthorized},
		{false, boundBefore, bound, http.StatusNoContent},
	} {
		h.live("m-1", Life{ID: life, Plain: tt.plain})
		w := h.poll("m-1", "", from("one"), bearing(tt.presented))
		if got := w.Header().Get(command.HeaderToken); w.Code != tt.status || got != tt.renewed {
			t.Errorf("plain accepted %t, token %s: status %d, renewed to %q; want %d and %q", tt.plain, tt.presented, w.Code, got, tt.status, tt.renewed)
		}
	}
}

// TestTokensOfTheHostAreRedacted: whichever of them a host has.
func TestTokensOfTheHostAreRedacted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		before, err := token.NewSecret([]byte("the secret before: 0123456789abcdef0123456789abcdef"))
		if err != nil {
			t.Fatal(err)
		}
		h := newHarness(t, func(o *Options) { o.Previous = before })
		end := h.deliver(t.Context(), drain("m-1", "drain-1"))
		synctest.Wait()
		failed := okAck("drain-1")
		tokens := []string{token.Derive(h.secret, "m-1", life), token.DerivePlain(h.secret, "m-1"), token.Derive(before, "m-1", life), token.DerivePlain(before, "m-1")}
		failed.OK, failed.Error = false, "said "+strings.Join(tokens, " and ")
		answered := h.background(h.ackRequest("m-1", ackBody(t, failed)))
		report := <-end
		report.Confirm(nil)
		<-answered
		if slices.ContainsFunc(tokens, func(s string) bool { return strings.Contains(report.Error, s) }) {
			t.Errorf("the report says %q", report.Error)
		}
	})
}

// TestHeldPollOfAFormerHost: a poll whose connection was taken over is refused as
// any other, is given no renewed token, and its connection ends.
func TestHeldPollOfAFormerHost(t *testing.T) {
	before, err := token.NewSecret([]byte("the secret before: 0123456789abcdef0123456789abcdef"))
	if err != nil {
		t.Fatal(err)
	}
	l := newLive(t, withLocks(newLocks()), func(o *Options) { o.Previous = before })
	answer := make(chan *http.Response, 1)
	c := l.client()
	r := l.request(http.MethodGet, "m-1", command.PathCommand, "&wait=60", nil)
	from("former")(r)
	bearing(token.Derive(before, "m-1", life))(r)
	go func() {
		resp, err := c.Do(r)
		if err != nil {
			t.Error(err)
			close(answer)
			return
		}
		resp.Body.Close()
		answer <- resp
	}()
	eventually(t, "the poll is parked", func() bool {
		l.Server.mu.Lock()
		defer l.Server.mu.Unlock()
		return len(l.holding) == 1
	})
	l.live("m-1", Life{ID: "op-2"})
	l.Forget("m-1")
	resp := <-answer
	if resp == nil {
		return
	}
	if resp.StatusCode != http.StatusUnauthorized || !resp.Close || resp.Header.Get(command.HeaderToken) != "" || resp.Header.Get("WWW-Authenticate") != "Bearer" {
		t.Errorf("the parked poll got %d, %v, close %t", resp.StatusCode, resp.Header, resp.Close)
	}
	if got := l.count(telemetry.MetricChannelAuthFailures.Name, reasonBadToken); got != 1 {
		t.Errorf("counted %v times", got)
	}
}
