package channel

import (
	"encoding/base64"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"bigfleet-providers/provider/internal/telemetry"
	"bigfleet-providers/shared/command"
	"bigfleet-providers/shared/token"
)

func TestAuthoriseRefusesAlike(t *testing.T) {
	other, err := token.NewSecret([]byte(strings.Repeat("x", token.MinSecretBytes)))
	if err != nil {
		t.Fatal(err)
	}
	h := newHarness(t)
	good := token.Derive(h.secret, "m-1", life)
	raw, err := base64.StdEncoding.DecodeString(good)
	if err != nil {
		t.Fatal(err)
	}
	flipped := append([]byte(nil), raw...)
	flipped[31] ^= 1
	tests := map[string]struct {
		method, target string
		auth           []string
		reason         string
	}{
		"no token":             {"GET", "/v1/command?machine_id=m-1", nil, reasonMalformed},
		"empty token":          {"GET", "/v1/command?machine_id=m-1", []string{"Bearer "}, reasonBadToken},
		"another scheme":       {"GET", "/v1/command?machine_id=m-1", []string{"Basic " + good}, reasonMalformed},
		"two tokens":           {"GET", "/v1/command?machine_id=m-1", []string{"Bearer " + good, "Bearer " + good}, reasonMalformed},
		"another machine's":    {"GET", "/v1/command?machine_id=m-2", []string{"Bearer " + good}, reasonBadToken},
		"another secret's":     {"GET", "/v1/command?machine_id=m-1", []string{"Bearer " + token.Derive(other, "m-1", life)}, reasonBadToken},
		"last bit wrong":       {"GET", "/v1/command?machine_id=m-1", []string{"Bearer " + base64.StdEncoding.EncodeToString(flipped)}, reasonBadToken},
		"a byte short":         {"GET", "/v1/command?machine_id=m-1", []string{"Bearer " + base64.StdEncoding.EncodeToString(raw[:31])}, reasonBadToken},
		"a byte long":          {"GET", "/v1/command?machine_id=m-1", []string{"Bearer " + base64.StdEncoding.EncodeToString(append(raw[:32:32], 0))}, reasonBadToken},
		"hex":                  {"GET", "/v1/command?machine_id=m-1", []string{"Bearer zz"}, reasonBadToken},
		"very long token":      {"GET", "/v1/command?machine_id=m-1", []string{"Bearer " + strings.Repeat("A", 4000)}, reasonMalformed},
		"unknown machine":      {"GET", "/v1/command?machine_id=m-9", []string{"Bearer " + token.Derive(h.secret, "m-9", life)}, reasonUnknown},
		"no machine":           {"GET", "/v1/command", []string{"Bearer " + token.Derive(h.secret, "", life)}, reasonMalformed},
		"very long machine id": {"GET", "/v1/command?machine_id=" + strings.Repeat("m", 257), []string{"Bearer " + token.Derive(h.secret, strings.Repeat("m", 257), life)}, reasonMalformed},
		"unknown path":         {"GET", "/v2?machine_id=m-1", nil, reasonMalformed},
		"wrong method":         {"DELETE", "/v1/command?machine_id=m-1", nil, reasonMalformed},
		"bad query":            {"GET", "/v1/command?machine_id=m-1&%zz;", nil, reasonMalformed},
		"ack":                  {"POST", "/v1/ack?machine_id=m-1", []string{"Bearer " + token.Derive(h.secret, "m-2", life)}, reasonBadToken},
		"package":              {"GET", "/v1/packages/agent.deb?machine_id=m-1", nil, reasonMalformed},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			h := newHarness(t)
			r := httptest.NewRequest(tt.method, tt.target, nil)
			r.Header["Authorization"] = tt.auth
			w := h.do(r)
			wantStatus(t, w, http.StatusUnauthorized)
			const same = `{"error":"the bearer token is not that of a machine of this provider under the given machine_id"}`
			if w.Body.String() != same {
				t.Errorf("body %q, want the one answer %q", w.Body, same)
			}
			if got := h.count(telemetry.MetricChannelAuthFailures.Name, tt.reason); got != 1 {
				t.Errorf("reason %s counted %v times, want 1; log %s", tt.reason, got, h.log)
			}
			if len(h.mailboxes) != 0 {
				t.Error("an unauthorised request left a mailbox behind")
			}
		})
	}
}

func TestAuthoriseAcceptsAnyAlphabet(t *testing.T) {
	h := newHarness(t, everybody)
	for range 64 { // some of them hold + and /
		id := "m-" + strings.Repeat("y", len(h.mailboxes)+1)
		std := token.Derive(h.secret, id, life)
		url := strings.NewReplacer("+", "-", "/", "_").Replace(std)
		for _, text := range []string{std, url, strings.TrimRight(std, "="), strings.TrimRight(url, "=")} {
			w := h.poll(id, "", func(r *http.Request) { r.Header.Set("Authorization", "bearer "+text) })
			wantStatus(t, w, http.StatusNoContent)
		}
	}
}

func TestRefusalsAreLoggedThinly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t)
		bad := func(r *http.Request) { r.Header.Set("Authorization", "Bearer AAAA") }
		for range 1000 {
			wantStatus(t, h.poll("m-1", "", bad), http.StatusUnauthorized)
		}
		if got := strings.Count(h.log.String(), "refused a request"); got != 1 {
			t.Errorf("%d lines for 1000 refusals in no time, want 1", got)
		}
		time.Sleep(thinInterval)
		h.poll("m-1", "", bad)
		if !strings.Contains(h.log.String(), "count=1000") {
			t.Errorf("the second line does not stand for the thousand before it: %s", h.log)
		}
	})
}

func TestFloodIsThrottled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t)
		var passed, throttled int
		for range 100 {
			switch w := h.poll("m-1", ""); w.Code {
			case http.StatusNoContent:
				passed++
			case http.StatusTooManyRequests:
				throttled++
				if w.Header().Get("Retry-After") == "" {
					t.Error("no Retry-After")
				}
			}
		}
		if passed != h.limits.RequestBurst || throttled != 100-passed {
			t.Errorf("%d passed and %d were throttled, want a burst of %d", passed, throttled, h.limits.RequestBurst)
		}
		if got := h.count(telemetry.MetricChannelThrottled.Name); got != float64(throttled) {
			t.Errorf("counted %v throttled requests, want %d", got, throttled)
		}
		wantStatus(t, h.poll("m-2", ""), http.StatusNoContent) // another machine is not concerned
		time.Sleep(time.Second)
		wantStatus(t, h.poll("m-1", ""), http.StatusNoContent)
	})
}

func TestCommandsBringTheirAllowance(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t)
		for i := range 50 { // configure and drain in turn, faster than any host
			id := "op-" + string(rune('A'+i))
			done := h.background(h.pollRequest("m-1", "&wait=60"))
			synctest.Wait()
			end := h.deliver(t.Context(), drain("m-1", id))
			wantCommand(t, <-done, id)
			acked := h.background(h.ackRequest("m-1", ackBody(t, okAck(id))))
			(<-end).Confirm(nil)
			wantStatus(t, <-acked, http.StatusOK)
		}
	})
}

func TestForgottenWhileAuthorised(t *testing.T) {
	calls := 0
	h := newHarness(t, func(o *Options) {
		o.Life = func(string) (Life, bool) { // leaves the fleet in between
			if calls++; calls > 1 {
				return Life{}, false
			}
			return Life{ID: life}, true
		}
	})
	wantStatus(t, h.poll("m-1", ""), http.StatusUnauthorized)
	if len(h.mailboxes) != 0 {
		t.Error("the mailbox of a machine that left stayed")
	}
}

func TestPanicIsCountedAndNotQuoted(t *testing.T) {
	h := newHarness(t, func(o *Options) {
		o.Life = func(string) (Life, bool) { panic("canary-panic") }
	})
	func() {
		defer func() {
			if err, _ := recover().(error); !errors.Is(err, http.ErrAbortHandler) {
				t.Errorf("panicked with %v, want http.ErrAbortHandler, which net/http does not log", err)
			}
		}()
		h.poll("m-1", "")
	}()
	if got := h.count(telemetry.MetricPanics.Name); got != 1 {
		t.Errorf("counted %v panics, want 1", got)
	}
	if strings.Contains(h.log.String(), "canary-panic") || !strings.Contains(h.log.String(), command.PathCommand) {
		t.Errorf("the log quotes the value or misses the path: %s", h.log)
	}
}
