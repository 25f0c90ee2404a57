package channel

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"bigfleet-providers/provider/internal/telemetry"
	"bigfleet-providers/shared/command"
)

func TestPollWithoutWaitAnswersAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t)
		begun := time.Now()
		for _, query := range []string{"", "&wait=0"} {
			w := h.poll("m-1", query)
			wantStatus(t, w, http.StatusNoContent)
			if w.Body.Len() != 0 {
				t.Errorf("204 with a body: %q", w.Body)
			}
		}
		if took := time.Since(begun); took != 0 {
			t.Errorf("took %s", took)
		}
	})
}

func TestPendingCommandIsGivenUntilReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t)
		end := h.deliver(t.Context(), configure("m-1", "op-1"))
		synctest.Wait()
		for range 3 { // a host that lost the answer asks again
			wantCommand(t, h.poll("m-1", "&wait=60"), "op-1")
		}
		wantStatus(t, h.poll("m-2", ""), http.StatusNoContent)
		acked := h.background(h.ackRequest("m-1", ackBody(t, okAck("op-1"))))
		r := <-end
		// The report is in, though not on record yet: nobody gets the blob now.
		wantStatus(t, h.poll("m-1", ""), http.StatusNoContent)
		r.Confirm(nil)
		wantStatus(t, <-acked, http.StatusOK)
		wantStatus(t, h.poll("m-1", ""), http.StatusNoContent)
		if got := strings.Count(h.log.String(), "gave a host its command"); got != 1 {
			t.Errorf("%d lines about the hand-over, want 1", got)
		}
	})
}

// TestHostThatHasTheCommandWaitsForAnother: the blob goes out once to a host
// that says what it works on, and a newer command still reaches it at once.
func TestHostThatHasTheCommandWaitsForAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t)
		first := h.deliver(t.Context(), configure("m-1", "op-1"))
		synctest.Wait()
		has := func(id string) func(*http.Request) {
			return func(r *http.Request) { r.Header.Set(command.HeaderHave, id) }
		}
		wantCommand(t, h.poll("m-1", "", has("")), "op-1")
		wantStatus(t, h.poll("m-1", "", has("op-1")), http.StatusNoContent)
		wantCommand(t, h.poll("m-1", "", has("op-0")), "op-1")
		parked := h.background(h.pollRequest("m-1", "&wait=60", has("op-1")))
		time.Sleep(time.Second)
		second := h.deliver(t.Context(), configure("m-1", "op-2"))
		wantCommand(t, <-parked, "op-2")
		if r := <-first; r.err == nil {
			t.Error("the superseded command was reported on")
		}
		h.Forget("m-1")
		<-second
	})
}

func TestParkedPollWakesAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t)
		done := h.background(h.pollRequest("m-1", "&wait=60"))
		time.Sleep(20 * time.Second)
		if got := h.count(telemetry.MetricChannelParked.Name); got != 1 {
			t.Errorf("%v polls parked, want 1", got)
		}
		offered := time.Now()
		ctx, cancel := context.WithCancel(t.Context())
		end := h.deliver(ctx, configure("m-1", "op-1"))
		wantCommand(t, <-done, "op-1")
		if took := time.Since(offered); took != 0 {
			t.Errorf("the command took %s to the host", took)
		}
		if got := h.count(telemetry.MetricChannelParked.Name); got != 0 {
			t.Errorf("%v polls parked, want 0", got)
		}
		if got := h.count(telemetry.MetricChannelHandover.Name, string(command.Configure)); got != 1 {
			t.Errorf("%v hand-overs measured, want 1", got)
		}
		cancel()
		<-end
	})
}

func TestWaitIsCutAndSpread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, everybody)
		begun := time.Now()
		var ends []<-chan time.Duration
		for i := range 200 {
			end := make(chan time.Duration, 1)
			ends = append(ends, end)
			go func() {
				wantStatus(t, h.poll(fmt.Sprintf("m-%d", i), "&wait=3600"), http.StatusNoContent)
				end <- time.Since(begun)
			}()
		}
		seen := map[time.Duration]bool{}
		for _, end := range ends {
			took := <-end
			if took > command.MaxWait || took < command.MaxWait*8/10 {
				t.Errorf("a poll took %s, want 48 s to 60 s", took)
			}
			seen[took] = true
		}
		if len(seen) < 150 {
			t.Errorf("200 polls that began together ended at %d moments only", len(seen))
		}
	})
}

func TestNewerPollTakesOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t)
		older := h.background(h.pollRequest("m-1", "&wait=60"))
		synctest.Wait()
		newer := h.background(h.pollRequest("m-1", "&wait=60"))
		wantStatus(t, <-older, http.StatusNoContent)
		synctest.Wait()
		if got := h.count(telemetry.MetricChannelPolls.Name, resultTakenOver); got != 1 {
			t.Errorf("counted %v polls taken over, want 1", got)
		}
		ctx, cancel := context.WithCancel(t.Context())
		end := h.deliver(ctx, configure("m-1", "op-1"))
		wantCommand(t, <-newer, "op-1")
		cancel()
		<-end
	})
}

// TestOvertakenPollTakesNothingOver: a host gives its poll up to report, and
// polls again; the old poll may be served last. Were the new one ended for it,
// the host would take us for a provider that parks no polls, and pause.
func TestOvertakenPollTakesNothingOver(t *testing.T) {
	for name, overtaken := range map[string]func(*http.Request) *http.Request{
		"its end was seen": func(r *http.Request) *http.Request {
			ctx, cancel := context.WithCancel(r.Context())
			cancel()
			return r.WithContext(ctx)
		},
		"it names a command that was reported": func(r *http.Request) *http.Request {
			r.Header.Set(command.HeaderHave, "op-1")
			return r
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHarness(t)
				end := h.deliver(t.Context(), configure("m-1", "op-1"))
				synctest.Wait()
				wantCommand(t, h.poll("m-1", "&wait=60"), "op-1")
				acked := h.background(h.ackRequest("m-1", ackBody(t, okAck("op-1"))))
				(<-end).Confirm(nil)
				wantStatus(t, <-acked, http.StatusOK)

				current := h.background(h.pollRequest("m-1", "&wait=60"))
				synctest.Wait()
				wantStatus(t, h.do(overtaken(h.pollRequest("m-1", "&wait=60"))), http.StatusNoContent)
				next := h.deliver(t.Context(), drain("m-1", "op-2"))
				wantCommand(t, <-current, "op-2")
				h.Forget("m-1")
				<-next
			})
		})
	}
}

func TestHungUpPollLeavesTheCommand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t)
		hung, hangUp := context.WithCancel(t.Context())
		done := h.background(h.pollRequest("m-1", "&wait=60").WithContext(hung))
		synctest.Wait()
		hangUp()
		wantStatus(t, <-done, http.StatusServiceUnavailable)
		ctx, cancel := context.WithCancel(t.Context())
		end := h.deliver(ctx, configure("m-1", "op-1"))
		synctest.Wait()
		wantCommand(t, h.poll("m-1", "&wait=60"), "op-1")
		cancel()
		<-end
		if got := h.count(telemetry.MetricChannelPolls.Name, resultHangup); got != 1 {
			t.Errorf("counted %v hang-ups, want 1", got)
		}
	})
}

func TestPollIsStrict(t *testing.T) {
	tests := map[string]struct {
		query  string
		change func(*http.Request)
		status int
		want   string // in the body
	}{
		"unknown parameter":  {query: "&colour=red", status: 400, want: "parameter"},
		"repeated wait":      {query: "&wait=1&wait=2", status: 400, want: "wait: given 2 times"},
		"repeated machine":   {query: "&machine_id=m-2", status: 400, want: "machine_id: given 2 times"},
		"negative wait":      {query: "&wait=-1", status: 400, want: "wait: want whole seconds, at most 60"},
		"fraction":           {query: "&wait=1.5", status: 400, want: "wait"},
		"duration":           {query: "&wait=1s", status: 400, want: "wait"},
		"empty wait":         {query: "&wait=", status: 400, want: "wait"},
		"overflow":           {query: "&wait=99999999999999999999", status: 400, want: "wait"},
		"malformed":          {query: "&%zz", status: 400, want: "malformed"},
		"semicolon":          {query: "&a;b", status: 400, want: "malformed"},
		"post":               {change: func(r *http.Request) { r.Method = http.MethodPost }, status: 405, want: "GET"},
		"head":               {change: func(r *http.Request) { r.Method = http.MethodHead }, status: 405},
		"body":               {change: func(r *http.Request) { r.ContentLength = 3 }, status: 400, want: "body"},
		"body of any length": {change: func(r *http.Request) { r.ContentLength = -1 }, status: 400, want: "body"},
		"trailing slash":     {change: func(r *http.Request) { r.URL.Path += "/" }, status: 404, want: command.PathCommand},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			h := newHarness(t)
			w := h.poll("m-1", tt.query, func(r *http.Request) {
				if tt.change != nil {
					tt.change(r)
				}
			})
			wantStatus(t, w, tt.status)
			if !strings.Contains(w.Body.String(), tt.want) {
				t.Errorf("body %q does not say %q", w.Body, tt.want)
			}
			if tt.status == 405 && w.Header().Get("Allow") != http.MethodGet {
				t.Errorf("Allow %q", w.Header().Get("Allow"))
			}
		})
	}
}

func TestReleaseAnswersEveryPoll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, everybody)
		var polls []<-chan int
		for i := range 500 {
			done := make(chan int, 1)
			polls = append(polls, done)
			go func() {
				w := h.poll(fmt.Sprintf("m-%d", i), "&wait=60")
				if w.Header().Get("Retry-After") == "" {
					t.Error("no Retry-After")
				}
				done <- w.Code
			}()
		}
		synctest.Wait()
		begun := time.Now()
		h.Release()
		h.Release()
		for _, done := range polls {
			if code := <-done; code != http.StatusServiceUnavailable {
				t.Errorf("status %d, want 503", code)
			}
		}
		if took := time.Since(begun); took != 0 {
			t.Errorf("took %s", took)
		}
		wantStatus(t, h.poll("m-1", "&wait=60"), http.StatusServiceUnavailable)
		wantStatus(t, h.ack("m-1", okAck("op-1")), http.StatusConflict) // reports are still judged
		if got := h.count(telemetry.MetricChannelParked.Name); got != 0 {
			t.Errorf("%v polls parked, want 0", got)
		}
	})
}

func TestSightings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t)
		if _, ok := h.LastContact("m-1"); ok {
			t.Error("a contact before the first")
		}
		h.poll("m-1", "", func(r *http.Request) {
			r.Header.Set(command.HeaderVersion, "1.2.3")
			r.Header.Set(command.HeaderKinds, "configure, drain,")
			r.Header.Set(command.HeaderBoot, strings.Repeat("b", maxBootBytes+1))
		})
		got, ok := h.LastContact("m-1")
		if !ok || got.Version != "1.2.3" || strings.Join(got.Kinds, "|") != "configure|drain" || got.Boot != "" || !got.At.Equal(time.Now()) {
			t.Errorf("got %+v, %t", got, ok)
		}
		h.Forget("m-1")
		if _, ok := h.LastContact("m-1"); ok {
			t.Error("a contact after Forget")
		}
	})
}
