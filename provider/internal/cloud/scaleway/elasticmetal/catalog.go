package elasticmetal

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/scaleway/scaleway-sdk-go/api/baremetal/v1"
	"github.com/scaleway/scaleway-sdk-go/api/iam/v1alpha1"
	"github.com/scaleway/scaleway-sdk-go/scw"

	"bigfleet-providers/provider/internal/cloud"
	"bigfleet-providers/provider/internal/cloud/scaleway"
)

// cloudInitTag marks the offers that take user data.
const cloudInitTag = "cloud-init"

// facts is what changes rarely and is asked often. Each is as old as the call that
// asked for it.
type facts struct {
	mu        sync.Mutex
	systems   []*baremetal.OS
	systemsAt time.Time
	keys      []string
	keysAt    time.Time
	offers    map[string]*baremetal.Offer // as last read
	offersAt  time.Time
}

func (f *facts) forget() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.systemsAt, f.keysAt = time.Time{}, time.Time{}
}

// Recorded implements cloud.Catalog. There is no record of the hardware of these
// offers, and no guess is offered in its place: slots that exist stay as they
// are, and new ones wait until the API has answered.
func (c *Cloud) Recorded() (map[string]cloud.Type, error) { return map[string]cloud.Type{}, nil }

// Types implements cloud.Catalog: the offers that are billed by the hour. Those
// by the month are other offers, with a fee of a month at the start.
func (c *Cloud) Types(ctx context.Context) (map[string]cloud.Type, error) {
	offers, err := c.listOffers(ctx)
	if err != nil {
		return nil, err
	}
	types := make(map[string]cloud.Type, len(offers))
	for name, o := range offers {
		types[name] = typeOf(o)
	}
	return types, nil
}

func (c *Cloud) listOffers(ctx context.Context) (map[string]*baremetal.Offer, error) {
	asked := time.Now()
	resp, err := scaleway.Read(&c.guard, c.client, func() (*baremetal.ListOffersResponse, error) {
		return c.api.ListOffers(&baremetal.ListOffersRequest{
			Zone: c.scope.Zone, SubscriptionPeriod: baremetal.OfferSubscriptionPeriodHourly, PageSize: new(uint32(maxPageSize)),
		}, scw.WithContext(ctx), scw.WithAllPages())
	})
	switch {
	case err != nil:
		return nil, fmt.Errorf("list offers: %w", err)
	case resp.Offers == nil:
		return nil, fmt.Errorf("list offers: %w", scaleway.ErrEmptyAnswer)
	case len(resp.Offers) < int(resp.TotalCount):
		return nil, fmt.Errorf("list offers: %d of %d came before the pages ended", len(resp.Offers), resp.TotalCount)
	}
	offers := map[string]*baremetal.Offer{}
	for _, o := range resp.Offers {
		if o != nil && o.Enable && hourly(o) {
			offers[o.Name] = o
		}
	}
	c.facts.mu.Lock()
	defer c.facts.mu.Unlock()
	c.facts.offers, c.facts.offersAt = offers, asked
	return offers, nil
}

// hourly is judged here too: ordered by the month, a server costs one at once.
func hourly(o *baremetal.Offer) bool {
	return o.SubscriptionPeriod == baremetal.OfferSubscriptionPeriodHourly
}

// offer reads one offer, with its stock of a moment ago at most.
func (c *Cloud) offer(ctx context.Context, name string) (*baremetal.Offer, error) {
	c.facts.mu.Lock()
	offers, at := c.facts.offers, c.facts.offersAt
	c.facts.mu.Unlock()
	if time.Since(at) > c.timing.Poll {
		var err error
		if offers, err = c.listOffers(ctx); err != nil {
			return nil, err
		}
	}
	if o := offers[name]; o != nil {
		return o, nil
	}
	return nil, fmt.Errorf("%w: %s sells no offer %q by the hour: check the spelling, or whether it was retired", cloud.ErrInvalid, c.scope.Zone, name)
}

// lastPrice words what an offer costs, as it was last read; "" when it was not.
func (c *Cloud) lastPrice(name string) string {
	c.facts.mu.Lock()
	defer c.facts.mu.Unlock()
	o := c.facts.offers[name]
	if o == nil || o.PricePerHour == nil {
		return ""
	}
	return fmt.Sprintf(", %.3f %s an hour without tax,", o.PricePerHour.ToFloat(), o.PricePerHour.CurrencyCode)
}

func typeOf(o *baremetal.Offer) cloud.Type {
	h := scaleway.Hardware{Arch: "amd64"}
	for _, cpu := range o.CPUs {
		if cpu != nil {
			h.CPUs += uint64(cpu.ThreadCount)
		}
	}
	for _, m := range o.Memories {
		if m != nil {
			h.Memory += uint64(m.Capacity)
		}
	}
	if len(o.Gpus) > 0 && o.Gpus[0] != nil && strings.Contains(strings.ToLower(o.Gpus[0].Name), "nvidia") {
		h.GPUs, h.Nvidia = uint64(len(o.Gpus)), o.Gpus[0].Name
	}
	perHour := 0.0
	if o.PricePerHour != nil {
		perHour = o.PricePerHour.ToFloat()
	}
	return h.Type(o.Name, perHour)
}

// Fit implements cloud.Fitter.
func (c *Cloud) Fit(ctx context.Context, commercialType string, o cloud.Options) error {
	if o.RootVolume != nil || len(o.PrivateNetworks) > 0 || o.SecurityGroup != "" || o.PlacementGroup != "" || o.PublicIP != "" {
		return fmt.Errorf("%w: root_volume, private_network_ids, security_group_id, placement_group_id, public_ip: dedicated servers have none of them", cloud.ErrInvalid)
	}
	system, err := c.systemFor(ctx, o)
	if err != nil {
		return err
	}
	c.facts.mu.Lock()
	offer := c.facts.offers[commercialType]
	c.facts.mu.Unlock()
	if offer == nil {
		if offer, err = c.offer(ctx, commercialType); err != nil {
			return err
		}
	}
	switch {
	case !slices.Contains(offer.Tags, cloudInitTag):
		return fmt.Errorf("%w: offer %s takes no user data (it lacks the tag %q), so no agent could ever be installed on it", cloud.ErrInvalid, offer.Name, cloudInitTag)
	case slices.Contains(offer.IncompatibleOsIDs, system.ID):
		return fmt.Errorf("%w: image: %s cannot be installed on %s", cloud.ErrInvalid, title(system), offer.Name)
	}
	return nil
}

// keys are the SSH keys of an install, which needs one at least.
func (c *Cloud) keys(ctx context.Context) ([]string, error) {
	if len(c.sshKeys) > 0 {
		return c.sshKeys, nil
	}
	c.facts.mu.Lock()
	defer c.facts.mu.Unlock()
	if len(c.facts.keys) > 0 && time.Since(c.facts.keysAt) < c.timing.Catalog {
		return c.facts.keys, nil
	}
	asked := time.Now()
	resp, err := c.iam.ListSSHKeys(&iam.ListSSHKeysRequest{
		ProjectID: &c.scope.Project, Disabled: new(false), PageSize: new(uint32(maxPageSize)),
	}, scw.WithContext(ctx), scw.WithAllPages())
	if err = scaleway.Explain(err); err != nil {
		if errors.Is(err, cloud.ErrDenied) {
			err = fmt.Errorf("%w; grant SSHKeysReadOnly, or name keys with --ssh-keys", err)
		}
		return nil, fmt.Errorf("list SSH keys: %w", err)
	}
	var keys []string
	for _, k := range resp.SSHKeys {
		if k != nil && !k.Disabled && k.ProjectID == c.scope.Project {
			keys = append(keys, k.ID)
		}
	}
	if len(keys) == 0 {
		return nil, fmt.Errorf("%w: project %s has no SSH key, and an install needs one: add one in the console, or name keys with --ssh-keys", cloud.ErrInvalid, c.scope.Project)
	}
	c.facts.keys, c.facts.keysAt = keys, asked
	return keys, nil
}
