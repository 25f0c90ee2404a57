package elasticmetal

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/scaleway/scaleway-sdk-go/api/baremetal/v1"
	"github.com/scaleway/scaleway-sdk-go/scw"
	"github.com/scaleway/scaleway-sdk-go/validation"

	"bigfleet-providers/provider/internal/cloud"
	"bigfleet-providers/provider/internal/cloud/scaleway"
)

// takeable says that a Create may wait for the server or work on it.
func takeable(s *baremetal.Server) bool {
	switch s.Status {
	case baremetal.ServerStatusReady, baremetal.ServerStatusStopped, baremetal.ServerStatusOrdered, baremetal.ServerStatusDelivering,
		baremetal.ServerStatusStarting, baremetal.ServerStatusStopping, baremetal.ServerStatusResetting, baremetal.ServerStatusMigrating:
		return true
	default:
		return false
	}
}

// delivered says that the server is there to be worked on.
func delivered(s *baremetal.Server) bool {
	return s.Status == baremetal.ServerStatusReady || s.Status == baremetal.ServerStatusStopped
}

// isSpare says that the server is no machine's and may be taken.
func isSpare(s *baremetal.Server) bool {
	tags := scaleway.ParseTags(s.Tags)
	return tags.Spare != "" && tags.Machine == "" && tags.Cluster == "" && takeable(s)
}

// bestSpare is a spare of the type, nil when there is none: one that was
// delivered, and of those the one that has been spare for longest, so that one
// which fails again and again does not keep the others from being tried. What
// the offerings file names is for the slots that it names it for.
func (c *Cloud) bestSpare(servers []*baremetal.Server, commercialType string) *baremetal.Server {
	spares := slices.DeleteFunc(slices.Clone(servers), func(s *baremetal.Server) bool {
		return s.OfferName != commercialType || !isSpare(s) || c.reserved(s.ID)
	})
	if len(spares) == 0 {
		return nil
	}
	return slices.MinFunc(spares, func(a, b *baremetal.Server) int {
		if there := delivered(a); there != delivered(b) {
			if there {
				return -1
			}
			return 1
		}
		return cmp.Or(cmp.Compare(scaleway.ParseTags(a.Tags).Spare, scaleway.ParseTags(b.Tags).Spare), cmp.Compare(a.ID, b.ID))
	})
}

// take makes a server that is there the task's. The caller has the turn. Should it
// have ended while the servers were read, another may have taken this one since.
func (c *Cloud) take(ctx context.Context, t *cloud.Task, s *baremetal.Server, why string) error {
	if !c.turn.renew(t.Spec.OperationID, c.timing.Turn) {
		return c.again("reading the servers took longer than the turn to take one")
	}
	if err := c.mustOwn(s); err != nil {
		return err
	}
	tags := scaleway.Replace(s.Tags, c.scope.Own(scaleway.Tags{Machine: t.Spec.MachineID, Operation: t.Spec.OperationID, Life: t.Spec.OperationID}))
	_, err := c.api.UpdateServer(&baremetal.UpdateServerRequest{
		Zone: c.scope.Zone, ServerID: s.ID, Tags: &tags, Name: new(scaleway.ServerName(t.Spec.MachineID, t.Spec.OperationID)),
	}, scw.WithContext(ctx))
	if err != nil {
		return fmt.Errorf("take server %s: %w", s.ID, scaleway.Explain(err))
	}
	c.log.Info("a server that is there is taken instead of an order", "machine_id", t.Spec.MachineID, "operation_id", t.Spec.OperationID, "server", s.ID, "reason", why)
	c.remember(t, s)
	return nil
}

// takeGiven makes the server that the offerings file names the task's. One that
// was installed by hand is used as it is; one that comes back from a failure of
// its machine is installed anew.
func (c *Cloud) takeGiven(ctx context.Context, t *cloud.Task, id string) error {
	if !validation.IsUUID(id) {
		return fmt.Errorf("%w: servers: %q is no server's id", cloud.ErrInvalid, id)
	}
	server, err := c.get(ctx, id)
	if errors.Is(err, cloud.ErrNotFound) {
		return fmt.Errorf("%w: server %s of the offerings file is not there: %w; nothing is ordered in its place", cloud.ErrInvalid, id, err)
	}
	if err == nil {
		err = c.mustOwn(server)
	}
	if err != nil {
		return err
	}
	tags := scaleway.ParseTags(server.Tags)
	switch {
	case tags.Operation == t.Spec.OperationID:
		c.remember(t, server)
		return nil
	case tags.Machine == t.Spec.MachineID && tags.Operation == "" && installed(server):
		t.Note(cloud.NoteAsIs, "1")
		c.remember(t, server)
		return nil
	case tags.Machine != "" && tags.Machine != t.Spec.MachineID:
		return fmt.Errorf("%w: server %s of the offerings file is machine %q already", cloud.ErrInvalid, id, tags.Machine)
	case tags.Cluster != "" || !takeable(server):
		return fmt.Errorf("%w: server %s is %s, bound to cluster %q; it is left alone", cloud.ErrConflict, id, describe(server), tags.Cluster)
	case tags.Spare == "" && tags.Machine == "" && installed(server):
		return fmt.Errorf("%w: server %s was not adopted yet, and to install it would wipe it", cloud.ErrConflict, id)
	}
	if server.OfferName != t.Spec.Type {
		return fmt.Errorf("%w: server %s of the offerings file is a %s, not a %s", cloud.ErrInvalid, id, server.OfferName, t.Spec.Type)
	}
	return c.take(ctx, t, server, "the offerings file names it")
}

// Discard implements cloud.Cloud. Nothing is removed: what the operation has
// becomes a spare.
func (c *Cloud) Discard() []cloud.Step {
	return []cloud.Step{{Name: "make-spare", Run: c.release}}
}

// release makes the task's server a spare, unless it is another's by now. For an
// order in doubt it goes on looking for a while: whoever fills the slot before
// might order what is on its way.
func (c *Cloud) release(ctx context.Context, t *cloud.Task) error {
	name := "release of " + t.Spec.MachineID
	if !c.turn.take(name, c.timing.Turn) {
		return c.again("an order in this project and zone is under way")
	}
	defer c.turn.leave(name)
	if t.Ref != "" {
		server, err := c.owned(ctx, t.Ref)
		if errors.Is(err, cloud.ErrNotFound) {
			return nil // somebody gave it back
		}
		if err != nil || !c.belongs(server, t.Spec) {
			return err
		}
		return c.makeSpare(ctx, server)
	}
	if t.Spec.OperationID == "" {
		return nil
	}
	until, doubt := c.doubtful(t)
	left := time.Until(until.Add(c.timing.Hold)) // at the beginning of the list that must lack the server
	servers, err := c.list(ctx, scaleway.OwnerTag(c.scope.Provider), scaleway.OperationTag(t.Spec.OperationID))
	if err != nil {
		return err
	}
	made := withOperation(servers, t.Spec.OperationID)
	for _, s := range made {
		if err := c.makeSpare(ctx, s); err != nil {
			return err
		}
	}
	if doubt && len(made) == 0 && left > 0 {
		return cloud.Again(min(c.timing.Settle, left), "the server of an order that was not answered may still turn up; its slot waits")
	}
	return nil
}

// belongs says that the server is still what the operation left. A spare is
// nobody's, and the next Create's tags are its own.
func (c *Cloud) belongs(s *baremetal.Server, spec cloud.Spec) bool {
	tags := scaleway.ParseTags(s.Tags)
	return tags.Machine == spec.MachineID && (tags.Operation == "" || spec.OperationID == "" || tags.Operation == spec.OperationID)
}

func (c *Cloud) makeSpare(ctx context.Context, s *baremetal.Server) error {
	if err := c.mustOwn(s); err != nil {
		return err
	}
	tags := c.scope.Own(scaleway.Tags{Spare: time.Now().UTC().Format(time.RFC3339)})
	if err := c.retag(ctx, s.ID, scaleway.Replace(s.Tags, tags)); err != nil {
		return fmt.Errorf("make server %s a spare: %w", s.ID, err)
	}
	c.log.Warn("a server that is paid for is spare; the next Create of its type takes it", "server", s.ID, "offer", s.OfferName, "status", describe(s))
	return nil
}

// Keeps implements cloud.Keeper.
func (c *Cloud) Keeps(ref, commercialType string) string {
	id, err := c.scope.ID(ref, "server")
	if err != nil {
		return "no server is known to be left; one with this machine's tag that turns up is paid for and becomes a spare"
	}
	taker := "the next Create of its type"
	if c.reserved(id) {
		taker = "the next Create of its slot"
	}
	return fmt.Sprintf("server %s is paid for%s and kept as a spare: %s takes it and reinstalls it, unless its status is error, locked or out_of_stock then; to give it back instead: capacityctl release --spare %s/%s",
		id, c.lastPrice(commercialType), taker, c.scope.Zone, id)
}
