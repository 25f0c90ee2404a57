package instances

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/scaleway/scaleway-sdk-go/api/instance/v1"
	"github.com/scaleway/scaleway-sdk-go/scw"

	"bigfleet-providers/provider/internal/cloud"
	"bigfleet-providers/provider/internal/cloud/scaleway"
)

// connect gives the server what it reaches the world by, as far as the order
// could not: an IPv6 and private networks. It must come before the first boot,
// in which the guest sets up the interfaces that it finds.
func (c *Cloud) connect(ctx context.Context, t *cloud.Task) error {
	o, err := cloud.DecodeOptions(t.Spec.Options)
	if err != nil {
		return err
	}
	id, err := c.scope.ID(t.Ref, "server")
	if err != nil {
		return err
	}
	if c.publicAddress(o) == cloud.PublicIPv6 {
		if err := c.connectIPv6(ctx, t, id, o); err != nil {
			return err
		}
	}
	return c.connectPrivate(ctx, t, id, o)
}

// connectIPv6 makes an address and attaches it in one call. One that an earlier
// run made carries the operation's tag.
func (c *Cloud) connectIPv6(ctx context.Context, t *cloud.Task, serverID string, o cloud.Options) error {
	if t.Rerun {
		found, err := c.addressesTagged(ctx, scaleway.OperationTag(t.Spec.OperationID))
		if err != nil {
			return err
		}
		for _, ip := range found {
			addID(t, noteAddresses, ip.ID)
		}
		if len(found) > 0 {
			return c.attach(ctx, serverID, found)
		}
	}
	young := c.young(t)
	resp, err := c.api.CreateIP(&instance.CreateIPRequest{
		Zone: c.scope.Zone, Project: &c.scope.Project, Type: instance.IPTypeRoutedIPv6, Server: &serverID, Tags: c.tags(t.Spec, o),
	}, scw.WithContext(ctx))
	if err == nil && resp.IP == nil {
		err = scaleway.ErrEmptyAnswer
	}
	if err = young(scaleway.Explain(err)); err != nil {
		return fmt.Errorf("public_ip: make an IPv6: %w", scaleway.Limit(err,
			"free addresses of the project, raise their quota (Organization > Quotas in the console), or set public_ip to none in the offering"))
	}
	addID(t, noteAddresses, resp.IP.ID)
	return nil
}

// attach makes sure that one of the addresses is the server's.
func (c *Cloud) attach(ctx context.Context, serverID string, found []*instance.IP) error {
	if slices.ContainsFunc(found, func(ip *instance.IP) bool { return ip.Server != nil && ip.Server.ID == serverID }) {
		return nil
	}
	_, err := c.api.UpdateIP(&instance.UpdateIPRequest{
		Zone: c.scope.Zone, IP: found[0].ID, Server: &instance.NullableStringValue{Value: serverID},
	}, scw.WithContext(ctx))
	if err != nil {
		return fmt.Errorf("public_ip: attach %s: %w", found[0].ID, scaleway.Limit(scaleway.Explain(err), "see the limit that Scaleway names"))
	}
	return nil
}

// connectPrivate attaches the private networks, in their order, which is that of
// the guest's interfaces. A server has at most one interface in each.
func (c *Cloud) connectPrivate(ctx context.Context, t *cloud.Task, serverID string, o cloud.Options) error {
	if len(o.PrivateNetworks) == 0 {
		return nil
	}
	there, young := map[string]bool{}, c.young(t)
	if t.Rerun {
		resp, err := scaleway.Read(&c.guard, c.client, func() (*instance.ListPrivateNICsResponse, error) {
			return c.api.ListPrivateNICs(&instance.ListPrivateNICsRequest{
				Zone: c.scope.Zone, ServerID: serverID, PerPage: new(uint32(maxPageSize)),
			}, scw.WithContext(ctx))
		})
		if err = young(err); err != nil {
			return fmt.Errorf("list private interfaces: %w", err)
		}
		for _, nic := range resp.PrivateNics {
			if nic != nil {
				there[nic.PrivateNetworkID] = true
			}
		}
	}
	for _, network := range o.PrivateNetworks {
		if there[network] {
			continue
		}
		_, err := c.api.CreatePrivateNIC(&instance.CreatePrivateNICRequest{
			Zone: c.scope.Zone, ServerID: serverID, PrivateNetworkID: network, Tags: c.tags(t.Spec, o),
		}, scw.WithContext(ctx))
		err = scaleway.Explain(err)
		if gone, ok := errors.AsType[*scw.ResourceNotFoundError](err); ok && gone.Resource != "instance_server" {
			return fmt.Errorf("%w: private_network_ids: %s: %w; it must be in the project and in the zone's region", cloud.ErrInvalid, network, err)
		}
		if err = young(err); err != nil {
			return fmt.Errorf("private_network_ids: attach %s: %w", network, scaleway.Limit(err,
				"give the private network more room or another to the offering (private_network_ids); a server has at most 8 private interfaces"))
		}
	}
	return nil
}
