package budget

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/prometheus/client_golang/prometheus"

	"bigfleet-providers/provider/internal/cloud"
	"bigfleet-providers/provider/internal/telemetry"
)

// api is a cloud's end of the transport: it notes what arrives and when, and
// answers as told.
type api struct {
	mu     sync.Mutex
	began  time.Time
	calls  []string // path
	times  []time.Duration
	answer func(n int) *http.Response // n counts from 0; nil means 200
	takes  time.Duration
}

func (a *api) RoundTrip(r *http.Request) (*http.Response, error) {
	a.mu.Lock()
	n := len(a.calls)
	a.calls = append(a.calls, strings.TrimPrefix(r.URL.Path, "/"))
	a.times = append(a.times, time.Since(a.began))
	a.mu.Unlock()
	time.Sleep(a.takes)
	if a.answer != nil {
		if resp := a.answer(n); resp != nil {
			return resp, nil
		}
	}
	return reply(http.StatusOK, nil), nil
}

func (a *api) sent() ([]string, []time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return append([]string(nil), a.calls...), append([]time.Duration(nil), a.times...)
}

func reply(status int, h http.Header) *http.Response {
	return &http.Response{StatusCode: status, Header: h, Body: io.NopCloser(strings.NewReader(""))}
}

func tooMany(retryAfter string) *http.Response {
	h := http.Header{"X-Envoy-Ratelimited": {"true"}}
	if retryAfter != "" {
		h.Set("Retry-After", retryAfter)
	}
	return reply(http.StatusTooManyRequests, h)
}

// newBudget must be called in a synctest bubble.
func newBudget(t *testing.T, rate float64, burst int) (*Transport, *api, *prometheus.Registry) {
	t.Helper()
	a := &api{began: time.Now()}
	reg := prometheus.NewRegistry()
	tr, err := New(Options{Next: a, Rate: rate, Burst: burst, Reserve: 5 * time.Second, Metrics: reg})
	if err != nil {
		t.Fatal(err)
	}
	return tr, a, reg
}

func call(ctx context.Context, tr http.RoundTripper, path string) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://api.invalid/"+path, nil)
	if err != nil {
		return err
	}
	resp, err := tr.RoundTrip(r)
	if err != nil {
		return err
	}
	return resp.Body.Close()
}

// values reads a metric: of its counters, gauges and histograms' counts, by the
// value of the label; "" for a metric without one.
func values(t *testing.T, reg *prometheus.Registry, name, label string) map[string]float64 {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			key := ""
			for _, l := range m.GetLabel() {
				if l.GetName() == label {
					key = l.GetValue()
				}
			}
			got[key] = m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	return got
}

func TestRateAndBurst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr, a, _ := newBudget(t, 10, 20)
		var work sync.WaitGroup
		for range 120 {
			work.Go(func() {
				if err := call(t.Context(), tr, "x"); err != nil {
					t.Error(err)
				}
			})
		}
		work.Wait()
		_, times := a.sent()
		for i, at := range times {
			due := time.Duration(max(i-19, 0)) * 100 * time.Millisecond
			if at < due || at > due+20*time.Millisecond {
				t.Fatalf("call %d was sent after %s, want %s", i, at, due)
			}
		}
	})
}

func TestUrgentCallsGoFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr, a, _ := newBudget(t, 1, 1)
		var work sync.WaitGroup
		send := func(p cloud.Priority, n int) {
			for i := range n {
				work.Go(func() {
					if err := call(cloud.WithPriority(t.Context(), p), tr, fmt.Sprintf("%s%d", p, i)); err != nil {
						t.Error(err)
					}
				})
				synctest.Wait() // one after another into the queue
			}
		}
		send(cloud.Background, 1) // takes the only token
		send(cloud.Background, 2)
		send(cloud.Work, 5)
		send(cloud.Teardown, 4)
		work.Wait()
		got, _ := a.sent()
		want := "background0 teardown0 teardown1 teardown2 teardown3 work0 work1 work2 background0 work3 work4 background1"
		if strings.Join(got, " ") != want {
			t.Errorf("sent\n%s, want\n%s", strings.Join(got, " "), want)
		}
	})
}

func TestCallWithoutTimeIsNotSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr, a, reg := newBudget(t, 1, 1)
		if err := call(t.Context(), tr, "first"); err != nil {
			t.Fatal(err)
		}
		// Its turn is in a second, but then less than the reserve is left.
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		began := time.Now()
		err := call(ctx, tr, "late")
		if !errors.Is(err, cloud.ErrThrottled) || !strings.Contains(err.Error(), "--api-rate") || !strings.Contains(err.Error(), "not sent") {
			t.Errorf("got %v", err)
		}
		if time.Since(began) > 0 {
			t.Error("it waited for what could not come")
		}
		// More urgent calls push it out although its turn seemed to come in time.
		ctx2, cancel2 := context.WithTimeout(t.Context(), 8*time.Second)
		defer cancel2()
		var work sync.WaitGroup
		work.Go(func() {
			if err := call(ctx2, tr, "pushed"); !errors.Is(err, cloud.ErrThrottled) {
				t.Errorf("got %v", err)
			}
		})
		synctest.Wait()
		for i := range 5 {
			work.Go(func() {
				if err := call(cloud.WithPriority(t.Context(), cloud.Teardown), tr, fmt.Sprint("t", i)); err != nil {
					t.Error(err)
				}
			})
		}
		work.Wait()
		if got, _ := a.sent(); len(got) != 6 {
			t.Errorf("sent %q", got)
		}
		for _, tt := range []struct {
			metric, label string
			want          map[string]float64
		}{
			{telemetry.MetricThrottled.Name, telemetry.LabelReason, map[string]float64{byBudget: 2, byCloud: 0}},
			{telemetry.MetricBudgetWait.Name, telemetry.LabelPriority, map[string]float64{"background": 3, "teardown": 5}},
			{telemetry.MetricBudgetRate.Name, "", map[string]float64{"": 1}},
			{telemetry.MetricBudgetTokens.Name, "", map[string]float64{"": 0}},
			{telemetry.MetricBudgetFull.Name, "", map[string]float64{"": 1}},
		} {
			if diff := cmp.Diff(tt.want, values(t, reg, tt.metric, tt.label), cmpopts.EquateApprox(0, .01)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tt.metric, diff)
			}
		}
	})
}

func TestCancelledCallLeavesTheQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr, a, _ := newBudget(t, 1, 1)
		if err := call(t.Context(), tr, "first"); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var work sync.WaitGroup
		work.Go(func() {
			// Not sent, and the caller can tell that it gave up itself.
			if err := call(ctx, tr, "given up"); !errors.Is(err, cloud.ErrThrottled) || !errors.Is(err, context.Canceled) {
				t.Errorf("got %v", err)
			}
		})
		synctest.Wait()
		work.Go(func() {
			if err := call(t.Context(), tr, "second"); err != nil {
				t.Error(err)
			}
		})
		synctest.Wait()
		cancel()
		work.Wait()
		if _, times := a.sent(); len(times) != 2 || times[1] > 1010*time.Millisecond {
			t.Errorf("calls went out at %v: one that gave up took a turn", times)
		}
	})
}

func TestRefusalsSlowDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr, a, reg := newBudget(t, 16, 16)
		a.takes = 100 * time.Millisecond
		a.answer = func(n int) *http.Response {
			if n < 8 {
				return tooMany("")
			}
			return nil
		}
		// Those under way together are one refusal.
		var work sync.WaitGroup
		for range 8 {
			work.Go(func() { _ = call(t.Context(), tr, "x") })
		}
		work.Wait()
		if rate, _ := tr.limiter.levels(); rate != 8 {
			t.Errorf("the rate is %v after one burst of refusals, want 8", rate)
		}
		if err := call(t.Context(), tr, "x"); err != nil {
			t.Error(err)
		}
		if _, times := a.sent(); times[8] < pauseMin {
			t.Errorf("sent again after %s", times[8])
		}
		time.Sleep(recovery)
		if rate, tokens := tr.limiter.levels(); rate != 16 || tokens != 16 {
			t.Errorf("the rate is %v, %v tokens: it never recovered", rate, tokens)
		}
		if n := values(t, reg, telemetry.MetricThrottled.Name, telemetry.LabelReason)[byCloud]; n != 8 {
			t.Errorf("%v refusals counted, want 8", n)
		}
	})
}

func TestRefusalsForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr, a, _ := newBudget(t, 16, 16)
		a.answer = func(int) *http.Response { return tooMany("") }
		for range 20 {
			if err := call(t.Context(), tr, "x"); err != nil {
				t.Fatal(err)
			}
		}
		_, times := a.sent()
		for i := 8; i < len(times); i++ {
			if gap := times[i] - times[i-1]; gap < pauseMax || gap > pauseMax+2*time.Second {
				t.Errorf("after %d refusals the pause is %s, want about %s", i, gap, pauseMax)
			}
		}
		if rate, _ := tr.limiter.levels(); rate < 1 {
			t.Errorf("the rate fell to %v", rate)
		}
	})
}

func TestRetryAfterIsObeyed(t *testing.T) {
	for name, tt := range map[string]struct {
		header func() string
		least  time.Duration
		most   time.Duration
	}{
		"seconds":    {func() string { return "30" }, 30 * time.Second, 31 * time.Second},
		"a date":     {func() string { return time.Now().Add(45 * time.Second).UTC().Format(http.TimeFormat) }, 44 * time.Second, 46 * time.Second},
		"a day":      {func() string { return "86400" }, retryAfterMax, retryAfterMax + time.Second},
		"the past":   {func() string { return "-5" }, pauseMin, 2 * pauseMin},
		"gibberish":  {func() string { return "soon" }, pauseMin, 2 * pauseMin},
		"no such":    {func() string { return "" }, pauseMin, 2 * pauseMin},
		"some words": {func() string { return "99999999999999999999" }, pauseMin, 2 * pauseMin},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tr, a, _ := newBudget(t, 10, 20)
				a.answer = func(n int) *http.Response {
					if n == 0 {
						return tooMany(tt.header())
					}
					return nil
				}
				for range 2 {
					if err := call(cloud.WithPriority(t.Context(), cloud.Teardown), tr, "x"); err != nil {
						t.Fatal(err)
					}
				}
				if _, times := a.sent(); times[1] < tt.least || times[1] > tt.most {
					t.Errorf("the next call was sent after %s, want %s to %s", times[1], tt.least, tt.most)
				}
			})
		})
	}
}

func TestOptionsReportEveryFault(t *testing.T) {
	_, err := New(Options{Rate: 0, Burst: 0})
	for _, want := range []string{"--api-rate", "--api-burst"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not name %s", err, want)
		}
	}
}
