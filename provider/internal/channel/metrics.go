package channel

import (
	"github.com/prometheus/client_golang/prometheus"

	"bigfleet-providers/provider/internal/telemetry"
)

// metrics are the channel's. No label holds a machine id: a fleet has
// thousands.
type metrics struct {
	polls, acks, packages, authFailures *prometheus.CounterVec
	throttled, clones, panics           prometheus.Counter
	parked, contested, previous         prometheus.Gauge
	handover, delivery                  *prometheus.HistogramVec
}

func newMetrics(reg prometheus.Registerer) *metrics {
	m := &metrics{
		polls:        telemetry.MetricChannelPolls.CounterVec(),
		acks:         telemetry.MetricChannelAcks.CounterVec(),
		packages:     telemetry.MetricChannelPackages.CounterVec(),
		authFailures: telemetry.MetricChannelAuthFailures.CounterVec(),
		throttled:    telemetry.MetricChannelThrottled.Counter(),
		clones:       telemetry.MetricChannelClones.Counter(),
		panics:       telemetry.MetricPanics.With(telemetry.LabelPlace, "channel").Counter(),
		contested:    telemetry.MetricChannelContested.Gauge(),
		previous:     telemetry.MetricChannelPreviousSecret.Gauge(),
		parked:       telemetry.MetricChannelParked.Gauge(),
		handover:     telemetry.MetricChannelHandover.HistogramVec(),
		delivery:     telemetry.MetricChannelDelivery.HistogramVec(),
	}
	if reg != nil {
		reg.MustRegister(m.polls, m.acks, m.packages, m.authFailures, m.throttled, m.clones, m.panics, m.contested, m.previous, m.parked, m.handover, m.delivery)
	}
	return m
}

// Values of the result, outcome and reason labels.
const (
	resultCommand     = "command"     // a poll got its command
	resultEmpty       = "empty"       // nothing was pending until the wait was over
	resultTakenOver   = "taken_over"  // a newer poll of the machine came, or the host was to show itself
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
	reasonNoHost    = "no_host" // the machine has none that may ask for anything
	reasonBadToken  = "bad_token"
)
