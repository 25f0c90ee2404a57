package instances

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	block "github.com/scaleway/scaleway-sdk-go/api/block/v1"
	"github.com/scaleway/scaleway-sdk-go/api/instance/v1"
	"github.com/scaleway/scaleway-sdk-go/scw"

	"bigfleet-providers/provider/internal/cloud"
	"bigfleet-providers/provider/internal/cloud/scaleway"
)

// Delete implements cloud.Deleter.
func (c *Cloud) Delete() []cloud.Step { return c.teardown(c.inspectHost) }

// Discard implements cloud.Cloud.
func (c *Cloud) Discard() []cloud.Step { return c.teardown(c.inspectOperation) }

func (c *Cloud) teardown(inspect func(context.Context, *cloud.Task) error) []cloud.Step {
	return []cloud.Step{
		{Name: "inspect", Run: inspect},
		{Name: "terminate", Run: c.terminate},
		{Name: "await-gone", Run: c.awaitGone},
		{Name: "volumes", Run: c.deleteVolumes},
		{Name: "addresses", Run: c.deleteAddresses},
	}
}

// inspectHost writes down what a machine has in the cloud. It must come before
// the server is touched: afterwards nothing links its volumes to it.
func (c *Cloud) inspectHost(ctx context.Context, t *cloud.Task) error {
	bare, err := c.inspectRef(ctx, t)
	if err != nil || !bare {
		return err
	}
	return c.recordStray(ctx, t, scaleway.MachineTag(t.Spec.MachineID), t.Spec.MachineID)
}

// inspectOperation writes down what a Create made, whether or not anybody saw
// the answer to its order.
func (c *Cloud) inspectOperation(ctx context.Context, t *cloud.Task) error {
	found := false
	if t.Ref != "" {
		bare, err := c.inspectRef(ctx, t)
		if err != nil {
			return err
		}
		found = !bare
	}
	if t.Spec.OperationID == "" {
		if t.Ref == "" {
			return fmt.Errorf("%w: neither a server nor an operation to discard", cloud.ErrInvalid)
		}
		return nil
	}
	var unsettled error
	if t.Ref == "" {
		unsettled = c.settled(t) // before the list that must have the server
	}
	servers, err := c.byOperation(ctx, t.Spec.OperationID)
	if err != nil {
		return err
	}
	for _, s := range servers {
		if err := c.record(ctx, t, s); err != nil {
			return err
		}
		found = found || s.Volumes["0"] != nil
	}
	if found {
		return nil
	}
	if unsettled != nil && len(servers) == 0 {
		return unsettled
	}
	return c.recordStray(ctx, t, scaleway.OperationTag(t.Spec.OperationID), t.Spec.OperationID)
}

// inspectRef writes down the task's server. It is bare when it is gone, or when
// it has no root volume any more: a termination takes the volumes off seconds
// before the server goes.
func (c *Cloud) inspectRef(ctx context.Context, t *cloud.Task) (bare bool, err error) {
	// What came with the order is ours even if the server is gone by now.
	for _, id := range ids(t, noteRoot) {
		addID(t, noteBlock, id)
	}
	for _, id := range ids(t, noteRootLocal) {
		addID(t, noteLocal, id)
	}
	young := c.young(t)
	server, err := c.owned(ctx, t.Ref)
	if err = young(err); errors.Is(err, cloud.ErrNotFound) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	return server.Volumes["0"] == nil, c.record(ctx, t, server)
}

// record notes a server that is to go and what is to go with it.
func (c *Cloud) record(ctx context.Context, t *cloud.Task, server *instance.Server) error {
	for _, slot := range slices.Sorted(maps.Keys(server.Volumes)) {
		v := server.Volumes[slot]
		switch {
		case v == nil:
		case !onBlock(v):
			addID(t, noteLocal, v.ID)
		case slot == "0":
			addID(t, noteBlock, v.ID) // the root volume came with the server
		default:
			ours, err := c.ownsVolume(ctx, v.ID)
			if err != nil {
				return err
			}
			if !ours {
				// Most likely a workload's persistent volume: its data is not ours.
				c.log.Warn("a volume without our tag is attached; it will be left", "server", server.ID, "volume", v.ID)
				continue
			}
			addID(t, noteBlock, v.ID)
		}
	}
	for _, ip := range server.PublicIPs {
		if ip != nil && !ip.Dynamic && scaleway.ParseTags(ip.Tags).Owner == c.scope.Provider {
			addID(t, noteAddresses, ip.ID)
		}
	}
	addID(t, noteServers, server.ID)
	return nil
}

func (c *Cloud) ownsVolume(ctx context.Context, id string) (bool, error) {
	volume, err := c.volume(ctx, id)
	if errors.Is(err, cloud.ErrNotFound) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return scaleway.ParseTags(volume.Tags).Owner == c.scope.Provider, nil
}

// recordStray notes the volumes and addresses that a server left behind. Those
// in use elsewhere by now are somebody's.
func (c *Cloud) recordStray(ctx context.Context, t *cloud.Task, tag, value string) error {
	if value == "" {
		return nil
	}
	volumes, err := c.volumesTagged(ctx, tag)
	if err != nil {
		return err
	}
	own := ids(t, noteServers)
	for _, v := range volumes {
		elsewhere := slices.ContainsFunc(v.References, func(r *block.Reference) bool {
			return r != nil && !slices.Contains(own, r.ProductResourceID)
		})
		if !elsewhere {
			addID(t, noteBlock, v.ID)
		}
	}
	locals, err := c.localVolumesTagged(ctx, tag)
	if err != nil {
		return err
	}
	for _, v := range locals {
		if v.Server == nil || slices.Contains(own, v.Server.ID) {
			addID(t, noteLocal, v.ID)
		}
	}
	addresses, err := c.addressesTagged(ctx, tag)
	if err != nil {
		return err
	}
	for _, ip := range addresses {
		if ip.Server == nil || slices.Contains(own, ip.Server.ID) {
			addID(t, noteAddresses, ip.ID)
		}
	}
	return nil
}

// terminate brings every noted server to the point where it is on its way out.
func (c *Cloud) terminate(ctx context.Context, t *cloud.Task) error {
	for _, id := range ids(t, noteServers) {
		asked := time.Now()
		server, err := c.get(ctx, id)
		if errors.Is(err, cloud.ErrNotFound) {
			continue
		}
		if err != nil {
			return err
		}
		leaving, err := c.push(ctx, t, server, asked)
		if err != nil {
			return err
		}
		if !leaving {
			return c.again("server %s was told to stop first", id)
		}
	}
	return nil
}

// awaitGone waits until no noted server is there. One that comes back from a
// termination is pushed again.
func (c *Cloud) awaitGone(ctx context.Context, t *cloud.Task) error {
	for _, id := range ids(t, noteServers) {
		asked := time.Now()
		server, err := c.get(ctx, id)
		if errors.Is(err, cloud.ErrNotFound) {
			continue
		}
		if err != nil {
			return err
		}
		if _, err := c.push(ctx, t, server, asked); err != nil {
			return err
		}
		return c.again("server %s was %s and is not gone yet", id, describe(server))
	}
	return nil
}

// push takes a server, as it was when it was asked for, one step towards its end,
// whatever state it is in, and says whether it is leaving.
func (c *Cloud) push(ctx context.Context, t *cloud.Task, server *instance.Server, asked time.Time) (leaving bool, err error) {
	if err := c.mustOwn(server); err != nil {
		return false, err
	}
	id := server.ID
	if server.State != instance.ServerStateStarting && server.State != instance.ServerStateStopping {
		delete(t.Notes, noteMoving+id)
	}
	switch server.State {
	case instance.ServerStateRunning, instance.ServerStateStoppedInPlace:
		return c.stop(ctx, t, server)
	case instance.ServerStateStopped:
		// It may be one whose Create failed before its volume was tagged.
		if err := c.labelRoot(ctx, server); err != nil {
			return false, err
		}
		return true, c.deleteServer(ctx, id) // protection guards running servers only
	case instance.ServerStateStarting, instance.ServerStateStopping:
		return c.unstick(ctx, t, server, asked)
	case instance.ServerStateLocked:
		return false, c.again("Scaleway holds server %s locked; only its support can lift that", id)
	default:
		return false, c.again("server %s is %s, which is not a state this provider knows", id, describe(server))
	}
}

// stop ends a running server: by terminate, which takes seconds, or where that
// was refused by power-off, after which it can be deleted.
func (c *Cloud) stop(ctx context.Context, t *cloud.Task, server *instance.Server) (leaving bool, err error) {
	if server.Protected {
		_, err := c.api.UpdateServer(&instance.UpdateServerRequest{
			Zone: c.scope.Zone, ServerID: server.ID, Protected: new(false),
		}, scw.WithContext(ctx))
		if err != nil {
			return false, fmt.Errorf("lift the protection of server %s: %w", server.ID, scaleway.Explain(err))
		}
	}
	if t.Notes[noteRefused+server.ID] == "" {
		err := c.act(ctx, server.ID, instance.ServerActionTerminate)
		if !stateRefusal(err) {
			return err == nil || errors.Is(err, cloud.ErrNotFound), ignoreNotFound(err)
		}
		c.log.Warn("terminate was refused; powering off instead", "server", server.ID, "error", err)
		t.Note(noteRefused+server.ID, "1")
	}
	err = c.act(ctx, server.ID, instance.ServerActionPoweroff)
	if stateRefusal(err) {
		delete(t.Notes, noteRefused+server.ID) // neither works now: begin again
		return false, c.again("server %s refuses to stop: %v", server.ID, err)
	}
	return false, ignoreNotFound(err)
}

func (c *Cloud) deleteServer(ctx context.Context, id string) error {
	err := scaleway.Explain(c.api.DeleteServer(&instance.DeleteServerRequest{Zone: c.scope.Zone, ServerID: id}, scw.WithContext(ctx)))
	if stateRefusal(err) {
		return c.again("server %s cannot be deleted yet: %v", id, err)
	}
	return ignoreNotFound(err)
}

// unstick waits out a transition. One that takes longer than any regular one
// is broken into with an action that the API says it allows. How long it takes is
// judged by what was read of it, not by when the answer came.
func (c *Cloud) unstick(ctx context.Context, t *cloud.Task, server *instance.Server, asked time.Time) (leaving bool, err error) {
	began, ok := scaleway.NotedTime(t, noteMoving+server.ID)
	if !ok {
		began = time.Now()
		scaleway.NoteTime(t, noteMoving+server.ID, began)
	}
	if asked.Sub(began) < c.timing.Stuck {
		return false, c.again("server %s is %s", server.ID, describe(server))
	}
	scaleway.NoteTime(t, noteMoving+server.ID, time.Now()) // and again only after as long
	for _, action := range []instance.ServerAction{
		instance.ServerActionTerminate, instance.ServerActionPoweroff, instance.ServerActionStopInPlace,
	} {
		if !slices.Contains(server.AllowedActions, action) {
			continue
		}
		c.log.Error("a server is stuck; forcing it", "server", server.ID, "state", describe(server), "action", action, "after", c.timing.Stuck)
		if err := c.act(ctx, server.ID, action); err != nil && !stateRefusal(err) {
			return false, ignoreNotFound(err)
		}
		return false, c.again("server %s was stuck %s; sent %s", server.ID, describe(server), action)
	}
	c.log.Error("a server is stuck and the API allows no action on it", "server", server.ID, "state", describe(server), "after", c.timing.Stuck)
	return false, c.again("server %s is stuck %s and the API allows no action on it", server.ID, describe(server))
}

// deleteVolumes deletes the noted volumes of both kinds. A block volume may
// stay in use for a minute after its server is gone.
func (c *Cloud) deleteVolumes(ctx context.Context, t *cloud.Task) error {
	for _, id := range ids(t, noteLocal) {
		err := c.api.DeleteVolume(&instance.DeleteVolumeRequest{Zone: c.scope.Zone, VolumeID: id}, scw.WithContext(ctx))
		if err := c.deleted("local volume", id, err); err != nil {
			return err
		}
	}
	for _, id := range ids(t, noteBlock) {
		err := c.block.DeleteVolume(&block.DeleteVolumeRequest{Zone: c.scope.Zone, VolumeID: id}, scw.WithContext(ctx))
		if err := c.deleted("block volume", id, err); err != nil {
			return err
		}
	}
	return nil
}

// deleteAddresses deletes the flexible IPs that carry our tag. Dynamic ones go
// with their server.
func (c *Cloud) deleteAddresses(ctx context.Context, t *cloud.Task) error {
	for _, id := range ids(t, noteAddresses) {
		err := c.api.DeleteIP(&instance.DeleteIPRequest{Zone: c.scope.Zone, IP: id}, scw.WithContext(ctx))
		if err := c.deleted("address", id, err); err != nil {
			return err
		}
	}
	return nil
}

// deleted judges the answer to a deletion of a side resource.
func (c *Cloud) deleted(what, id string, err error) error {
	err = ignoreNotFound(scaleway.Explain(err))
	if stateRefusal(err) {
		return c.again("%s %s cannot be deleted yet: %v", what, id, err)
	}
	if err != nil {
		return fmt.Errorf("delete %s %s: %w", what, id, err)
	}
	return nil
}

// stateRefusal says that the API refused because of the object's present state.
// The Instance API has called that an invalid request, too.
func stateRefusal(err error) bool {
	return errors.Is(err, cloud.ErrConflict) || errors.Is(err, cloud.ErrInvalid)
}

func ignoreNotFound(err error) error {
	if errors.Is(err, cloud.ErrNotFound) {
		return nil
	}
	return err
}
