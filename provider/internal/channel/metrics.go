package channel

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"bigfleet-providers/provider/internal/telemetry"
)

// metrics are the channel's. No label holds a machine id: a fleet has
// thousands.
type metrics struct {
	polls, acks, packages, authFailures *prometheus.CounterVec
	throttled, clones, panics           prometheus.Counter
	parked                              prometheus.Gauge
	handover, delivery                  *prometheus.HistogramVec
}

func newMetrics(reg prometheus.Registerer) *metrics {
	with := promauto.With(reg)
	counters := func(name, help, label string) *prometheus.CounterVec {
		return with.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, []string{label})
	}
	counter := func(name, help string) prometheus.Counter {
		return with.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	}
	return &metrics{
		polls:        counters(telemetry.MetricChannelPolls, "Polls of hosts for their command.", telemetry.LabelResult),
		acks:         counters(telemetry.MetricChannelAcks, "Reports of hosts on their command.", telemetry.LabelResult),
		packages:     counters(telemetry.MetricChannelPackages, "Fetches of agent packages.", telemetry.LabelResult),
		authFailures: counters(telemetry.MetricChannelAuthFailures, "Requests that were refused with 401.", telemetry.LabelReason),
		throttled:    counter(telemetry.MetricChannelThrottled, "Requests that were refused with 429."),
		clones:       counter(telemetry.MetricChannelClones, "Times that a second host was seen to use one machine's token."),
		panics:       counter(telemetry.MetricChannelPanics, "Requests that were ended by a fault in the provider."),
		parked: with.NewGauge(prometheus.GaugeOpts{
			Name: telemetry.MetricChannelParked,
			Help: "Long polls that are held open.",
		}),
		handover: with.NewHistogramVec(prometheus.HistogramOpts{
			Name:    telemetry.MetricChannelHandover,
			Help:    "Time from offering a command until a host fetched it.",
			Buckets: []float64{.001, .005, .025, .1, .5, 1, 5, 30, 60, 300},
		}, []string{telemetry.LabelKind}),
		delivery: with.NewHistogramVec(prometheus.HistogramOpts{
			Name:    telemetry.MetricChannelDelivery,
			Help:    "Time from offering a command until its host reported on it.",
			Buckets: []float64{.1, .5, 1, 5, 15, 30, 60, 120, 300, 600, 1200, 3600},
		}, []string{telemetry.LabelKind, telemetry.LabelOutcome}),
	}
}

// Values of the result, outcome and reason labels.
const (
	resultCommand     = "command"     // a poll got its command
	resultEmpty       = "empty"       // nothing was pending until the wait was over
	resultTakenOver   = "taken_over"  // a newer poll of the machine came
	resultReleased    = "released"    // we are stopping
	resultHangup      = "hangup"      // the host went away
	resultInvalid     = "invalid"     // the request had a fault
	resultSettled     = "settled"     // the outcome is on record
	resultRepeated    = "repeated"    // it was on record before
	resultUnconfirmed = "unconfirmed" // it could not be recorded; the host repeats it
	resultConflict    = "conflict"    // not the machine's command
	resultServed      = "served"
	resultNotFound    = "not_found"

	outcomeOK     = "ok"
	outcomeFailed = "failed"

	reasonMalformed = "malformed" // no usable machine id or token in the request
	reasonUnknown   = "unknown_machine"
	reasonBadToken  = "bad_token"
)
