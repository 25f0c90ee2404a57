package provider

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/scaleway/scaleway-sdk-go/scw"

	"bigfleet-providers/provider/internal/cloud"
	"bigfleet-providers/provider/internal/cloud/budget"
	"bigfleet-providers/provider/internal/cloud/scaleway"
	"bigfleet-providers/provider/internal/cloud/scaleway/elasticmetal"
	"bigfleet-providers/provider/internal/cloud/scaleway/instances"
	"bigfleet-providers/provider/internal/telemetry"
	"bigfleet-providers/provider/internal/telemetry/tracing"
)

const (
	// apiTimeout bounds a call, its wait for its turn included; apiReserve is what
	// must be left of it when the call is sent. The slowest recorded took 3.2 s.
	apiTimeout = 30 * time.Second
	apiReserve = 10 * time.Second
)

// cloudName names the cloud in logs and in the names of metrics.
const cloudName = "scaleway"

// backend is the cloud as the parts use it.
type backend struct {
	cloud   cloud.Cloud
	deleter cloud.Deleter // nil where hosts cannot be given back
	sweeper cloud.Sweeper // nil where nothing outlives its server
	catalog cloud.Catalog
	fitter  cloud.Fitter // nil where orders cannot be judged beforehand
	prober  cloud.Prober
	keeper  cloud.Keeper // nil where what a failure leaves is removed
	adopter adopter      // nil where no server can be given by hand
	// holdOrders is told of a state that does not know what was ordered before, see
	// elasticmetal.Cloud.HoldOrders; nil where such an order is removed later.
	holdOrders func(since time.Time)
	// startable is an error when nothing could ever be made; nil asks nobody.
	startable func(ctx context.Context) error
}

// adopter makes servers that were made by hand machines', see
// elasticmetal.Cloud.Adopt and Reserve.
type adopter interface {
	Reserve(serverIDs []string)
	Adopt(ctx context.Context, serverID, commercialType, machineID string, mine func(machineID string) bool) error
}

// openScaleway makes the Scaleway adapter, against the real API or, by the same
// client, against the fake.
func openScaleway(cfg *Config, fake *fakeWorld, version string, reg prometheus.Registerer, traces *tracing.Tracing, log *slog.Logger) (*backend, error) {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConnsPerHost = maxCloudSteps
	// The limit is outside, so that a call's duration is the cloud's own.
	calls := traces.Transport(telemetry.NewTransport(transport, cloudName, reg, log))
	cc := cfg.credentials()
	cc.Version, cc.Log = version, log
	timing := instances.Timing{Poll: cfg.PollInterval, Settle: cfg.SettleWindow}
	if fake != nil {
		cc.AccessKey, cc.SecretKey, cc.ProjectID, cc.APIURL = fake.accessKey, fake.secretKey, fake.projectID, fake.url
		timing = fake.timing
	}
	if fake == nil || cfg.set["api-rate"] {
		limited, err := budget.New(budget.Options{
			Next: calls, Rate: cfg.APIRate, Burst: cfg.APIBurst, Reserve: apiReserve, Metrics: reg,
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
	if cfg.Substrate == SubstrateElasticMetal {
		return openMetal(cfg, client, cc.ProjectID, timing, fake != nil, log)
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

// openMetal makes the adapter of Elastic Metal. It has no deleter: physical
// servers are given back by people only.
func openMetal(cfg *Config, client *scw.Client, project string, timing instances.Timing, fake bool, log *slog.Logger) (*backend, error) {
	c, err := elasticmetal.New(elasticmetal.Config{
		Client: client, Zone: cfg.Zone, ProjectID: project, Provider: cfg.Provider,
		System: cfg.Image, SSHKeys: cfg.sshKeys(), Log: log,
		Timing: metalTiming(timing, fake),
	})
	if err != nil {
		return nil, fmt.Errorf("elastic metal: %w", err)
	}
	startable := func(ctx context.Context) error {
		asking, cancel := context.WithTimeout(ctx, accessDeadline)
		defer cancel()
		err := c.CheckSystem(asking)
		if err == nil || errors.Is(err, cloud.ErrInvalid) {
			return err
		}
		log.Warn("the systems that can be installed could not be read; starting all the same", telemetry.KeyError, err.Error())
		return nil
	}
	return &backend{cloud: c, catalog: c, fitter: c, prober: c, keeper: c, adopter: c, holdOrders: c.HoldOrders, startable: startable}, nil
}

// metalTiming is at the pace of Instances'. An order in doubt costs a machine, so
// that the fake, which lists a server as soon as it is made, has a second for it
// at any scale.
func metalTiming(timing instances.Timing, fake bool) elasticmetal.Timing {
	t := elasticmetal.Timing{Poll: timing.Poll, Settle: timing.Settle}
	if fake {
		t.Settle, t.Hold = max(t.Settle, time.Second), 2*time.Second
	}
	return t
}

// credentials is how the configuration says to reach the API.
func (c *Config) credentials() scaleway.ClientConfig {
	return scaleway.ClientConfig{
		AccessKey: c.AccessKey, SecretKey: c.SecretKey, ProjectID: c.ProjectID, Zone: c.Zone, APIURL: c.APIURL,
	}
}
