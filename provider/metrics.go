package provider

import (
	"path"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"

	"bigfleet-providers/provider/internal/lifecycle"
	"bigfleet-providers/provider/internal/machine"
	"bigfleet-providers/provider/internal/offering"
	"bigfleet-providers/provider/internal/telemetry"
)

// metrics are what the process shows of its calls and transitions. It is the
// lifecycle's Observer.
type metrics struct {
	calls       *prometheus.HistogramVec
	denied      prometheus.Counter
	panicked    struct{ rpc, lifecycle prometheus.Counter }
	started     *prometheus.CounterVec
	settled     *prometheus.HistogramVec
	stepDone    *prometheus.HistogramVec
	stepFailed  *prometheus.CounterVec
	typeBlocked *prometheus.GaugeVec
	leftOut     *prometheus.GaugeVec
	reconciles  *prometheus.CounterVec
	inventoryUp prometheus.Gauge
	instances   prometheus.Gauge
	reported    *prometheus.GaugeVec
	orphans     *prometheus.GaugeVec
	orphansGone *prometheus.CounterVec
	lastSuccess prometheus.Gauge
	refreshes   *prometheus.CounterVec
	lastPrices  prometheus.Gauge
	commits     *prometheus.HistogramVec
	batches     prometheus.Histogram
}

// Values of the label result.
const (
	resultComplete = "complete" // of a pass
	resultOK       = "ok"
	resultFailed   = "failed"
	resultRecorded = "recorded" // of a price refresh
)

func newMetrics(reg prometheus.Registerer) *metrics {
	m := &metrics{
		calls:       telemetry.MetricRPCDuration.HistogramVec(),
		denied:      telemetry.MetricRPCDenied.Counter(),
		started:     telemetry.MetricTransitionsStarted.CounterVec(),
		settled:     telemetry.MetricTransitionDuration.HistogramVec(),
		stepDone:    telemetry.MetricStepDuration.HistogramVec(),
		stepFailed:  telemetry.MetricStepFailures.CounterVec(),
		typeBlocked: telemetry.MetricTypeBlocked.GaugeVec(),
		leftOut:     telemetry.MetricSlotsLeftOut.GaugeVec(),
		reconciles:  telemetry.MetricReconciles.CounterVec(),
		inventoryUp: telemetry.MetricInventoryUp.Gauge(),
		instances:   telemetry.MetricInstances.Gauge(),
		reported:    telemetry.MetricReported.GaugeVec(),
		orphans:     telemetry.MetricOrphans.GaugeVec(),
		orphansGone: telemetry.MetricOrphansGone.CounterVec(),
		lastSuccess: telemetry.MetricLastReconcile.Gauge(),
		refreshes:   telemetry.MetricPriceRefreshes.CounterVec(),
		lastPrices:  telemetry.MetricLastPriceRefresh.Gauge(),
		commits:     telemetry.MetricStoreCommit.HistogramVec(),
		batches:     telemetry.MetricStoreBatch.Histogram(),
	}
	m.panicked.rpc = telemetry.MetricPanics.With(telemetry.LabelPlace, "rpc").Counter()
	m.panicked.lifecycle = telemetry.MetricPanics.With(telemetry.LabelPlace, "lifecycle").Counter()
	reg.MustRegister(m.calls, m.denied, m.panicked.rpc, m.panicked.lifecycle, m.started, m.settled, m.stepDone, m.stepFailed,
		m.typeBlocked, m.leftOut, m.reconciles, m.inventoryUp, m.instances, m.reported, m.orphans, m.orphansGone, m.lastSuccess,
		m.refreshes, m.lastPrices, m.commits, m.batches)
	m.begin()
	return m
}

// begin makes the series that alerts look at: a counter that appears with its
// first event has no rate then.
func (m *metrics) begin() {
	for _, k := range machine.Kinds() {
		m.started.WithLabelValues(k.String())
		m.settled.WithLabelValues(k.String(), resultOK)
		m.calls.WithLabelValues(k.String(), codes.OK.String())
		m.calls.WithLabelValues(k.String(), codes.FailedPrecondition.String())
	}
	for _, result := range []string{resultComplete, resultFailed} {
		m.reconciles.WithLabelValues(result)
	}
	for _, result := range []string{resultOK, resultRecorded, resultFailed} {
		m.refreshes.WithLabelValues(result)
	}
	for _, result := range []string{resultOK, resultFailed} {
		m.commits.WithLabelValues(result)
	}
}

func (m *metrics) observeCall(method string, code codes.Code, took time.Duration) {
	m.calls.WithLabelValues(path.Base(method), code.String()).Observe(took.Seconds())
}

// Started implements lifecycle.Observer.
func (m *metrics) Started(k machine.Kind) { m.started.WithLabelValues(k.String()).Inc() }

// Settled implements lifecycle.Observer.
func (m *metrics) Settled(k machine.Kind, class string, took time.Duration) {
	m.settled.WithLabelValues(k.String(), class).Observe(took.Seconds())
}

// StepDone implements lifecycle.Observer.
func (m *metrics) StepDone(k machine.Kind, step, outcome string, took time.Duration) {
	m.stepDone.WithLabelValues(k.String(), step, outcome).Observe(took.Seconds())
}

// StepFailed implements lifecycle.Observer.
func (m *metrics) StepFailed(k machine.Kind, step, class string) {
	m.stepFailed.WithLabelValues(k.String(), step, class).Inc()
}

// Panicked implements lifecycle.Observer.
func (m *metrics) Panicked() { m.panicked.lifecycle.Inc() }

// Reconciled implements lifecycle.Observer.
func (m *metrics) Reconciled(r lifecycle.PassReport) {
	if !r.Complete {
		m.reconciles.WithLabelValues(resultFailed).Inc()
		m.inventoryUp.Set(0)
		return
	}
	m.reconciles.WithLabelValues(resultComplete).Inc()
	m.inventoryUp.Set(1)
	m.instances.Set(float64(r.Instances))
	for reason, n := range r.Reported {
		m.reported.WithLabelValues(reason).Set(float64(n))
	}
	for kind, n := range r.Orphans {
		m.orphans.WithLabelValues(kind).Set(float64(n))
	}
	m.lastSuccess.SetToCurrentTime()
}

// Orphan implements lifecycle.Observer.
func (m *metrics) Orphan(kind, result string) { m.orphansGone.WithLabelValues(kind, result).Inc() }

// TypeBlocked implements lifecycle.Observer.
func (m *metrics) TypeBlocked(commercialType, class string, until time.Time) {
	m.typeBlocked.DeletePartialMatch(prometheus.Labels{telemetry.LabelType: commercialType})
	if !until.IsZero() {
		m.typeBlocked.WithLabelValues(commercialType, class).Set(float64(until.Unix()))
	}
}

// slotsLeftOut shows what of the offerings is not offered, in place of what was
// shown before.
func (m *metrics) slotsLeftOut(problems []offering.Problem) {
	m.leftOut.Reset()
	for _, p := range problems {
		if p.LeftOut > 0 {
			m.leftOut.WithLabelValues(p.CommercialType).Add(float64(p.LeftOut))
		}
	}
}

// pricesRead counts a reading of types and prices by its result.
func (m *metrics) pricesRead(result string) {
	m.refreshes.WithLabelValues(result).Inc()
	if result == resultOK {
		m.lastPrices.SetToCurrentTime()
	}
}

// committed is told of the store's batches.
func (m *metrics) committed(changes int, took time.Duration, err error) {
	result := resultOK
	if err != nil {
		result = resultFailed
	}
	m.commits.WithLabelValues(result).Observe(took.Seconds())
	m.batches.Observe(float64(changes))
}
