package provider

import (
	"maps"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"bigfleet-providers/provider/internal/lifecycle"
	"bigfleet-providers/provider/internal/machine"
	"bigfleet-providers/provider/internal/store"
	"bigfleet-providers/provider/internal/telemetry"
)

// maxTypes bounds the instance types that metrics tell apart. They come from the
// offerings, and a cloud sells a few hundred at most.
const maxTypes = 256

// otherType is the label of the types beyond.
const otherType = "other"

// fleet shows the machines and what is done to them. All it shows is counted
// where it changes; a scrape reads the counts.
type fleet struct {
	store  *store.Store
	engine *lifecycle.Engine

	machines, price, operations, waiting, oldest, bytes, owner *prometheus.Desc
}

func newFleet(st *store.Store, e *lifecycle.Engine) *fleet {
	return &fleet{
		store: st, engine: e,
		machines:   telemetry.MetricMachines.Desc(),
		price:      telemetry.MetricRunningPrice.Desc(),
		operations: telemetry.MetricOperations.Desc(),
		waiting:    telemetry.MetricOperationsWaiting.Desc(),
		oldest:     telemetry.MetricOldestOperation.Desc(),
		bytes:      telemetry.MetricStoreBytes.Desc(),
		owner:      telemetry.MetricOwner.Desc(),
	}
}

// Describe implements prometheus.Collector.
func (f *fleet) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{f.machines, f.price, f.operations, f.waiting, f.oldest, f.bytes, f.owner} {
		out <- d
	}
}

// Collect implements prometheus.Collector.
func (f *fleet) Collect(out chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, value float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
	}
	machines, prices := sums(f.store.Counts())
	for g, n := range machines {
		gauge(f.machines, float64(n), g.State.String(), g.Capacity.String(), g.InstanceType)
	}
	for g, usd := range prices {
		gauge(f.price, usd, g.Capacity.String(), g.InstanceType)
	}
	for _, k := range machine.Kinds() {
		count, since := f.engine.InFlight(k)
		age := 0.0
		if count > 0 {
			age = max(time.Since(since).Seconds(), 0)
		}
		_, waiting := f.engine.Backlog(k)
		gauge(f.operations, float64(count), k.String())
		gauge(f.waiting, float64(waiting), k.String())
		gauge(f.oldest, age, k.String())
	}
	gauge(f.bytes, float64(f.store.Stats().FileBytes))
	owner := 0.0
	if f.engine.Owner() {
		owner = 1
	}
	gauge(f.owner, owner)
}

// sums are the counts as metrics show them: the machines by all of the group, the
// prices without the state; both with at most maxTypes types.
func sums(counts map[store.Group]store.Count) (machines map[store.Group]int, prices map[store.Group]float64) {
	machines, prices = map[store.Group]int{}, map[store.Group]float64{}
	all := map[string]bool{}
	for g := range counts {
		all[g.InstanceType] = true
	}
	shown := slices.Sorted(maps.Keys(all)) // the same at each scrape
	for _, beyond := range shown[min(len(shown), maxTypes):] {
		delete(all, beyond)
	}
	for g, c := range counts {
		if !all[g.InstanceType] {
			g.InstanceType = otherType
		}
		machines[g] += c.Machines
		g.State = machine.Unknown
		prices[g] += c.PricePerHour
	}
	return machines, prices
}
