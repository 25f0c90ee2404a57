package elasticmetal

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/scaleway/scaleway-sdk-go/api/baremetal/v1"
	"github.com/scaleway/scaleway-sdk-go/scw"

	"bigfleet-providers/provider/internal/cloud"
	"bigfleet-providers/provider/internal/cloud/scaleway"
)

// maxBroken is how many installs may end in an error before a Create does: one
// takes minutes, up to an hour, and is free.
const maxBroken = 4

// maxUnknown is how many installs may be refused for something that is not found.
const maxUnknown = 3

// Create implements cloud.Cloud.
func (c *Cloud) Create() []cloud.Step {
	return []cloud.Step{
		{Name: "order", Run: c.order},
		{Name: "delivery", Run: c.delivery},
		{Name: "user-data", Run: c.setUserData},
		// Not done by it: it may come from what was on the server before.
		{Name: "install", Run: c.install, Sign: cloud.SignLook},
		{Name: "power-on", Run: c.powerOn, Sign: cloud.SignDone},
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

// delivery waits until the server is there: seconds if it stands ready, minutes
// if not.
func (c *Cloud) delivery(ctx context.Context, t *cloud.Task) error {
	server, err := c.working(ctx, t)
	if err != nil {
		return err
	}
	c.progress(t, server)
	if delivered(server) {
		return nil
	}
	return c.again("stage delivering: server %s is %s", server.ID, server.Status)
}

// working reads the server of a Create that is under way. It refuses one that
// will not get any further, and one that carries another operation's tags by now:
// two that install one server in turn would never end.
func (c *Cloud) working(ctx context.Context, t *cloud.Task) (*baremetal.Server, error) {
	settling := c.settling(t)
	server, err := c.mine(ctx, t)
	if err != nil {
		return nil, err
	}
	if !c.belongs(server, t.Spec) {
		if settling {
			return nil, c.again("server %s does not show the tags yet that were given to it", server.ID)
		}
		t.Ref = "" // whoever took it answers for it
		return nil, cloud.Advise(fmt.Errorf("%w: server %s does not carry this operation's tags any more, but %q; it is left to whoever took it",
			cloud.ErrInvalid, server.ID, server.Tags), "see whether a second provider runs with this --provider in the project and zone, or whether somebody changed the server's tags")
	}
	return server, c.hopeless(server)
}

// hopeless is why a server will not get any further by itself.
func (c *Cloud) hopeless(s *baremetal.Server) error {
	switch s.Status {
	case baremetal.ServerStatusOutOfStock:
		return fmt.Errorf("%w: Scaleway took the order of %s for server %s and had none left in %s", cloud.ErrNoCapacity, s.OfferName, s.ID, c.scope.Zone)
	case baremetal.ServerStatusLocked, baremetal.ServerStatusError:
		return cloud.Advise(fmt.Errorf("%w: Scaleway shows server %s as %s", cloud.ErrInvalid, s.ID, s.Status),
			"only Scaleway's support can help the server; no Create takes it before it is ready")
	case baremetal.ServerStatusDeleting:
		return fmt.Errorf("%w: server %s is being given back by somebody else", cloud.ErrNotFound, s.ID)
	default:
		return nil
	}
}

// progress logs each stage once.
func (c *Cloud) progress(t *cloud.Task, s *baremetal.Server) {
	if words := describe(s); t.Notes[noteStatus] != words {
		t.Note(noteStatus, words)
		c.log.Info("server status", "machine_id", t.Spec.MachineID, "operation_id", t.Spec.OperationID, "server", s.ID, "status", words)
	}
}

// setUserData must come before the install: the system reads it at its first
// boot and never again.
func (c *Cloud) setUserData(ctx context.Context, t *cloud.Task) error {
	if t.Spec.UserData == nil || t.Notes[cloud.NoteAsIs] != "" {
		return nil
	}
	id, err := c.scope.ID(t.Ref, "server")
	if err != nil {
		return err
	}
	if _, err := c.working(ctx, t); err != nil {
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
	_, err = c.api.UpdateServer(&baremetal.UpdateServerRequest{Zone: c.scope.Zone, ServerID: id, UserData: &data}, scw.WithContext(ctx))
	return young(scaleway.Explain(err))
}

// install puts the system on the server and waits until it is there. An install
// of this operation is known by its hostname: a spare has that of an earlier one.
func (c *Cloud) install(ctx context.Context, t *cloud.Task) error {
	if t.Notes[cloud.NoteAsIs] != "" {
		return nil
	}
	server, err := c.working(ctx, t)
	if err != nil {
		return err
	}
	c.progress(t, server)
	hostname := scaleway.ServerName(t.Spec.MachineID, t.Spec.OperationID)
	in := server.Install
	switch {
	case in == nil || in.Hostname != hostname:
	case in.Status == baremetal.ServerInstallStatusCompleted:
		return nil
	case in.Status == baremetal.ServerInstallStatusError:
		if err := c.countBroken(t, server.ID); err != nil {
			return err
		}
	default:
		delete(t.Notes, noteCounted)
		return c.again("stage installing: the install on server %s is %s", server.ID, in.Status)
	}
	if !delivered(server) {
		return c.again("stage installing: server %s is %s", server.ID, server.Status)
	}
	return c.startInstall(ctx, t, server, hostname)
}

// countBroken counts an install that ended in an error, once.
func (c *Cloud) countBroken(t *cloud.Task, id string) error {
	broken := count(t, noteBroken)
	if t.Notes[noteCounted] == "" {
		broken++
		t.Note(noteBroken, strconv.Itoa(broken))
		t.Note(noteCounted, "1")
		c.log.Warn("an install ended in an error", "machine_id", t.Spec.MachineID, "operation_id", t.Spec.OperationID, "server", id, "times", broken, "most", maxBroken)
	}
	if broken < maxBroken {
		return nil
	}
	return cloud.Advise(fmt.Errorf("%w: %d installs of server %s ended in an error", cloud.ErrInvalid, broken, id),
		"look at the server's console, and at the system that --image or the offering names")
}

func (c *Cloud) startInstall(ctx context.Context, t *cloud.Task, server *baremetal.Server, hostname string) error {
	o, err := cloud.DecodeOptions(t.Spec.Options)
	if err != nil {
		return err
	}
	system, err := c.systemFor(ctx, o)
	if err != nil {
		return err
	}
	keys, err := c.keys(ctx)
	if err != nil {
		return err
	}
	_, err = c.api.InstallServer(&baremetal.InstallServerRequest{
		Zone: c.scope.Zone, ServerID: server.ID, OsID: system.ID, Hostname: hostname, SSHKeyIDs: keys,
	}, scw.WithContext(ctx))
	switch err = scaleway.Explain(err); {
	case err == nil:
		c.log.Info("an install was begun", "machine_id", t.Spec.MachineID, "operation_id", t.Spec.OperationID, "server", server.ID, "system", title(system))
		return c.again("stage installing: the install on server %s has begun", server.ID)
	case errors.Is(err, cloud.ErrConflict), errors.Is(err, cloud.ErrInvalid) && installing(server):
		// A spare may still be in the install of the Create that it failed.
		return c.again("stage installing: the install is refused for now: %v", err)
	case errors.Is(err, cloud.ErrNotFound):
		return c.unknown(t, title(system), err)
	default:
		return fmt.Errorf("install %s: %w", title(system), err)
	}
}

// unknown judges an install that was answered with "not found": of the system or
// an SSH key, since the server was read a moment ago. They are read anew; the
// server must not pass for gone.
func (c *Cloud) unknown(t *cloud.Task, system string, err error) error {
	c.facts.forget()
	times := count(t, noteUnknown) + 1
	t.Note(noteUnknown, strconv.Itoa(times))
	if times < maxUnknown {
		return c.again("stage installing: %s or an SSH key is not known any more (%v); they are read anew", system, err)
	}
	return cloud.Advise(fmt.Errorf("%w: install %s: the API knows the system or an SSH key no more: %s", cloud.ErrInvalid, system, err.Error()),
		"check --image, the offering's image and --ssh-keys")
}

// powerOn starts a server that is off.
func (c *Cloud) powerOn(ctx context.Context, t *cloud.Task) error {
	server, err := c.mine(ctx, t)
	if err != nil {
		return err
	}
	if err := c.hopeless(server); err != nil {
		return err
	}
	if server.Status != baremetal.ServerStatusStopped {
		return nil
	}
	_, err = c.api.StartServer(&baremetal.StartServerRequest{
		Zone: c.scope.Zone, ServerID: server.ID, BootType: baremetal.ServerBootTypeNormal,
	}, scw.WithContext(ctx))
	if err = scaleway.Explain(err); errors.Is(err, cloud.ErrConflict) {
		return c.again("power-on was refused for now: %v", err)
	}
	return err
}

// boot waits until the server runs, by the API's word; the guest takes longer.
func (c *Cloud) boot(ctx context.Context, t *cloud.Task) error {
	server, err := c.mine(ctx, t)
	if err != nil {
		return err
	}
	if err := c.hopeless(server); err != nil {
		return err
	}
	switch server.Status {
	case baremetal.ServerStatusReady:
		return nil
	case baremetal.ServerStatusStopped:
		if err := c.powerOn(ctx, t); err != nil {
			return err
		}
		return c.again("the server was switched on")
	default:
		return c.again("the server is %s", describe(server))
	}
}
