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

// Strays implements cloud.Sweeper: volumes of both planes and flexible IPs.
// Dynamic addresses carry no tags and go with their server.
func (c *Cloud) Strays(ctx context.Context) ([]cloud.Stray, error) {
	tag := scaleway.OwnerTag(c.scope.Provider)
	volumes, err := c.volumesTagged(ctx, tag)
	if err != nil {
		return nil, err
	}
	locals, err := c.localVolumesTagged(ctx, tag)
	if err != nil {
		return nil, err
	}
	addresses, err := c.addressesTagged(ctx, tag)
	if err != nil {
		return nil, err
	}
	var strays []cloud.Stray
	for _, v := range volumes {
		if !idleVolume(v) {
			continue
		}
		s := c.stray(cloud.KindVolume, v.ID, v.Tags)
		if v.CreatedAt != nil {
			s.Created = *v.CreatedAt
		}
		strays = append(strays, s)
	}
	for _, v := range locals {
		if !idleLocal(v) {
			continue
		}
		s := c.stray(cloud.KindVolume, v.ID, v.Tags)
		if v.CreationDate != nil {
			s.Created = *v.CreationDate
		}
		strays = append(strays, s)
	}
	for _, ip := range addresses {
		if ip.Server == nil {
			strays = append(strays, c.stray(cloud.KindAddress, ip.ID, ip.Tags))
		}
	}
	return strays, nil
}

func (c *Cloud) stray(kind, id string, list []string) cloud.Stray {
	tags := scaleway.ParseTags(list)
	return cloud.Stray{Kind: kind, Ref: c.scope.Ref(id), MachineID: tags.Machine, OperationID: tags.Operation}
}

// idleVolume says that nothing uses a volume and nothing is being done to it.
func idleVolume(v *block.Volume) bool {
	return len(v.References) == 0 && (v.Status == block.VolumeStatusAvailable || v.Status == block.VolumeStatusError)
}

// idleLocal is idleVolume for local volumes.
func idleLocal(v *instance.Volume) bool {
	return v.Server == nil && (v.State == instance.VolumeStateAvailable || v.State == instance.VolumeStateError)
}

// Remove implements cloud.Sweeper.
func (c *Cloud) Remove(ctx context.Context, s cloud.Stray) error {
	id, err := c.scope.ID(s.Ref, s.Kind)
	if err != nil {
		return err
	}
	switch s.Kind {
	case cloud.KindVolume:
		if err = c.removeVolume(ctx, id); errors.Is(err, cloud.ErrNotFound) {
			err = c.removeLocalVolume(ctx, id) // the other plane's, or gone
		}
	case cloud.KindAddress:
		err = c.removeAddress(ctx, id)
	default:
		err = fmt.Errorf("%w: %q is not a kind of thing that this provider makes", cloud.ErrInvalid, s.Kind)
	}
	return ignoreNotFound(err)
}

func (c *Cloud) removeVolume(ctx context.Context, id string) error {
	volume, err := c.volume(ctx, id)
	if err != nil {
		return err
	}
	if !c.scope.Owns(volume.ProjectID, volume.Tags) || !idleVolume(volume) {
		return errInUse("volume", id)
	}
	err = c.block.DeleteVolume(&block.DeleteVolumeRequest{Zone: c.scope.Zone, VolumeID: id}, scw.WithContext(ctx))
	return scaleway.Explain(err)
}

func (c *Cloud) removeLocalVolume(ctx context.Context, id string) error {
	resp, err := c.api.GetVolume(&instance.GetVolumeRequest{Zone: c.scope.Zone, VolumeID: id}, scw.WithContext(ctx))
	switch {
	case err != nil:
		return scaleway.Explain(err)
	case resp.Volume == nil:
		return fmt.Errorf("read local volume %s: %w", id, scaleway.ErrEmptyAnswer)
	case !c.scope.Owns(resp.Volume.Project, resp.Volume.Tags) || !idleLocal(resp.Volume):
		return errInUse("local volume", id)
	}
	err = c.api.DeleteVolume(&instance.DeleteVolumeRequest{Zone: c.scope.Zone, VolumeID: id}, scw.WithContext(ctx))
	return scaleway.Explain(err)
}

func (c *Cloud) removeAddress(ctx context.Context, id string) error {
	resp, err := c.api.GetIP(&instance.GetIPRequest{Zone: c.scope.Zone, IP: id}, scw.WithContext(ctx))
	switch {
	case err != nil:
		return scaleway.Explain(err)
	case resp.IP == nil:
		return fmt.Errorf("read address %s: %w", id, scaleway.ErrEmptyAnswer)
	case !c.scope.Owns(resp.IP.Project, resp.IP.Tags) || resp.IP.Server != nil:
		return errInUse("address", id)
	}
	err = c.api.DeleteIP(&instance.DeleteIPRequest{Zone: c.scope.Zone, IP: id}, scw.WithContext(ctx))
	return scaleway.Explain(err)
}

func errInUse(what, id string) error {
	return fmt.Errorf("%w: %s %s is in use or no longer this provider's; it is left alone", cloud.ErrConflict, what, id)
}

// volume reads a block volume.
func (c *Cloud) volume(ctx context.Context, id string) (*block.Volume, error) {
	volume, err := scaleway.Read(&c.guard, c.client, func() (*block.Volume, error) {
		return c.block.GetVolume(&block.GetVolumeRequest{Zone: c.scope.Zone, VolumeID: id}, scw.WithContext(ctx))
	})
	if err != nil {
		return nil, fmt.Errorf("read volume %s: %w", id, err)
	}
	return volume, nil
}
