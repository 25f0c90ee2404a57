package provider

import (
	"fmt"
	"log/slog"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"bigfleet-providers/provider/internal/certificates"
	"bigfleet-providers/provider/internal/channel"
	"bigfleet-providers/provider/internal/cloud/budget"
	"bigfleet-providers/provider/internal/lifecycle"
	"bigfleet-providers/provider/internal/store"
	"bigfleet-providers/provider/internal/telemetry"
	"bigfleet-providers/shared/token"
)

// TestMetricsAreThoseOfTheList compares what all parts of a provider register
// with telemetry.Metrics, of which docs, alerts and dashboard are made.
func TestMetricsAreThoseOfTheList(t *testing.T) {
	reg := recorder{}
	quiet := slog.New(slog.DiscardHandler)
	newMetrics(reg)
	reg.MustRegister(newFleet(&store.Store{}, &lifecycle.Engine{}), telemetry.MetricBuildInfo.GaugeVec(), telemetry.MetricProviderInfo.GaugeVec())
	telemetry.NewTransport(http.DefaultTransport, "toy", reg, quiet)
	if _, err := budget.New(budget.Options{Next: http.DefaultTransport, Rate: 1, Burst: 1, Metrics: reg}); err != nil {
		t.Fatal(err)
	}
	secret, err := token.NewSecret(make([]byte, token.MinSecretBytes))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := channel.New(channel.Options{
		Secret: secret, Life: func(string) (channel.Life, bool) { return channel.Life{}, false }, Settled: func(string, string) bool { return false }, Log: quiet, Metrics: reg,
	}); err != nil {
		t.Fatal(err)
	}
	certificates.NewKeeper(reg, quiet, false)

	want := recorder{}
	for _, m := range telemetry.Metrics() {
		want[m.Name] = fmt.Sprintf("%s %s", m.Type, slices.Sorted(slices.Values(m.Labels)))
	}
	if diff := cmp.Diff(want, reg); diff != "" {
		t.Errorf("metrics (-telemetry.Metrics +registered):\n%s", diff)
	}
}

// recorder is a registerer that keeps the type and the labels by name.
type recorder map[string]string

var description = regexp.MustCompile(`fqName: "([^"]*)".*constLabels: \{(.*)\}, variableLabels: \{(.*)\}\}$`)

// Register implements prometheus.Registerer.
func (r recorder) Register(c prometheus.Collector) error {
	descs := make(chan *prometheus.Desc, 100)
	c.Describe(descs)
	close(descs)
	for d := range descs {
		parts := description.FindStringSubmatch(d.String())
		if parts == nil {
			return fmt.Errorf("cannot read %s", d)
		}
		var labels []string
		for _, l := range slices.Concat(strings.Split(parts[2], ","), strings.Split(parts[3], ",")) {
			if name, _, _ := strings.Cut(l, "="); name != "" {
				labels = append(labels, name)
			}
		}
		slices.Sort(labels)
		r[parts[1]] = fmt.Sprintf("%s %s", typeOf(c), labels)
	}
	return nil
}

// typeOf is the type of what is collected; what is none of the library's own
// collectors has gauges only.
func typeOf(c prometheus.Collector) telemetry.Type {
	switch c := c.(type) {
	case *prometheus.CounterVec:
		return telemetry.Counter
	case *prometheus.HistogramVec:
		return telemetry.Histogram
	case prometheus.Metric:
		var m dto.Metric
		if err := c.Write(&m); err != nil {
			return telemetry.Type(err.Error())
		}
		switch {
		case m.Counter != nil:
			return telemetry.Counter
		case m.Histogram != nil:
			return telemetry.Histogram
		}
	}
	return telemetry.Gauge
}

// MustRegister implements prometheus.Registerer.
func (r recorder) MustRegister(all ...prometheus.Collector) {
	for _, c := range all {
		if err := r.Register(c); err != nil {
			panic(err)
		}
	}
}

// Unregister implements prometheus.Registerer.
func (recorder) Unregister(prometheus.Collector) bool { return false }
