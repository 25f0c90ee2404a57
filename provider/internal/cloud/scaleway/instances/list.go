package instances

import (
	"context"
	"errors"
	"fmt"

	block "github.com/scaleway/scaleway-sdk-go/api/block/v1"
	"github.com/scaleway/scaleway-sdk-go/api/instance/v1"
	"github.com/scaleway/scaleway-sdk-go/scw"

	"bigfleet-providers/provider/internal/cloud"
	"bigfleet-providers/provider/internal/cloud/scaleway"
)

// maxPageSize is the largest page that the API gives.
const maxPageSize = 100

// maxSteps bounds how often one List steps back because servers went away while
// it read.
const maxSteps = 50

// errMoved says that the list did not hold still for long enough.
var errMoved = errors.New("servers went away faster than the list could be read")

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
	if len(resp.Servers) == 0 || !c.owns(resp.Servers[0]) {
		return cloud.Instance{}, false, nil
	}
	return c.instance(resp.Servers[0]), true, nil
}

// list reads every server that is ours and has all the tags.
//
// Pages are cut by offset: when a server goes, all after it move forward, and
// one of them slips from the page to be read next into one that was read. So a
// page counts only if the server right before it, or its own first, was seen
// already; otherwise the page before is read again, which holds what slipped.
// Read oldest first, new servers come at the end and move nothing.
func (c *Cloud) list(ctx context.Context, tags ...string) ([]*instance.Server, error) {
	var servers []*instance.Server
	seen := map[string]bool{}
	for page, steps := 1, 0; ; {
		resp, err := c.page(ctx, tags, page, c.pageSize)
		if err != nil {
			return nil, fmt.Errorf("list servers, page %d: %w", page, err)
		}
		joined, err := c.joins(ctx, tags, page, resp.Servers, seen)
		if err != nil {
			return nil, fmt.Errorf("list servers, before page %d: %w", page, err)
		}
		if !joined {
			if steps++; steps > maxSteps {
				return nil, fmt.Errorf("list servers: %w", errMoved)
			}
			page--
			continue
		}
		for _, s := range resp.Servers {
			if seen[s.ID] {
				continue
			}
			seen[s.ID] = true
			if c.owns(s) { // the filters of the API are not relied on
				servers = append(servers, s)
			}
		}
		if page*c.pageSize >= int(resp.TotalCount) {
			return servers, nil
		}
		page++
	}
}

// joins says whether nothing can have slipped between the page and what was
// seen.
func (c *Cloud) joins(ctx context.Context, tags []string, page int, servers []*instance.Server, seen map[string]bool) (bool, error) {
	switch {
	case page == 1:
		return true, nil
	case len(servers) == 0: // the list ends earlier by now
		return false, nil
	case seen[servers[0].ID]:
		return true, nil
	}
	before, err := c.page(ctx, tags, (page-1)*c.pageSize, 1)
	if err != nil {
		return false, err
	}
	return len(before.Servers) == 1 && seen[before.Servers[0].ID], nil
}

// page reads one page and makes sure that it is what was asked for.
func (c *Cloud) page(ctx context.Context, tags []string, page, size int) (*instance.ListServersResponse, error) {
	resp, err := scaleway.Read(&c.guard, c.client, func() (*instance.ListServersResponse, error) {
		return c.api.ListServers(&instance.ListServersRequest{
			Zone:    c.scope.Zone,
			Project: &c.scope.Project, // without it the list spans every project the key can read
			Tags:    tags,
			Order:   instance.ListServersRequestOrderCreationDateAsc,
			PerPage: new(uint32(size)),
			Page:    new(int32(page)),
		}, scw.WithContext(ctx))
	})
	if err != nil {
		return nil, err
	}
	if resp.Servers == nil {
		return nil, scaleway.ErrEmptyAnswer // or "no servers" would be read out of an empty body
	}
	// Also when the answer lacks X-Total-Count.
	if due := min(max(int(resp.TotalCount)-(page-1)*size, 0), size); len(resp.Servers) != due {
		return nil, fmt.Errorf("the page holds %d servers, but of %d in all it should hold %d", len(resp.Servers), resp.TotalCount, due)
	}
	return resp, nil
}

// localVolumesTagged reads the local volumes of this provider that have the tag.
func (c *Cloud) localVolumesTagged(ctx context.Context, tag string) ([]*instance.Volume, error) {
	resp, err := scaleway.Read(&c.guard, c.client, func() (*instance.ListVolumesResponse, error) {
		return c.api.ListVolumes(&instance.ListVolumesRequest{
			Zone: c.scope.Zone, Project: &c.scope.Project, Tags: []string{tag}, PerPage: new(uint32(maxPageSize)),
		}, scw.WithContext(ctx), scw.WithAllPages())
	})
	if err != nil {
		return nil, fmt.Errorf("list local volumes: %w", err)
	}
	return tagged(c.scope, tag, resp.Volumes, func(v *instance.Volume) (string, string, []string) { return v.ID, v.Project, v.Tags }), nil
}

// volumesTagged reads the block volumes of this provider that have the tag.
func (c *Cloud) volumesTagged(ctx context.Context, tag string) ([]*block.Volume, error) {
	resp, err := scaleway.Read(&c.guard, c.client, func() (*block.ListVolumesResponse, error) {
		return c.block.ListVolumes(&block.ListVolumesRequest{
			Zone: c.scope.Zone, ProjectID: &c.scope.Project, Tags: []string{tag}, PageSize: new(uint32(maxPageSize)),
		}, scw.WithContext(ctx), scw.WithAllPages())
	})
	if err != nil {
		return nil, fmt.Errorf("list volumes: %w", err)
	}
	return tagged(c.scope, tag, resp.Volumes, func(v *block.Volume) (string, string, []string) { return v.ID, v.ProjectID, v.Tags }), nil
}

// addressesTagged reads the flexible IPs of this provider that have the tag.
func (c *Cloud) addressesTagged(ctx context.Context, tag string) ([]*instance.IP, error) {
	resp, err := c.api.ListIPs(&instance.ListIPsRequest{
		Zone: c.scope.Zone, Project: &c.scope.Project, Tags: []string{tag}, PerPage: new(uint32(maxPageSize)),
	}, scw.WithContext(ctx), scw.WithAllPages())
	if err != nil {
		return nil, fmt.Errorf("list addresses: %w", scaleway.Explain(err))
	}
	return tagged(c.scope, tag, resp.IPs, func(ip *instance.IP) (string, string, []string) { return ip.ID, ip.Project, ip.Tags }), nil
}

// tagged returns what is in scope and has the tag, each once: a page can repeat
// what was on the one before, and the filters of the API are not relied on.
func tagged[T any](scope scaleway.Scope, tag string, list []*T, read func(*T) (id, project string, tags []string)) []*T {
	var ours []*T
	seen := map[string]bool{}
	for _, v := range list {
		if v == nil {
			continue
		}
		id, project, tags := read(v)
		if !seen[id] && hasTag(tags, tag) && scope.Owns(project, tags) {
			seen[id] = true
			ours = append(ours, v)
		}
	}
	return ours
}
