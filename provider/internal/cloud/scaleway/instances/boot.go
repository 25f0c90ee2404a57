package instances

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	block "github.com/scaleway/scaleway-sdk-go/api/block/v1"
	"github.com/scaleway/scaleway-sdk-go/api/instance/v1"
	"github.com/scaleway/scaleway-sdk-go/scw"

	"bigfleet-providers/provider/internal/cloud"
	"bigfleet-providers/provider/internal/cloud/scaleway"
)

// Create implements cloud.Cloud.
func (c *Cloud) Create() []cloud.Step {
	return []cloud.Step{
		{Name: "order", Run: c.order},
		{Name: "duplicates", Run: c.dropDuplicates},
		{Name: "label-volumes", Run: c.labelVolumes},
		{Name: "networks", Run: c.connect},
		{Name: "user-data", Run: c.setUserData},
		{Name: "power-on", Run: func(ctx context.Context, t *cloud.Task) error {
			if !t.Rerun {
				return c.switchOn(ctx, t) // ordered a moment ago, so stopped
			}
			return c.powerOn(ctx, t)
		}},
		{Name: "boot", Run: c.boot, Sign: cloud.SignDone},
	}
}

// Start implements cloud.Cloud.
func (c *Cloud) Start() []cloud.Step {
	return []cloud.Step{
		{Name: "power-on", Run: c.powerOn},
		{Name: "boot", Run: c.boot},
	}
}

// dropDuplicates removes what order found beside the server that it kept.
func (c *Cloud) dropDuplicates(ctx context.Context, t *cloud.Task) error {
	for _, run := range []func(context.Context, *cloud.Task) error{c.awaitGone, c.deleteVolumes} {
		if err := run(ctx, t); err != nil {
			return err
		}
	}
	return nil
}

// labelVolumes tags the volumes that came with the server. They are made
// without tags, and once the server is gone nothing else says whose they are.
// Block volumes are also made with the default speed: an order cannot ask for
// another.
func (c *Cloud) labelVolumes(ctx context.Context, t *cloud.Task) error {
	o, err := cloud.DecodeOptions(t.Spec.Options)
	if err != nil {
		return err
	}
	tags := c.tags(t.Spec, o)
	var iops *uint32
	if v := o.RootVolume; v != nil && v.IOPS > 0 {
		iops = new(uint32(v.IOPS))
	}
	there, young := map[string]bool{}, c.young(t)
	if t.Rerun {
		// Whatever is noted, what the server has by now is what must be tagged.
		server, err := c.mine(ctx, t)
		if err != nil {
			return err
		}
		noteVolumes(t, server)
		for _, v := range server.Volumes {
			if v != nil {
				there[v.ID] = true
			}
		}
	}
	judge := func(what, id string, err error) error {
		err = scaleway.Explain(err)
		if t.Rerun && !there[id] && errors.Is(err, cloud.ErrNotFound) {
			return nil // gone, and not the server's
		}
		if err = young(err); err != nil {
			return fmt.Errorf("tag %s %s: %w", what, id, err)
		}
		return nil
	}
	for _, id := range ids(t, noteRoot) {
		err := c.guard.Do(c.client, func() error {
			_, err := c.block.UpdateVolume(&block.UpdateVolumeRequest{
				Zone: c.scope.Zone, VolumeID: id, Tags: &tags, PerfIops: iops,
			}, scw.WithContext(ctx))
			return err
		})
		if err = judge("volume", id, err); err != nil {
			return err
		}
	}
	for _, id := range ids(t, noteRootLocal) {
		_, err := c.api.UpdateVolume(&instance.UpdateVolumeRequest{Zone: c.scope.Zone, VolumeID: id, Tags: &tags}, scw.WithContext(ctx))
		if err = judge("local volume", id, err); err != nil {
			return err
		}
	}
	return nil
}

// setUserData must come before the first boot: the guest reads it then and
// never again.
func (c *Cloud) setUserData(ctx context.Context, t *cloud.Task) error {
	if t.Spec.UserData == nil {
		return nil
	}
	id, err := c.scope.ID(t.Ref, "server")
	if err != nil {
		return err
	}
	data, err := t.Spec.UserData()
	if err != nil {
		return fmt.Errorf("render user data: %w", err)
	}
	if len(data) > MaxUserDataBytes {
		return fmt.Errorf("%w: user data is %d bytes, the limit is %d; shorten --base-user-data", cloud.ErrInvalid, len(data), MaxUserDataBytes)
	}
	young := c.young(t)
	err = c.api.SetServerUserData(&instance.SetServerUserDataRequest{
		Zone: c.scope.Zone, ServerID: id, Key: userDataKey, Content: bytes.NewReader(data),
	}, scw.WithContext(ctx))
	return young(scaleway.Explain(err))
}

// powerOn switches on a server in whatever state it finds it.
func (c *Cloud) powerOn(ctx context.Context, t *cloud.Task) error {
	server, err := c.mine(ctx, t)
	if err != nil {
		return err
	}
	switch server.State {
	case instance.ServerStateRunning, instance.ServerStateStarting:
		return nil
	case instance.ServerStateStopped, instance.ServerStateStoppedInPlace:
		return c.switchOn(ctx, t)
	case instance.ServerStateLocked:
		return errLocked(server)
	default:
		return c.again("the server is %s", describe(server))
	}
}

// switchOn sends the action. Out of stock is answered here: ordering a server
// claims no hardware.
func (c *Cloud) switchOn(ctx context.Context, t *cloud.Task) error {
	id, err := c.scope.ID(t.Ref, "server")
	if err != nil {
		return err
	}
	young := c.young(t)
	err = young(c.act(ctx, id, instance.ServerActionPoweron))
	if errors.Is(err, cloud.ErrConflict) {
		return c.again("power-on was refused for now: %v", err)
	}
	if err == nil {
		scaleway.NoteTime(t, noteSwitched, time.Now())
	}
	return err
}

// firstLook is how many polls after its power-on a server is read for the first
// time: a start takes one, and most hosts have called by then.
const firstLook = 2

// boot waits until the server runs. A server that falls back to stopped after
// an accepted power-on found no hardware. It must be seen so twice, since a read
// may lag behind the action.
func (c *Cloud) boot(ctx context.Context, t *cloud.Task) error {
	if at, ok := scaleway.NotedTime(t, noteSwitched); ok && time.Since(at) < c.timing.Poll/2 {
		// A look now would be a call for nothing, and the host may call sooner.
		return cloud.Again(firstLook*c.timing.Poll, "the server was switched on a moment ago")
	}
	server, err := c.mine(ctx, t)
	if err != nil {
		return err
	}
	if off(server) && t.Notes[noteSwitched] == "" {
		// It was on a moment ago, or the answer to the power-on was lost.
		if err := c.switchOn(ctx, t); err != nil {
			return err
		}
		return c.again("the server was switched on")
	}
	switch server.State {
	case instance.ServerStateRunning:
		return nil
	case instance.ServerStateLocked:
		return errLocked(server)
	case instance.ServerStateStopped:
		if t.Notes[noteOff] == "" {
			t.Note(noteOff, "1")
			return c.again("the server is stopped after its power-on was accepted")
		}
		return fmt.Errorf("%w: type %s in %s: the power-on was accepted, but the server fell back to stopped",
			cloud.ErrNoCapacity, server.CommercialType, c.scope.Zone)
	case instance.ServerStateStoppedInPlace:
		return fmt.Errorf("%w: the guest shut itself down while it booted; check the image and the user data", cloud.ErrInvalid)
	default:
		return c.again("the server is %s", describe(server))
	}
}

// off says that a power-on would start the server.
func off(server *instance.Server) bool {
	return server.State == instance.ServerStateStopped || server.State == instance.ServerStateStoppedInPlace
}

func (c *Cloud) act(ctx context.Context, id string, action instance.ServerAction) error {
	// The answer's task is a dummy; the server itself tells the truth.
	_, err := c.api.ServerAction(&instance.ServerActionRequest{
		Zone: c.scope.Zone, ServerID: id, Action: action,
	}, scw.WithContext(ctx))
	return scaleway.Explain(err)
}

func errLocked(server *instance.Server) error {
	return cloud.Advise(fmt.Errorf("%w: Scaleway holds server %s locked", cloud.ErrDenied, server.ID), "only Scaleway's support can lift that")
}

// describe is the server's state with the vendor's detail, for operators.
func describe(server *instance.Server) string {
	if server.StateDetail == "" || server.StateDetail == server.State.String() {
		return server.State.String()
	}
	return fmt.Sprintf("%s (%s)", server.State, server.StateDetail)
}
