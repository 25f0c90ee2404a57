package channel

import (
	"maps"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"bigfleet-providers/provider/internal/telemetry"
)

// roster is the mailboxes whose host was heard from, the longest silent first,
// and how many have which agent. To keep it costs a poll next to nothing, and to
// ask it costs the silent hosts and not the fleet. Server.mu guards it.
type roster struct {
	oldest, newest *mailbox
	size           int
	versions       map[string]int // without zeros
}

// maxVersions bounds the versions that are told apart: they are the hosts' own
// words.
const maxVersions = 32

const (
	versionOther   = "other"
	versionUnknown = "unknown"
)

// saw moves the mailbox to the young end and counts its agent.
func (r *roster) saw(b *mailbox, now Sighting) {
	r.drop(b)
	b.version = r.nameOf(now.Version)
	r.versions[b.version]++
	r.size++
	b.older, b.newer = r.newest, nil
	if r.newest == nil {
		r.oldest = b
	} else {
		r.newest.newer = b
	}
	r.newest = b
}

// nameOf is the version as a metric's label.
func (r *roster) nameOf(version string) string {
	version = strings.ToValidUTF8(version, "?")
	switch {
	case version == "":
		return versionUnknown
	case r.versions[version] > 0 || len(r.versions) < maxVersions:
		return version
	default:
		return versionOther
	}
}

// drop takes the mailbox out, if it is in.
func (r *roster) drop(b *mailbox) {
	if b.version == "" {
		return
	}
	if r.versions[b.version]--; r.versions[b.version] == 0 {
		delete(r.versions, b.version)
	}
	r.size--
	if b.older == nil {
		r.oldest = b.newer
	} else {
		b.older.newer = b.newer
	}
	if b.newer == nil {
		r.newest = b.older
	} else {
		b.newer.older = b.older
	}
	b.older, b.newer, b.version = nil, nil, ""
}

// within are the ages of a last contact that are told apart: an agent polls once
// a minute at least. In ascending order.
var within = []struct {
	label string
	age   time.Duration
}{
	{"90s", 90 * time.Second}, {"5m", 5 * time.Minute}, {"15m", 15 * time.Minute}, {"1h", time.Hour},
}

// heard returns for each of within how many hosts were heard from so lately.
func (r *roster) heard(now time.Time) []int {
	counts := make([]int, len(within))
	silent := 0
	b := r.oldest
	for i := len(within) - 1; i >= 0; i-- {
		for b != nil && now.Sub(b.sighting.At) > within[i].age {
			silent++
			b = b.newer
		}
		counts[i] = r.size - silent
	}
	return counts
}

// agents is the roster as metrics.
type agents struct{ s *Server }

// Describe implements prometheus.Collector.
func (agents) Describe(out chan<- *prometheus.Desc) {
	out <- telemetry.MetricAgents.Desc()
	out <- telemetry.MetricAgentsHeard.Desc()
}

// Collect implements prometheus.Collector.
func (a agents) Collect(out chan<- prometheus.Metric) {
	a.s.mu.Lock()
	versions := maps.Clone(a.s.roster.versions)
	heard := a.s.roster.heard(time.Now())
	a.s.mu.Unlock()
	for v, n := range versions {
		out <- prometheus.MustNewConstMetric(telemetry.MetricAgents.Desc(), prometheus.GaugeValue, float64(n), v)
	}
	for i, n := range heard {
		out <- prometheus.MustNewConstMetric(telemetry.MetricAgentsHeard.Desc(), prometheus.GaugeValue, float64(n), within[i].label)
	}
}
