package elasticmetal

import (
	"context"
	"errors"
	"fmt"

	"github.com/scaleway/scaleway-sdk-go/api/baremetal/v1"
	"github.com/scaleway/scaleway-sdk-go/scw"

	"bigfleet-providers/provider/internal/cloud"
	"bigfleet-providers/provider/internal/cloud/scaleway"
)

// listTries is how often a list is read anew because it changed meanwhile.
const listTries = 4

// errMoved says that the list did not hold still for long enough.
var errMoved = errors.New("servers came and went faster than the list could be read")

// List implements cloud.Cloud.
func (c *Cloud) List(ctx context.Context) ([]cloud.Instance, error) {
	servers, err := c.list(ctx, scaleway.OwnerTag(c.scope.Provider))
	if err != nil {
		return nil, err
	}
	list := make([]cloud.Instance, 0, len(servers))
	for _, s := range servers {
		list = append(list, c.instance(s))
	}
	return list, nil
}

// Oldest implements cloud.Cloud.
func (c *Cloud) Oldest(ctx context.Context) (cloud.Instance, bool, error) {
	resp, err := c.page(ctx, []string{scaleway.OwnerTag(c.scope.Provider)}, 1, 1)
	if err != nil {
		return cloud.Instance{}, false, fmt.Errorf("read the oldest server: %w", err)
	}
	if len(resp.Servers) == 0 || resp.Servers[0] == nil || !c.owns(resp.Servers[0]) {
		return cloud.Instance{}, false, nil
	}
	return c.instance(resp.Servers[0]), true, nil
}

// list reads every server that is ours and has all the tags, oldest first.
//
// Pages are cut by offset: when a server goes, one behind it slips into a page
// that was read already. Servers come and go rarely, so a list whose total
// changed, or does not add up, is read anew.
func (c *Cloud) list(ctx context.Context, tags ...string) ([]*baremetal.Server, error) {
	if len(tags) == 0 {
		tags = []string{scaleway.OwnerTag(c.scope.Provider)}
	}
	for range listTries {
		servers, whole, err := c.listOnce(ctx, tags)
		if err != nil || whole {
			return servers, err
		}
	}
	return nil, fmt.Errorf("list servers: %w", errMoved)
}

func (c *Cloud) listOnce(ctx context.Context, tags []string) (servers []*baremetal.Server, whole bool, err error) {
	seen := map[string]bool{}
	total := uint32(0)
	for page := 1; ; page++ {
		resp, err := c.page(ctx, tags, page, c.pageSize)
		if err != nil {
			return nil, false, fmt.Errorf("list servers, page %d: %w", page, err)
		}
		if page > 1 && resp.TotalCount != total {
			return nil, false, nil
		}
		total = resp.TotalCount
		for _, s := range resp.Servers {
			if s == nil || seen[s.ID] {
				return nil, false, nil
			}
			seen[s.ID] = true
			if c.owns(s) { // the filters of the API are not relied on
				servers = append(servers, s)
			}
		}
		if len(seen) >= int(total) || len(resp.Servers) == 0 {
			return servers, len(seen) == int(total), nil
		}
	}
}

func (c *Cloud) page(ctx context.Context, tags []string, page, size int) (*baremetal.ListServersResponse, error) {
	resp, err := scaleway.Read(&c.guard, c.client, func() (*baremetal.ListServersResponse, error) {
		return c.api.ListServers(&baremetal.ListServersRequest{
			Zone:      c.scope.Zone,
			ProjectID: &c.scope.Project, // without it the list spans every project the key can read
			Tags:      tags,
			OrderBy:   baremetal.ListServersRequestOrderByCreatedAtAsc,
			PageSize:  new(uint32(size)),
			Page:      new(int32(page)),
		}, scw.WithContext(ctx))
	})
	if err != nil {
		return nil, err
	}
	if resp.Servers == nil {
		return nil, scaleway.ErrEmptyAnswer // or "no servers" would be read out of an empty body
	}
	return resp, nil
}
