package provider

import (
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"bigfleet-providers/provider/internal/lifecycle"
)

// values are all series of counters and gauges whose name has the prefix, as
// "name{label values} value" without zeros.
func values(t *testing.T, reg *prometheus.Registry, prefix string) map[string]float64 {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, f := range families {
		if !strings.HasPrefix(f.GetName(), prefix) {
			continue
		}
		for _, m := range f.GetMetric() {
			key := strings.TrimPrefix(f.GetName(), prefix)
			for _, l := range m.GetLabel() {
				key += " " + l.GetValue()
			}
			got[key] = m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
	}
	return got
}

func TestMetricsOfPasses(t *testing.T) {
	reg := prometheus.NewRegistry()
	m := newMetrics(reg)
	m.Reconciled(lifecycle.PassReport{
		Complete: true, Instances: 7,
		Reported: map[string]int{"locked": 1, "stopped": 0},
		Orphans:  map[string]int{"server": 2, "volume": 3},
	})
	m.Reconciled(lifecycle.PassReport{}) // leaves the levels as they were
	m.Reconciled(lifecycle.PassReport{   // could not read the volumes
		Complete: true, Instances: 6,
		Reported: map[string]int{"locked": 0, "stopped": 4},
		Orphans:  map[string]int{"server": 0},
	})
	m.Orphan("volume", "removed")
	m.Orphan("volume", "removed")
	got := values(t, reg, "")
	if at := got["last_reconcile_timestamp_seconds"]; time.Since(time.Unix(int64(at), 0)) > time.Minute {
		t.Errorf("the last pass was at %v", at)
	}
	delete(got, "last_reconcile_timestamp_seconds")
	want := map[string]float64{
		"reconciles_total complete": 2, "reconciles_total failed": 1, "cloud_instances": 6,
		"cloud_instances_reported locked": 0, "cloud_instances_reported stopped": 4,
		"orphans server": 0, "orphans volume": 3, "orphan_removals_total volume removed": 2, "inventory_up": 1,
	}
	maps.DeleteFunc(got, func(series string, value float64) bool {
		_, wanted := want[series]
		return value == 0 && !wanted // of what no pass is about
	})
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("metrics (-want +got):\n%s", diff)
	}
}

func TestMetricOfBlockedTypes(t *testing.T) {
	reg := prometheus.NewRegistry()
	m := newMetrics(reg)
	check := func(want map[string]float64) {
		t.Helper()
		if diff := cmp.Diff(want, values(t, reg, "type_blocked_")); diff != "" {
			t.Errorf("metric (-want +got):\n%s", diff)
		}
	}
	m.TypeBlocked("DEV1-S", "capacity", time.Unix(100, 0))
	m.TypeBlocked("GP1-XS", "quota", time.Unix(200, 0))
	m.TypeBlocked("DEV1-S", "quota", time.Unix(300, 0))
	check(map[string]float64{"until_timestamp_seconds quota DEV1-S": 300, "until_timestamp_seconds quota GP1-XS": 200})
	m.TypeBlocked("DEV1-S", "ok", time.Time{})
	check(map[string]float64{"until_timestamp_seconds quota GP1-XS": 200})
}
