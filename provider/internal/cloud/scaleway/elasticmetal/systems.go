package elasticmetal

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/scaleway/scaleway-sdk-go/api/baremetal/v1"
	"github.com/scaleway/scaleway-sdk-go/scw"

	"bigfleet-providers/provider/internal/cloud"
	"bigfleet-providers/provider/internal/cloud/scaleway"
)

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
	asked := time.Now()
	resp, err := scaleway.Read(&c.guard, c.client, func() (*baremetal.ListOSResponse, error) {
		return c.api.ListOS(&baremetal.ListOSRequest{Zone: c.scope.Zone, PageSize: new(uint32(maxPageSize))}, scw.WithContext(ctx), scw.WithAllPages())
	})
	switch {
	case err != nil:
		return nil, fmt.Errorf("list systems: %w", err)
	case len(resp.Os) == 0:
		return nil, fmt.Errorf("list systems: %w", scaleway.ErrEmptyAnswer)
	}
	systems := slices.DeleteFunc(resp.Os, func(s *baremetal.OS) bool { return s == nil })
	c.facts.systems, c.facts.systemsAt = systems, asked
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
