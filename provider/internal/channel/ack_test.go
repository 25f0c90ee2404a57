package channel

import (
	"context"
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

func TestAckWaitsForTheRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t)
		end := h.deliver(t.Context(), configure("m-1", "op-1"))
		synctest.Wait()
		o := h.mailboxes["m-1"].offered
		acked := h.background(h.ackRequest("m-1", ackBody(t, okAck("op-1"))))
		r := <-end
		if r.err != nil || !r.OK || r.Error != "" {
			t.Errorf("got %+v", r)
		}
		if o.body != nil || o.blob != nil {
			t.Error("a reported command keeps its blob")
		}
		synctest.Wait()
		select {
		case <-acked:
			t.Error("answered before the outcome was on record")
		default:
		}
		r.Confirm(nil)
		r.Confirm(errors.New("a second call changes nothing"))
		wantStatus(t, <-acked, http.StatusOK)
		wantStatus(t, h.ack("m-1", okAck("op-1")), http.StatusOK) // repeated
		if got := h.count(telemetry.MetricChannelAcks.Name, resultRepeated); got != 1 {
			t.Errorf("counted %v repeated reports, want 1", got)
		}
		if got := h.count(telemetry.MetricChannelDelivery.Name, string(command.Configure), outcomeOK); got != 1 {
			t.Errorf("measured %v deliveries, want 1", got)
		}
	})
}

func TestAckOfAFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t)
		end := h.deliver(t.Context(), configure("m-1", "op-1"))
		synctest.Wait()
		failed := okAck("op-1")
		failed.OK = false
		failed.Error = "hook exited 1: " + blobCanary + " " + base64.StdEncoding.EncodeToString([]byte(blobCanary)) + " " + token.Derive(h.secret, "m-1", life)
		acked := h.background(h.ackRequest("m-1", ackBody(t, failed)))
		r := <-end
		r.Confirm(nil)
		wantStatus(t, <-acked, http.StatusOK)
		if want := "hook exited 1: [redacted] [redacted] [redacted]"; r.OK || r.Error != want {
			t.Errorf("got %t %q, want %q", r.OK, r.Error, want)
		}
	})
}

func TestAckAfterRestartIsKnownByTheRecord(t *testing.T) {
	h := newHarness(t)
	h.setSettled("m-1", "op-1")
	wantStatus(t, h.ack("m-1", okAck("op-1")), http.StatusOK)
	wantStatus(t, h.ack("m-2", okAck("op-1")), http.StatusConflict) // another machine's
	wantStatus(t, h.ack("m-1", okAck("op-2")), http.StatusConflict)
}

func TestUnrecordedReportIsRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t)
		end := h.deliver(t.Context(), configure("m-1", "op-1"))
		synctest.Wait()
		acked := h.background(h.ackRequest("m-1", ackBody(t, okAck("op-1"))))
		(<-end).Confirm(errors.New("disk full"))
		w := <-acked
		wantStatus(t, w, http.StatusServiceUnavailable)
		if w.Header().Get("Retry-After") == "" {
			t.Error("no Retry-After")
		}
		// Nobody waits for it: repeat later, and not 409, after which the host
		// would forget its outcome.
		wantStatus(t, h.ack("m-1", okAck("op-1")), http.StatusServiceUnavailable)
		end = h.deliver(t.Context(), configure("m-1", "op-1"))
		synctest.Wait()
		acked = h.background(h.ackRequest("m-1", ackBody(t, okAck("op-1"))))
		(<-end).Confirm(nil)
		wantStatus(t, <-acked, http.StatusOK)
		if !strings.Contains(h.log.String(), "disk full") {
			t.Error("the log does not say why")
		}
	})
}

// A report of an operation that is over must not keep the host from the next.
func TestUnrecordedReportGivesWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t)
		end := h.deliver(t.Context(), configure("m-1", "op-1"))
		synctest.Wait()
		acked := h.background(h.ackRequest("m-1", ackBody(t, okAck("op-1"))))
		(<-end).Confirm(errors.New("gone"))
		<-acked
		end = h.deliver(t.Context(), drain("m-1", "op-2"))
		synctest.Wait()
		wantStatus(t, h.ack("m-1", okAck("op-1")), http.StatusConflict)
		h.Forget("m-1")
		<-end
	})
}

func TestSlowRecordDoesNotHoldTheHost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t)
		end := h.deliver(t.Context(), configure("m-1", "op-1"))
		synctest.Wait()
		begun := time.Now()
		acked := h.background(h.ackRequest("m-1", ackBody(t, okAck("op-1"))))
		r := <-end
		wantStatus(t, <-acked, http.StatusServiceUnavailable)
		if took := time.Since(begun); took != h.limits.ConfirmTimeout {
			t.Errorf("took %s, want %s", took, h.limits.ConfirmTimeout)
		}
		r.Confirm(nil) // at last
		wantStatus(t, h.ack("m-1", okAck("op-1")), http.StatusOK)
	})
}

func TestHungUpReportIsNotTakenForSettled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t)
		end := h.deliver(t.Context(), configure("m-1", "op-1"))
		synctest.Wait()
		hung, hangUp := context.WithCancel(t.Context())
		acked := h.background(h.ackRequest("m-1", ackBody(t, okAck("op-1"))).WithContext(hung))
		r := <-end
		hangUp()
		wantStatus(t, <-acked, http.StatusServiceUnavailable)
		r.Confirm(nil)
	})
}

func TestDuplicateAcksRace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t)
		for range 50 {
			end := h.deliver(t.Context(), configure("m-1", "op-1"))
			synctest.Wait()
			var acks []<-chan *httptest.ResponseRecorder
			for range 4 {
				acks = append(acks, h.background(h.ackRequest("m-1", ackBody(t, okAck("op-1")))))
			}
			r := <-end
			r.Confirm(nil)
			for _, acked := range acks {
				wantStatus(t, <-acked, http.StatusOK)
			}
			time.Sleep(time.Minute) // the rate limit recovers
		}
		if got := h.count(telemetry.MetricChannelDelivery.Name, string(command.Configure), outcomeOK); got != 50 {
			t.Errorf("%v reports of 50 deliveries", got)
		}
		if got := h.count(telemetry.MetricChannelAcks.Name, resultSettled); got != 50 {
			t.Errorf("counted %v first reports, want 50", got)
		}
		if got := h.count(telemetry.MetricChannelAcks.Name, resultRepeated); got != 150 {
			t.Errorf("counted %v repeated reports, want 150", got)
		}
	})
}

func TestAckIsStrict(t *testing.T) {
	good := ackBody(t, okAck("op-1"))
	header := func(key string, values ...string) func(*http.Request) {
		return func(r *http.Request) { r.Header[key] = values }
	}
	tests := map[string]struct {
		body   string
		change func(*http.Request)
		status int
		want   string
	}{
		"accepted":            {body: good, status: 409},
		"charset":             {body: good, change: header("Content-Type", "application/json; charset=utf-8"), status: 409},
		"another charset":     {body: good, change: header("Content-Type", "application/json; charset=latin1"), status: 415, want: "application/json"},
		"another parameter":   {body: good, change: header("Content-Type", "application/json; v=1"), status: 415},
		"form":                {body: good, change: header("Content-Type", "application/x-www-form-urlencoded"), status: 415},
		"no type":             {body: good, change: header("Content-Type"), status: 415},
		"two types":           {body: good, change: header("Content-Type", "application/json", "application/json"), status: 415},
		"compressed":          {body: good, change: header("Content-Encoding", "gzip"), status: 415, want: "content-encoding"},
		"get":                 {change: func(r *http.Request) { r.Method = http.MethodGet }, status: 405, want: "POST"},
		"unknown parameter":   {body: good, change: func(r *http.Request) { r.URL.RawQuery += "&wait=3" }, status: 400},
		"empty":               {status: 400},
		"not JSON":            {body: "ok", status: 400},
		"unknown field":       {body: strings.Replace(good, "{", `{"blob":"x",`, 1), status: 400, want: "unknown field"},
		"trailing data":       {body: good + "{}", status: 400, want: "after"},
		"no command":          {body: `{"ok":true}`, status: 400, want: "command_id: missing"},
		"failure, no reason":  {body: `{"command_id":"op-1","ok":false}`, status: 400, want: "error: missing"},
		"announced too large": {body: strings.Repeat(" ", command.MaxAckBytes+1), status: 413, want: "too large"},
		"of unknown length":   {change: func(r *http.Request) { r.ContentLength = -1 }, status: 411, want: "content-length"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			h := newHarness(t)
			w := h.do(h.ackRequest("m-1", tt.body, func(r *http.Request) {
				if tt.change != nil {
					tt.change(r)
				}
			}))
			wantStatus(t, w, tt.status)
			if !strings.Contains(w.Body.String(), tt.want) {
				t.Errorf("body %q does not say %q", w.Body, tt.want)
			}
		})
	}
}
