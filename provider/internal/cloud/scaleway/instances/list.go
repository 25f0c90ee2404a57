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

// The largest page that the API gives, and how often a list that changed under
// the reader is read anew before that counts as a failure.
const (
	pageSize   = 100
	listPasses = 5
)

// List implements cloud.Cloud.
func (c *Cloud) List(ctx context.Context) ([]cloud.Instance, error) {
	servers, err := c.list(ctx, scaleway.OwnerTag(c.provider))
	if err != nil {
		return nil, err
	}
	list := make([]cloud.Instance, 0, len(servers))
	for _, s := range servers {
		list = append(list, c.instance(s))
	}
	return list, nil
}

// list reads every server that is ours and has all the tags.
func (c *Cloud) list(ctx context.Context, tags ...string) ([]*instance.Server, error) {
	for range listPasses {
		servers, err := c.pass(ctx, tags)
		if errors.Is(err, errMoved) {
			continue
		}
		return servers, err
	}
	return nil, fmt.Errorf("list servers: %w in each of %d passes", errMoved, listPasses)
}

// errMoved says that servers came or went while the pages were read. Pages are
// cut by offset, so a pass over a moving list may miss a server.
var errMoved = errors.New("the list changed while it was read")

// pass reads all pages once. It counts only if the pages together hold as many
// servers as the last one says there are. Oldest first, so that new servers
// come at the end and disturb nothing.
func (c *Cloud) pass(ctx context.Context, tags []string) ([]*instance.Server, error) {
	var (
		servers []*instance.Server
		seen    = map[string]bool{}
		total   uint32
	)
	for page := int32(1); ; page++ {
		resp, err := c.page(ctx, tags, page)
		if err != nil {
			return nil, fmt.Errorf("list servers, page %d: %w", page, err)
		}
		if resp.TotalCount < total {
			return nil, errMoved
		}
		total = resp.TotalCount
		for _, s := range resp.Servers {
			if s == nil || seen[s.ID] {
				continue
			}
			seen[s.ID] = true
			if c.owns(s) { // the filters of the API are not relied on
				servers = append(servers, s)
			}
		}
		if uint32(len(seen)) >= total || len(resp.Servers) == 0 {
			break
		}
	}
	if uint32(len(seen)) != total {
		return nil, errMoved
	}
	return servers, nil
}

func (c *Cloud) page(ctx context.Context, tags []string, page int32) (*instance.ListServersResponse, error) {
	var resp *instance.ListServersResponse
	err := c.guard.Do(c.client, func() (err error) {
		resp, err = c.api.ListServers(&instance.ListServersRequest{
			Zone:    c.zone,
			Project: &c.project, // without it the list spans every project the key can read
			Tags:    tags,
			Order:   instance.ListServersRequestOrderCreationDateAsc,
			PerPage: new(uint32(pageSize)),
			Page:    &page,
		}, scw.WithContext(ctx))
		return err
	})
	switch {
	case err != nil:
		return nil, scaleway.Explain(err)
	case resp.Servers == nil:
		return nil, scaleway.ErrEmptyAnswer // or "no servers" would be read out of an empty body
	case resp.TotalCount == 0 && len(resp.Servers) > 0:
		return nil, errors.New("the answer lacks X-Total-Count, so nobody can tell whether it is complete")
	}
	return resp, nil
}

// volumesTagged reads the block volumes of this provider that have the tag.
func (c *Cloud) volumesTagged(ctx context.Context, tag string) ([]*block.Volume, error) {
	var resp *block.ListVolumesResponse
	err := c.guard.Do(c.client, func() (err error) {
		resp, err = c.block.ListVolumes(&block.ListVolumesRequest{
			Zone: c.zone, ProjectID: &c.project, Tags: []string{tag},
			PageSize: new(uint32(pageSize)),
		}, scw.WithContext(ctx), scw.WithAllPages())
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("list volumes: %w", scaleway.Explain(err))
	}
	var volumes []*block.Volume
	for _, v := range resp.Volumes {
		if v != nil && v.ProjectID == c.project && hasTag(v.Tags, tag) && scaleway.ParseTags(v.Tags).Owner == c.provider {
			volumes = append(volumes, v)
		}
	}
	return volumes, nil
}
