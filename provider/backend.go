package provider

import (
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"

	"bigfleet-providers/provider/internal/cloud"
	"bigfleet-providers/provider/internal/cloud/scaleway"
	"bigfleet-providers/provider/internal/cloud/scaleway/instances"
	"bigfleet-providers/provider/internal/telemetry"
)

const (
	// apiRate and apiBurst bound all calls of this process to the cloud.
	// Scaleway publishes no limit; 40 to 70 calls at once were refused.
	apiRate  = 25
	apiBurst = 25
	// apiTimeout is the SDK's own default.
	apiTimeout = 30 * time.Second
)

// backend is the cloud as the parts use it.
type backend struct {
	cloud   cloud.Cloud
	deleter cloud.Deleter // nil where hosts cannot be given back
	catalog cloud.Catalog
}

// openScaleway makes the Scaleway adapter, against the real API or, by the same
// client, against the fake.
func openScaleway(cfg *Config, fake *fakeWorld, version string, reg prometheus.Registerer, log *slog.Logger) (*backend, error) {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConnsPerHost = maxCloudSteps
	var next http.RoundTripper = transport
	cc := cfg.credentials()
	cc.Version, cc.Log = version, log
	timing := instances.Timing{Poll: cfg.PollInterval, Settle: cfg.SettleWindow}
	if fake != nil {
		cc.AccessKey, cc.SecretKey, cc.ProjectID, cc.APIURL = fake.accessKey, fake.secretKey, fake.projectID, fake.url
		timing = fake.timing
	} else {
		next = &limited{next: transport, limiter: rate.NewLimiter(apiRate, apiBurst)}
	}
	cc.HTTP = &http.Client{Timeout: apiTimeout, Transport: telemetry.NewTransport(next, "scaleway", reg, log)}
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
	return &backend{cloud: c, deleter: c, catalog: c}, nil
}

// credentials is how the configuration says to reach the API.
func (c *Config) credentials() scaleway.ClientConfig {
	return scaleway.ClientConfig{
		AccessKey: c.AccessKey, SecretKey: c.SecretKey, ProjectID: c.ProjectID, Zone: c.Zone, APIURL: c.APIURL,
	}
}

// limited keeps the process below a rate. A request that cannot be sent within
// its deadline fails without being sent.
type limited struct {
	next    http.RoundTripper
	limiter *rate.Limiter
}

// RoundTrip implements http.RoundTripper.
func (l *limited) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := l.limiter.Wait(r.Context()); err != nil {
		// Told apart from a lost answer: nothing was sent, so nothing was made.
		return nil, fmt.Errorf("%w: our own limit of %d calls a second: %w", cloud.ErrThrottled, apiRate, err)
	}
	return l.next.RoundTrip(r)
}
