package provider

import (
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"bigfleet-providers/provider/internal/cloud"
	"bigfleet-providers/provider/internal/cloud/budget"
	"bigfleet-providers/provider/internal/cloud/scaleway"
	"bigfleet-providers/provider/internal/cloud/scaleway/instances"
	"bigfleet-providers/provider/internal/telemetry"
)

const (
	// apiTimeout bounds a call, its wait for its turn included; apiReserve is what
	// must be left of it when the call is sent. The slowest recorded took 3.2 s.
	apiTimeout = 30 * time.Second
	apiReserve = 10 * time.Second
)

// backend is the cloud as the parts use it.
type backend struct {
	cloud   cloud.Cloud
	deleter cloud.Deleter // nil where hosts cannot be given back
	sweeper cloud.Sweeper // nil where nothing outlives its server
	catalog cloud.Catalog
	fitter  cloud.Fitter // nil where orders cannot be judged beforehand
	prober  cloud.Prober
}

// openScaleway makes the Scaleway adapter, against the real API or, by the same
// client, against the fake.
func openScaleway(cfg *Config, fake *fakeWorld, version string, reg prometheus.Registerer, log *slog.Logger) (*backend, error) {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConnsPerHost = maxCloudSteps
	// The limit is outside, so that a call's duration is the cloud's own.
	var calls http.RoundTripper = telemetry.NewTransport(transport, "scaleway", reg, log)
	cc := cfg.credentials()
	cc.Version, cc.Log = version, log
	timing := instances.Timing{Poll: cfg.PollInterval, Settle: cfg.SettleWindow}
	if fake != nil {
		cc.AccessKey, cc.SecretKey, cc.ProjectID, cc.APIURL = fake.accessKey, fake.secretKey, fake.projectID, fake.url
		timing = fake.timing
	}
	if fake == nil || cfg.set["api-rate"] {
		limited, err := budget.New(budget.Options{
			Next: calls, Cloud: "scaleway", Rate: cfg.APIRate, Burst: cfg.APIBurst, Reserve: apiReserve, Metrics: reg,
		})
		if err != nil {
			return nil, fmt.Errorf("limit on API calls: %w", err)
		}
		calls = limited
	}
	cc.HTTP = &http.Client{Timeout: apiTimeout, Transport: calls}
	client, err := scaleway.NewClient(cc)
	if err != nil {
		return nil, err
	}
	c, err := instances.New(instances.Config{
		Client: client, Zone: cfg.Zone, ProjectID: cc.ProjectID, Provider: cfg.Provider,
		Image: cfg.Image, NoPublicIP: cfg.NoPublicIP, Timing: timing, Log: log,
	})
	if err != nil {
		return nil, fmt.Errorf("scaleway instances: %w", err)
	}
	return &backend{cloud: c, deleter: c, sweeper: c, catalog: c, fitter: c, prober: c}, nil
}

// credentials is how the configuration says to reach the API.
func (c *Config) credentials() scaleway.ClientConfig {
	return scaleway.ClientConfig{
		AccessKey: c.AccessKey, SecretKey: c.SecretKey, ProjectID: c.ProjectID, Zone: c.Zone, APIURL: c.APIURL,
	}
}
