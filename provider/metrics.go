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
	started     *prometheus.CounterVec
	settled     *prometheus.HistogramVec
	stepFailed  *prometheus.CounterVec
	typeBlocked *prometheus.GaugeVec
	leftOut     *prometheus.GaugeVec
	reconciles  *prometheus.CounterVec
	instances   prometheus.Gauge
	reported    *prometheus.GaugeVec
	orphans     *prometheus.GaugeVec
	orphansGone *prometheus.CounterVec
	lastSuccess prometheus.Gauge
}

func newMetrics(reg prometheus.Registerer) *metrics {
	m := &metrics{
		calls: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: telemetry.MetricRPCDuration, Help: "Calls of the CapacityProvider service.",
			Buckets: prometheus.ExponentialBuckets(0.0005, 4, 9),
		}, []string{telemetry.LabelMethod, telemetry.LabelCode}),
		denied: prometheus.NewCounter(prometheus.CounterOpts{
			Name: telemetry.MetricRPCDenied, Help: "Calls that the client certificate's identity does not allow.",
		}),
		started: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: telemetry.MetricTransitionsStarted, Help: "Transitions that were accepted.",
		}, []string{telemetry.LabelKind}),
		settled: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: telemetry.MetricTransitionDuration, Help: "Transitions from acceptance to their end, by outcome: ok or the class of failure.",
			Buckets: prometheus.ExponentialBuckets(0.25, 3, 9),
		}, []string{telemetry.LabelKind, telemetry.LabelOutcome}),
		stepFailed: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: telemetry.MetricStepFailures, Help: "Failed tries of a step, by class of failure.",
		}, []string{telemetry.LabelKind, telemetry.LabelStep, telemetry.LabelClass}),
		typeBlocked: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: telemetry.MetricTypeBlocked, Help: "Until when a type that the cloud refused is not ordered again, in Unix seconds; gone when it is sold again.",
		}, []string{telemetry.LabelType, telemetry.LabelClass}),
		leftOut: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: telemetry.MetricSlotsLeftOut, Help: "Slots that the offerings ask for and that cannot be offered, by type; the log says why.",
		}, []string{telemetry.LabelType}),
		reconciles: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: telemetry.MetricReconciles, Help: "Reconcile passes, by result: complete or failed.",
		}, []string{telemetry.LabelResult}),
		instances: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: telemetry.MetricInstances, Help: "Servers with this provider's tag, as of the last complete inventory.",
		}),
		reported: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: telemetry.MetricReported, Help: "Servers with this provider's tag that the last complete pass could only report, by reason.",
		}, []string{telemetry.LabelReason}),
		orphans: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: telemetry.MetricOrphans, Help: "What carries this provider's tag and no machine claims, by kind, as of the last pass that could read the kind.",
		}, []string{telemetry.LabelKind}),
		orphansGone: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: telemetry.MetricOrphansGone, Help: "Orphans that a pass judged old enough to remove, by kind and what came of it.",
		}, []string{telemetry.LabelKind, telemetry.LabelResult}),
		lastSuccess: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: telemetry.MetricLastReconcile, Help: "When the last complete inventory was read, in Unix seconds.",
		}),
	}
	reg.MustRegister(m.calls, m.denied, m.started, m.settled, m.stepFailed, m.typeBlocked, m.leftOut,
		m.reconciles, m.instances, m.reported, m.orphans, m.orphansGone, m.lastSuccess)
	return m
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

// StepFailed implements lifecycle.Observer.
func (m *metrics) StepFailed(k machine.Kind, step, class string) {
	m.stepFailed.WithLabelValues(k.String(), step, class).Inc()
}

// Reconciled implements lifecycle.Observer.
func (m *metrics) Reconciled(r lifecycle.PassReport) {
	if !r.Complete {
		m.reconciles.WithLabelValues("failed").Inc()
		return
	}
	m.reconciles.WithLabelValues("complete").Inc()
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
