package telemetry

import (
	"github.com/prometheus/client_golang/prometheus"
)

// Type is the type of a metric, as Prometheus names it.
type Type string

// The types.
const (
	Counter   Type = "counter"
	Gauge     Type = "gauge"
	Histogram Type = "histogram"
)

// Metric is what is said once of a metric: to Prometheus, and to the operator in
// docs/observability.md.
type Metric struct {
	Name    string // without the prefix of the cloud
	Type    Type
	Help    string // Markdown
	Labels  []string
	Buckets []float64 // of a histogram
}

// Prefix is how the names of all metrics of a cloud's provider begin.
func Prefix(cloud string) string { return "bigfleet_" + cloud + "_" }

func counter(name, help string, labels ...string) Metric {
	return Metric{Name: name, Type: Counter, Help: help, Labels: labels}
}

func gauge(name, help string, labels ...string) Metric {
	return Metric{Name: name, Type: Gauge, Help: help, Labels: labels}
}

func histogram(name, help string, buckets []float64, labels ...string) Metric {
	return Metric{Name: name, Type: Histogram, Help: help, Labels: labels, Buckets: buckets}
}

// Counter makes the counter; it must have no labels. Like the methods below it
// does not register what it makes.
func (m Metric) Counter() prometheus.Counter {
	return prometheus.NewCounter(prometheus.CounterOpts{Name: m.Name, Help: m.Help})
}

// CounterVec makes the counters of all labels.
func (m Metric) CounterVec() *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Name: m.Name, Help: m.Help}, m.Labels)
}

// Gauge makes the gauge; it must have no labels.
func (m Metric) Gauge() prometheus.Gauge {
	return prometheus.NewGauge(prometheus.GaugeOpts{Name: m.Name, Help: m.Help})
}

// GaugeVec makes the gauges of all labels.
func (m Metric) GaugeVec() *prometheus.GaugeVec {
	return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: m.Name, Help: m.Help}, m.Labels)
}

// GaugeFunc makes a gauge that is read when it is scraped; it must have no
// labels.
func (m Metric) GaugeFunc(read func() float64) prometheus.GaugeFunc {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: m.Name, Help: m.Help}, read)
}

// Histogram makes the histogram; it must have no labels.
func (m Metric) Histogram() prometheus.Histogram {
	return prometheus.NewHistogram(prometheus.HistogramOpts{Name: m.Name, Help: m.Help, Buckets: m.Buckets})
}

// HistogramVec makes the histograms of all labels.
func (m Metric) HistogramVec() *prometheus.HistogramVec {
	return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: m.Name, Help: m.Help, Buckets: m.Buckets}, m.Labels)
}

// With gives some of the labels their value: it is for a part of the process
// that reports one share of a metric. Each share is registered by itself.
func (m Metric) With(label, value string) Part {
	return Part{m: m, constant: prometheus.Labels{label: value}}
}

// Part is a metric with one of its labels fixed.
type Part struct {
	m        Metric
	constant prometheus.Labels
}

// Counter makes the counter; the metric must have no other label.
func (p Part) Counter() prometheus.Counter {
	return prometheus.NewCounter(prometheus.CounterOpts{Name: p.m.Name, Help: p.m.Help, ConstLabels: p.constant})
}

// Desc describes the metric, for a collector that makes its own.
func (m Metric) Desc() *prometheus.Desc { return prometheus.NewDesc(m.Name, m.Help, m.Labels, nil) }
