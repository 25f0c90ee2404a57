package budget

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"bigfleet-providers/provider/internal/cloud"
	"bigfleet-providers/provider/internal/telemetry"
)

// Options are what a Transport is made of. All fields are required.
type Options struct {
	Next http.RoundTripper
	// Rate is how many calls a second may be sent in the long run, Burst how many
	// at once after a quiet time.
	Rate  float64
	Burst int
	// Reserve is how much of a call's time must be left when it is sent. The call
	// needs it; and an http.Client whose time is up would hide that the call was
	// never sent.
	Reserve time.Duration
	Metrics prometheus.Registerer
}

// Transport is an http.RoundTripper that holds calls back. It obeys
// cloud.WithPriority.
type Transport struct {
	next      http.RoundTripper
	limiter   *limiter
	reserve   time.Duration
	waits     *prometheus.HistogramVec
	throttled *prometheus.CounterVec
}

// The values of the label reason.
const (
	byCloud  = "cloud"  // it answered 429
	byBudget = "budget" // not sent
)

// New makes a Transport and registers its metrics; a registry has one.
func New(o Options) (*Transport, error) {
	var faults []error
	if !(o.Rate > 0) {
		faults = append(faults, fmt.Errorf("rate: %v calls a second, it must be above 0; set --api-rate", o.Rate))
	}
	if o.Burst < 1 {
		faults = append(faults, fmt.Errorf("burst: %d calls, it must be 1 or more; set --api-burst", o.Burst))
	}
	if err := errors.Join(faults...); err != nil {
		return nil, err
	}
	t := &Transport{
		next: o.Next, limiter: newLimiter(o.Rate, o.Burst), reserve: o.Reserve,
		waits: telemetry.MetricBudgetWait.HistogramVec(), throttled: telemetry.MetricThrottled.CounterVec(),
	}
	for _, c := range []prometheus.Collector{
		t.waits, t.throttled,
		telemetry.MetricBudgetFull.GaugeFunc(func() float64 { return o.Rate }),
		telemetry.MetricBudgetRate.GaugeFunc(func() float64 { rate, _ := t.limiter.levels(); return rate }),
		telemetry.MetricBudgetTokens.GaugeFunc(func() float64 { _, tokens := t.limiter.levels(); return tokens }),
	} {
		if err := o.Metrics.Register(c); err != nil {
			return nil, err
		}
	}
	for _, reason := range []string{byCloud, byBudget} {
		t.throttled.WithLabelValues(reason)
	}
	return t, nil
}

// RoundTrip implements http.RoundTripper. An error that matches
// cloud.ErrThrottled says that the call was not sent.
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	ctx := r.Context()
	priority := cloud.PriorityOf(ctx)
	var latest time.Time
	if deadline, ok := ctx.Deadline(); ok {
		latest = deadline.Add(-t.reserve)
	}
	began := time.Now()
	err := t.limiter.wait(ctx, priority, latest)
	t.waits.WithLabelValues(priority.String()).Observe(time.Since(began).Seconds())
	if err != nil {
		if r.Body != nil {
			_ = r.Body.Close() // a RoundTripper must, also of what it does not send
		}
		t.throttled.WithLabelValues(byBudget).Inc()
		return nil, fmt.Errorf("%w: the call was not sent: %w (%s)", cloud.ErrThrottled, err, t.limiter.describe())
	}
	sent := time.Now()
	resp, err := t.next.RoundTrip(r)
	switch {
	case err != nil:
	case resp.StatusCode == http.StatusTooManyRequests:
		t.throttled.WithLabelValues(byCloud).Inc()
		t.limiter.refused(sent, retryAfter(resp.Header, time.Now()))
	default:
		t.limiter.answered(sent)
	}
	return resp, err
}

// retryAfter reads the pause that an answer asks for, in either form of
// RFC 9110, 10.2.3; 0 when it asks for none.
func retryAfter(h http.Header, now time.Time) time.Duration {
	value := strings.TrimSpace(h.Get("Retry-After"))
	if seconds, err := strconv.ParseInt(value, 10, 32); err == nil {
		return time.Duration(max(seconds, 0)) * time.Second
	}
	if at, err := http.ParseTime(value); err == nil {
		return max(at.Sub(now), 0)
	}
	return 0
}
