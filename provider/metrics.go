package provider

import (
	"path"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"

	"bigfleet-providers/provider/internal/machine"
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
	reconciles  *prometheus.CounterVec
	instances   prometheus.Gauge
	unclaimed   prometheus.Gauge
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
		reconciles: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: telemetry.MetricReconciles, Help: "Reconcile passes, by result: complete or failed.",
		}, []string{telemetry.LabelResult}),
		instances: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: telemetry.MetricInstances, Help: "Servers with this provider's tag, as of the last complete inventory.",
		}),
		unclaimed: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: telemetry.MetricUnclaimed, Help: "Servers with this provider's tag that no machine claims, as of the last complete inventory.",
		}),
		lastSuccess: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: telemetry.MetricLastReconcile, Help: "When the last complete inventory was read, in Unix seconds.",
		}),
	}
	reg.MustRegister(m.calls, m.denied, m.started, m.settled, m.stepFailed, m.reconciles, m.instances, m.unclaimed, m.lastSuccess)
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
func (m *metrics) Reconciled(complete bool, instances, unclaimed int) {
	if !complete {
		m.reconciles.WithLabelValues("failed").Inc()
		return
	}
	m.reconciles.WithLabelValues("complete").Inc()
	m.instances.Set(float64(instances))
	m.unclaimed.Set(float64(unclaimed))
	m.lastSuccess.SetToCurrentTime()
}
