package elasticmetal

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
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

// facts is what changes rarely and is asked often.
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
	var resp *baremetal.ListOffersResponse
	err := c.guard.Do(c.client, func() (err error) {
		resp, err = c.api.ListOffers(&baremetal.ListOffersRequest{
			Zone: c.zone, SubscriptionPeriod: baremetal.OfferSubscriptionPeriodHourly, PageSize: new(uint32(maxPageSize)),
		}, scw.WithContext(ctx), scw.WithAllPages())
		return err
	})
	switch {
	case err != nil:
		return nil, fmt.Errorf("list offers: %w", scaleway.Explain(err))
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
	c.facts.offers, c.facts.offersAt = offers, time.Now()
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
	return nil, fmt.Errorf("%w: %s sells no offer %q by the hour: check the spelling, or whether it was retired", cloud.ErrInvalid, c.zone, name)
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
	const arch, archLabel, acceleratorLabel = "amd64", "kubernetes.io/arch", "bigfleet.io/accelerator"
	var threads, memory uint64
	for _, cpu := range o.CPUs {
		if cpu != nil {
			threads += uint64(cpu.ThreadCount)
		}
	}
	for _, m := range o.Memories {
		if m != nil {
			memory += uint64(m.Capacity)
		}
	}
	t := cloud.Type{
		Name: o.Name, Arch: arch, Currency: "EUR",
		Allocatable: map[string]string{"cpu": strconv.FormatUint(threads, 10), "memory": bytesQuantity(memory)},
		Labels:      map[string]string{archLabel: arch},
	}
	if o.PricePerHour != nil {
		t.PricePerHour = o.PricePerHour.ToFloat()
	}
	if len(o.Gpus) > 0 && o.Gpus[0] != nil && strings.Contains(strings.ToLower(o.Gpus[0].Name), "nvidia") {
		t.Allocatable["nvidia.com/gpu"] = strconv.Itoa(len(o.Gpus))
		t.Labels[acceleratorLabel] = labelValue(o.Gpus[0].Name)
	}
	return t
}

func bytesQuantity(n uint64) string {
	const gib = 1 << 30
	if n%gib == 0 {
		return strconv.FormatUint(n/gib, 10) + "Gi"
	}
	return strconv.FormatUint(n, 10)
}

// labelValue makes a Kubernetes label value of a model's name.
func labelValue(s string) string {
	s = strings.Map(func(r rune) rune {
		switch {
		case 'a' <= r && r <= 'z', 'A' <= r && r <= 'Z', '0' <= r && r <= '9', r == '-', r == '_', r == '.':
			return r
		default:
			return '-'
		}
	}, s)
	return strings.Trim(s[:min(len(s), 63)], "-_.")
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

// systemFor is what is installed with the options.
func (c *Cloud) systemFor(ctx context.Context, o cloud.Options) (*baremetal.OS, error) {
	wanted := o.Image
	if wanted == "" {
		wanted = c.system
	}
	systems, err := c.listSystems(ctx)
	if err != nil {
		return nil, err
	}
	system, err := chooseSystem(systems, wanted)
	if err != nil {
		return nil, fmt.Errorf("%w: image %q: %w", cloud.ErrInvalid, wanted, err)
	}
	return system, nil
}

// CheckSystem says whether the system that is installed by default can be: the
// error matches cloud.ErrInvalid when it cannot, and any other means that it
// could not be found out.
func (c *Cloud) CheckSystem(ctx context.Context) error {
	_, err := c.systemFor(ctx, cloud.Options{})
	return err
}

func (c *Cloud) listSystems(ctx context.Context) ([]*baremetal.OS, error) {
	c.facts.mu.Lock()
	defer c.facts.mu.Unlock()
	if len(c.facts.systems) > 0 && time.Since(c.facts.systemsAt) < c.timing.Catalog {
		return c.facts.systems, nil
	}
	var resp *baremetal.ListOSResponse
	err := c.guard.Do(c.client, func() (err error) {
		resp, err = c.api.ListOS(&baremetal.ListOSRequest{Zone: c.zone, PageSize: new(uint32(maxPageSize))}, scw.WithContext(ctx), scw.WithAllPages())
		return err
	})
	switch {
	case err != nil:
		return nil, fmt.Errorf("list systems: %w", scaleway.Explain(err))
	case len(resp.Os) == 0:
		return nil, fmt.Errorf("list systems: %w", scaleway.ErrEmptyAnswer)
	}
	systems := slices.DeleteFunc(resp.Os, func(s *baremetal.OS) bool { return s == nil })
	c.facts.systems, c.facts.systemsAt = systems, time.Now()
	return systems, nil
}

// title is a system's name and version, as operators write it.
func title(s *baremetal.OS) string { return strings.TrimSpace(s.Name + " " + s.Version) }

// chooseSystem finds a system by id, or by name and version, of which the
// version may end early: "Ubuntu 24.04" is "Ubuntu 24.04 LTS (Noble Numbat)". Of
// several it prefers those that run cloud-init; without it no agent gets there.
func chooseSystem(systems []*baremetal.OS, wanted string) (*baremetal.OS, error) {
	var found []*baremetal.OS
	want := strings.ToLower(strings.Join(strings.Fields(wanted), " "))
	for _, s := range systems {
		name := strings.ToLower(title(s))
		if s.ID == want || name == want || strings.HasPrefix(name, want+" ") {
			found = append(found, s)
		}
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("there is no such system; there are %s", titles(systems))
	}
	able := slices.DeleteFunc(slices.Clone(found), func(s *baremetal.OS) bool { return !s.CloudInitSupported })
	if len(able) == 0 {
		return nil, fmt.Errorf("%s does not support cloud-init, so no agent could ever be installed; those that do are %s", title(found[0]), titles(systems))
	}
	usable := slices.DeleteFunc(slices.Clone(able), func(s *baremetal.OS) bool { return !s.Enabled || !s.Allowed || s.LicenseRequired })
	switch len(usable) {
	case 1:
		return usable[0], nil
	case 0:
		return nil, fmt.Errorf("%s may not be installed: it is disabled, not allowed for this account, or needs a licence", title(able[0]))
	default:
		return nil, fmt.Errorf("it fits several systems: %s; name one of them whole, or its id", titles(usable))
	}
}

// titles names the systems that support cloud-init.
func titles(systems []*baremetal.OS) string {
	var names []string
	for _, s := range systems {
		if s.CloudInitSupported {
			names = append(names, strconv.Quote(title(s)))
		}
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
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
	resp, err := c.iam.ListSSHKeys(&iam.ListSSHKeysRequest{
		ProjectID: &c.project, Disabled: new(false), PageSize: new(uint32(maxPageSize)),
	}, scw.WithContext(ctx), scw.WithAllPages())
	if err = scaleway.Explain(err); err != nil {
		if errors.Is(err, cloud.ErrDenied) {
			err = fmt.Errorf("%w; grant SSHKeysReadOnly, or name keys with --ssh-keys", err)
		}
		return nil, fmt.Errorf("list SSH keys: %w", err)
	}
	var keys []string
	for _, k := range resp.SSHKeys {
		if k != nil && !k.Disabled && k.ProjectID == c.project {
			keys = append(keys, k.ID)
		}
	}
	if len(keys) == 0 {
		return nil, fmt.Errorf("%w: project %s has no SSH key, and an install needs one: add one in the console, or name keys with --ssh-keys", cloud.ErrInvalid, c.project)
	}
	c.facts.keys, c.facts.keysAt = keys, time.Now()
	return keys, nil
}
