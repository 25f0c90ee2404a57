package elasticmetal

import (
	"context"
	"errors"
	"fmt"

	"github.com/scaleway/scaleway-sdk-go/validation"

	"bigfleet-providers/provider/internal/cloud"
	"bigfleet-providers/provider/internal/cloud/scaleway"
)

// Reserve names the servers that the offerings file gives, in place of those of
// the call before: when such a server becomes a spare, only a Create that names
// it takes it.
func (c *Cloud) Reserve(serverIDs []string) {
	given := make(map[string]bool, len(serverIDs))
	for _, id := range serverIDs {
		given[id] = true
	}
	c.given.Store(&given)
}

func (c *Cloud) reserved(serverID string) bool {
	given := c.given.Load()
	return given != nil && (*given)[serverID]
}

// Adopt makes a server that an operator names a machine's: it writes the
// machine's id on a server that carries this provider's tag and an installed
// system, so that the next inventory finds it. A server that is the machine's
// already, as mine tells of the machine that its tags name, stays as it is; so
// does a spare, which a Create takes. The error matches cloud.ErrInvalid when
// the server cannot be the machine's as it is.
func (c *Cloud) Adopt(ctx context.Context, serverID, commercialType, machineID string, mine func(machineID string) bool) error {
	if !validation.IsUUID(serverID) {
		return fmt.Errorf("%w: servers: %q is no server's id", cloud.ErrInvalid, serverID)
	}
	server, err := c.get(ctx, serverID)
	if errors.Is(err, cloud.ErrNotFound) {
		return fmt.Errorf("%w: server %s is not there in %s: %w", cloud.ErrInvalid, serverID, c.scope.Zone, err)
	}
	if err == nil {
		err = c.mustOwn(server)
	}
	if err != nil {
		return err
	}
	tags := scaleway.ParseTags(server.Tags)
	switch {
	case server.OfferName != commercialType:
		return fmt.Errorf("%w: server %s is a %s, not a %s", cloud.ErrInvalid, serverID, server.OfferName, commercialType)
	case tags.Machine != "" && !mine(tags.Machine):
		return fmt.Errorf("%w: server %s is machine %q already", cloud.ErrInvalid, serverID, tags.Machine)
	case tags.Machine != "" || tags.Spare != "":
		return nil
	case !installed(server):
		return fmt.Errorf("%w: server %s has no system installed (%s): install one, or add the tag %q to have the next Create do so",
			cloud.ErrInvalid, serverID, describe(server), scaleway.SpareTag("by-hand"))
	}
	tags.Machine = machineID
	if err := c.retag(ctx, server.ID, scaleway.Replace(server.Tags, c.scope.Own(tags))); err != nil {
		return fmt.Errorf("tag server %s: %w", serverID, err)
	}
	c.log.Info("a server given by hand was made a machine's", "server", serverID, "machine_id", machineID)
	return nil
}
