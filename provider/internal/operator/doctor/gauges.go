package doctor

import (
	"fmt"
	"strings"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// gauge is one thing to look at in /metrics.
type gauge struct {
	check, metric string
	// judge gets the samples, and says what they mean.
	judge func(s samples, now time.Time) (level Level, detail string)
	// runbook is the alert whose runbook says what to do, in
	// docs/observability.md.
	runbook string
}

// Limits that the alert rules have too.
const (
	operationTooOld = 90 * time.Minute
	reconcileStale  = 30 * time.Minute
	pricesStale     = 48 * time.Hour
)

var gauges = []gauge{
	{"inventory", "inventory_up", func(s samples, _ time.Time) (Level, string) {
		if s.sum() == 0 {
			return Fail, "the last pass could not read the cloud's inventory"
		}
		return OK, "the last pass read the cloud's whole inventory"
	}, "BigFleetInventoryUnreadable"},
	{"reconcile", "last_reconcile_timestamp_seconds", since("complete pass", reconcileStale), "BigFleetReconcileStale"},
	{"prices", "last_price_refresh_timestamp_seconds", since("reading of types and prices", pricesStale), "BigFleetPricesStale"},
	{"operations", "oldest_operation_age_seconds", func(s samples, _ time.Time) (Level, string) {
		oldest := seconds(s.max()).Round(time.Second)
		switch {
		case oldest > operationTooOld:
			return Warn, fmt.Sprintf("the oldest has been under way for %s", oldest)
		case oldest > 0:
			return OK, fmt.Sprintf("the oldest has been under way for %s", oldest)
		default:
			return OK, "none is under way"
		}
	}, "BigFleetOperationTooOld"},
	{"state file", "store_commit_duration_seconds", func(s samples, _ time.Time) (Level, string) {
		failed := s.where("result", "failed").sum()
		return some(failed), fmt.Sprintf("%.0f of %.0f writes failed since the provider's start", failed, s.sum())
	}, "BigFleetStoreFails"},
	{"failed machines", "machines", func(s samples, _ time.Time) (Level, string) {
		failed := s.where("state", "FAILED").sum()
		return some(failed), fmt.Sprintf("%.0f of %.0f machines are FAILED", failed, s.sum())
	}, "BigFleetTransitionsFail"},
	{"certificates", "certificate_expiry_timestamp_seconds", certificates, "BigFleetCertificateEndsSoon"},
	{"refused types", "type_blocked_until_timestamp_seconds", func(s samples, _ time.Time) (Level, string) {
		return some(float64(len(s))), fmt.Sprintf("%d types that the cloud refuses for now", len(s))
	}, "BigFleetNoCreateSucceeds"},
	{"slots", "slots_left_out", func(s samples, _ time.Time) (Level, string) {
		return some(s.sum()), fmt.Sprintf("%.0f slots cannot be offered", s.sum())
	}, "BigFleetSlotsLeftOut"},
	{"orphans", "orphans", func(s samples, _ time.Time) (Level, string) {
		return some(s.sum()), fmt.Sprintf("%.0f things with the provider's tag that no machine claims", s.sum())
	}, "BigFleetOrphans"},
	{"tokens", "channel_contested_machines", func(s samples, _ time.Time) (Level, string) {
		return some(s.sum()), fmt.Sprintf("%.0f machines whose token a second host has used", s.sum())
	}, "BigFleetTokenShared"},
	{"panics", "panics_total", func(s samples, _ time.Time) (Level, string) {
		return some(s.sum()), fmt.Sprintf("%.0f faults in the provider were caught since its start", s.sum())
	}, "BigFleetPanics"},
}

// gauges reads /metrics and judges what is there. A provider has not all of
// them: without a channel there are no tokens.
func (e *examination) gauges(page string, now time.Time) {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(page))
	if err != nil {
		e.say("metrics", Fail, "Give the URL of --metrics-addr, such as http://127.0.0.1:9090.", "/metrics cannot be read: %v", err)
		return
	}
	prefix := ""
	for name := range families {
		if cloud, ok := strings.CutSuffix(name, "_build_info"); ok && strings.HasPrefix(cloud, "bigfleet_") {
			prefix = cloud + "_"
		}
	}
	if prefix == "" {
		e.say("metrics", Fail, "Give the URL of --metrics-addr, such as http://127.0.0.1:9090.", "/metrics has no bigfleet_*_build_info: this is no provider's")
		return
	}
	build := samples(families[prefix+"build_info"].GetMetric())
	e.say("metrics", OK, "", "the provider's version is %s", build.label("version"))
	for _, g := range gauges {
		family := families[prefix+g.metric]
		if family == nil {
			continue
		}
		level, detail := g.judge(family.GetMetric(), now)
		advice := ""
		if level != OK {
			advice = "docs/observability.md#" + strings.ToLower(g.runbook) + " says what to do."
		}
		e.say(g.check, level, advice, "%s", detail)
	}
}

// samples are those of one metric.
type samples []*dto.Metric

// value of a histogram is how many it has counted.
func value(m *dto.Metric) float64 {
	return m.GetGauge().GetValue() + m.GetCounter().GetValue() + float64(m.GetHistogram().GetSampleCount())
}

func (s samples) sum() (total float64) {
	for _, m := range s {
		total += value(m)
	}
	return total
}

func (s samples) max() (most float64) {
	for _, m := range s {
		most = max(most, value(m))
	}
	return most
}

func (s samples) where(label, is string) (out samples) {
	for _, m := range s {
		if (samples{m}).label(label) == is {
			out = append(out, m)
		}
	}
	return out
}

// label is the value of the first sample's label.
func (s samples) label(name string) string {
	for _, m := range s {
		for _, l := range m.GetLabel() {
			if l.GetName() == name {
				return l.GetValue()
			}
		}
	}
	return ""
}

func some(n float64) Level {
	if n > 0 {
		return Warn
	}
	return OK
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// since judges a gauge that is the time of the last of something.
func since(what string, limit time.Duration) func(samples, time.Time) (Level, string) {
	return func(s samples, now time.Time) (Level, string) {
		at := s.max()
		if at == 0 {
			return Warn, "no " + what + " yet"
		}
		ago := now.Sub(time.Unix(int64(at), 0)).Round(time.Second)
		if ago > limit {
			return Warn, fmt.Sprintf("the last %s was %s ago", what, ago)
		}
		return OK, fmt.Sprintf("the last %s was %s ago", what, max(ago, 0))
	}
}

func certificates(s samples, now time.Time) (level Level, detail string) {
	level, detail = OK, "none is served"
	var first time.Time
	for _, m := range s {
		end := time.Unix(int64(value(m)), 0)
		if value(m) == 0 || !first.IsZero() && !end.Before(first) {
			continue
		}
		first = end
		detail = fmt.Sprintf("the first to end is %s, %s", samples{m}.label("certificate"), date(end))
	}
	switch {
	case first.IsZero():
	case first.Before(now):
		level = Fail
	case first.Sub(now) < expiryWarning:
		level = Warn
	}
	return level, detail
}
