package scaleway

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/scaleway/scaleway-sdk-go/scw"

	"bigfleet-providers/provider"
	"bigfleet-providers/provider/internal/cloud"
	"bigfleet-providers/provider/internal/cloud/budget"
	"bigfleet-providers/provider/internal/cloud/scaleway"
	"bigfleet-providers/provider/internal/cloud/scaleway/elasticmetal"
	"bigfleet-providers/provider/internal/cloud/scaleway/instances"
	"bigfleet-providers/provider/internal/fakecloud/host"
	"bigfleet-providers/provider/internal/offering"
	"bigfleet-providers/provider/internal/telemetry"
)

const (
	// apiTimeout bounds a call, its wait for its turn included; apiReserve is what
	// must be left of it when the call is sent. The slowest recorded took 3.2 s.
	apiTimeout = 30 * time.Second
	apiReserve = 10 * time.Second
)

// Open implements provider.Settings. The fake is reached by the same client.
func (s *settings) Open(ctx context.Context, c *provider.Config, o provider.Opening) (*provider.Backend, error) {
	a := account{ClientConfig: s.credentials(), timing: instances.Timing{Poll: s.PollInterval, Settle: s.SettleWindow}}
	if o.Trial == nil {
		return s.open(c, o, a)
	}
	fake, err := s.openFake(ctx, c, o)
	if err != nil {
		return nil, err
	}
	back, err := s.open(c, o, fake.account)
	if err != nil {
		return nil, errors.Join(err, fake.Close())
	}
	back.Fake = &provider.Fake{
		Scaled: s.scaled, Processes: s.FakeHosts == string(host.Process), Restore: fake.restore, Close: fake.Close,
	}
	return back, nil
}

// account is what an adapter calls, and how often it looks.
type account struct {
	scaleway.ClientConfig
	timing instances.Timing
}

// open makes the adapter of the substrate.
func (s *settings) open(c *provider.Config, o provider.Opening, a account) (*provider.Backend, error) {
	a.Version, a.Log = o.Version, o.Log
	calls := o.Transport
	if o.Trial == nil || c.Given("api-rate") {
		limited, err := budget.New(budget.Options{
			Next: calls, Rate: s.APIRate, Burst: s.APIBurst, Reserve: apiReserve, Metrics: o.Metrics,
		})
		if err != nil {
			return nil, fmt.Errorf("limit on API calls: %w", err)
		}
		calls = limited
	}
	a.HTTP = &http.Client{Timeout: apiTimeout, Transport: calls}
	client, err := scaleway.NewClient(a.ClientConfig)
	if err != nil {
		return nil, err
	}
	var back *provider.Backend
	if s.metal() {
		back, err = s.openMetal(c, o, client, a)
	} else {
		back, err = s.openInstances(c, o, client, a)
	}
	if err != nil {
		return nil, err
	}
	if o.Trial == nil { // fake hosts reach their own channel by other ways
		back.Reach = func(offerings []offering.Offering) []string { return s.reachWarnings(c.Bootstrap.Endpoint, offerings) }
	}
	return back, nil
}

func (s *settings) openInstances(c *provider.Config, o provider.Opening, client *scw.Client, a account) (*provider.Backend, error) {
	adapter, err := instances.New(instances.Config{
		Client: client, Zone: s.Zone, ProjectID: a.ProjectID, Provider: c.Provider,
		Image: s.Image, NoPublicIP: s.NoPublicIP, Timing: a.timing, Log: o.Log,
	})
	if err != nil {
		return nil, fmt.Errorf("scaleway instances: %w", err)
	}
	return &provider.Backend{
		Cloud: adapter, Deleter: adapter, Sweeper: adapter, Catalog: adapter, Fitter: adapter, Prober: adapter, Poll: a.timing.Poll,
	}, nil
}

// openMetal makes the adapter of Elastic Metal. It has no deleter: physical
// servers are given back by people only.
func (s *settings) openMetal(c *provider.Config, o provider.Opening, client *scw.Client, a account) (*provider.Backend, error) {
	adapter, err := elasticmetal.New(elasticmetal.Config{
		Client: client, Zone: s.Zone, ProjectID: a.ProjectID, Provider: c.Provider,
		System: s.Image, SSHKeys: s.sshKeys(), Log: o.Log,
		Timing: metalTiming(a.timing, o.Trial != nil),
	})
	if err != nil {
		return nil, fmt.Errorf("elastic metal: %w", err)
	}
	startable := func(ctx context.Context) error {
		switch err := adapter.CheckSystem(ctx); {
		case errors.Is(err, cloud.ErrInvalid):
			return fmt.Errorf("--image: %w", err)
		case err != nil:
			o.Log.Warn("the systems that can be installed could not be read; starting all the same", telemetry.KeyError, err.Error())
		}
		return nil
	}
	return &provider.Backend{
		Cloud: adapter, Catalog: adapter, Fitter: adapter, Prober: adapter, Keeper: adapter, Adopter: adapter, Returner: adapter,
		Poll: a.timing.Poll, HoldOrders: adapter.HoldOrders, Startable: startable,
	}, nil
}

// metalTiming is at the pace of Instances'. An order in doubt costs a machine, so
// that the fake, which lists a server as soon as it is made, has a second for it
// at any scale.
func metalTiming(timing instances.Timing, fake bool) elasticmetal.Timing {
	t := elasticmetal.Timing{Poll: timing.Poll, Settle: timing.Settle}
	if fake {
		t.Settle, t.Patience, t.Hold = max(t.Settle, time.Second), 5*time.Second, 2*time.Second
	}
	return t
}

// credentials is how the configuration says to reach the API.
func (s *settings) credentials() scaleway.ClientConfig {
	return scaleway.ClientConfig{
		AccessKey: s.AccessKey, SecretKey: s.SecretKey, ProjectID: s.ProjectID, Zone: s.Zone, APIURL: s.APIURL,
	}
}
