package telemetry

import (
	"runtime"
	"runtime/debug"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
)

// Registry is where the metrics of one provider are registered, and read.
// Registered names get the prefix of its cloud; what the Go runtime and the
// process say of themselves keeps its usual name.
type Registry struct {
	prometheus.Registerer
	prometheus.Gatherer
}

// NewRegistry returns a registry of this process alone, with the collectors of
// the Go runtime and of the process, and what says who and what it is. The default
// registry of the client library is not used: anything a dependency registers
// there stays out of sight.
func NewRegistry(cloud, provider, version string) *Registry {
	reg := prometheus.NewRegistry()
	reg.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	own := prometheus.WrapRegistererWithPrefix(Prefix(cloud), reg)
	info := MetricBuildInfo.GaugeVec()
	info.WithLabelValues(version, revision(), runtime.Version()).Set(1)
	who := MetricProviderInfo.GaugeVec()
	who.WithLabelValues(provider).Set(1)
	own.MustRegister(info, who)
	return &Registry{Registerer: own, Gatherer: reg}
}

// revision is the commit that the binary was built from, "" when the build did
// not record it.
func revision() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			return s.Value
		}
	}
	return ""
}
