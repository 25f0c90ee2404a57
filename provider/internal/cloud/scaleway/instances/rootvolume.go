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

// labelRoot tags the block volume that a server was ordered with, if it has no
// tag of ours yet: once the server is gone nothing else says whose it is. A key
// that may not even read the volume may not delete it either, so the server stays,
// stopped and tagged, until the key may. One that may read it goes on: the task has
// the volume's id.
func (c *Cloud) labelRoot(ctx context.Context, server *instance.Server) error {
	root := server.Volumes["0"]
	if root == nil || !onBlock(root) {
		return nil
	}
	volume, err := c.volume(ctx, root.ID)
	if errors.Is(err, cloud.ErrNotFound) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("server %s is kept until its volume can be removed with it: %w", server.ID, err)
	}
	if c.scope.Owns(volume.ProjectID, volume.Tags) {
		return nil
	}
	ours := scaleway.ParseTags(server.Tags)
	tags := scaleway.Replace(volume.Tags, scaleway.Tags{Owner: ours.Owner, Machine: ours.Machine, Operation: ours.Operation})
	err = c.guard.Do(c.client, func() error {
		_, err := c.block.UpdateVolume(&block.UpdateVolumeRequest{Zone: c.scope.Zone, VolumeID: root.ID, Tags: &tags}, scw.WithContext(ctx))
		return err
	})
	if err = ignoreNotFound(scaleway.Explain(err)); err != nil {
		c.log.Warn("the volume of a server that goes cannot be tagged; only this provider's state knows it until it is deleted", "server", server.ID, "volume", root.ID, "error", err)
	}
	return nil
}

// blockGrant is the permission without which volumes can be neither tagged nor
// deleted.
const blockGrant = "grant BlockStorageFullAccess: without it a Create of a server with block storage fails, and what it made stays and bills until the key has it"

// Missing implements cloud.Prober.
func (c *Cloud) Missing(ctx context.Context) error {
	_, err := scaleway.Read(&c.guard, c.client, func() (*block.ListVolumesResponse, error) {
		return c.block.ListVolumes(&block.ListVolumesRequest{Zone: c.scope.Zone, ProjectID: &c.scope.Project, PageSize: new(uint32(1))}, scw.WithContext(ctx))
	})
	if errors.Is(err, cloud.ErrDenied) {
		return fmt.Errorf("%w; %s", err, blockGrant)
	}
	return err
}
