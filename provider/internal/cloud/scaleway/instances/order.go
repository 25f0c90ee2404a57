package instances

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/scaleway/scaleway-sdk-go/api/instance/v1"
	"github.com/scaleway/scaleway-sdk-go/scw"

	"bigfleet-providers/provider/internal/cloud"
	"bigfleet-providers/provider/internal/cloud/scaleway"
)

// order makes the server, powered off. It sends a POST only when no earlier one
// can have made a server: at once on the first run; later only after a look-up
// and, unless the last POST was refused for sure, after the settle window.
func (c *Cloud) order(ctx context.Context, t *cloud.Task) error {
	if t.Ref != "" {
		return nil
	}
	if err := c.scope.CheckOrder(t.Spec); err != nil {
		return err
	}
	if t.Rerun {
		// Before the list is asked for: one that was begun within the window and ends
		// after it may lack a server.
		unsettled := c.settled(t)
		found, err := c.adopt(ctx, t)
		if err != nil || found {
			return err
		}
		if unsettled != nil {
			return unsettled
		}
	}
	return c.post(ctx, t)
}

// adopt finds the server that an earlier run ordered. Should there be two, the
// oldest stays and the others go: they never ran.
func (c *Cloud) adopt(ctx context.Context, t *cloud.Task) (bool, error) {
	servers, err := c.byOperation(ctx, t.Spec.OperationID)
	if err != nil || len(servers) == 0 {
		return false, err
	}
	kept := servers[0]
	c.log.Info("found the server of an earlier order", "operation", t.Spec.OperationID, "server", kept.ID)
	for _, extra := range servers[1:] {
		c.log.Warn("two servers carry one operation; removing the younger",
			"operation", t.Spec.OperationID, "kept", kept.ID, "removed", extra.ID)
		if err := c.record(ctx, t, extra); err != nil {
			return false, err
		}
	}
	c.remember(t, kept)
	return true, nil
}

// byOperation lists the servers of an operation, oldest first.
func (c *Cloud) byOperation(ctx context.Context, operationID string) ([]*instance.Server, error) {
	tag := scaleway.OperationTag(operationID)
	servers, err := c.list(ctx, scaleway.OwnerTag(c.scope.Provider), tag)
	if err != nil {
		return nil, err
	}
	servers = slices.DeleteFunc(servers, func(s *instance.Server) bool { return !hasTag(s.Tags, tag) })
	slices.SortFunc(servers, func(a, b *instance.Server) int {
		return cmp.Or(created(a).Compare(created(b)), cmp.Compare(a.ID, b.ID))
	})
	return servers, nil
}

func created(s *instance.Server) time.Time {
	if s.CreationDate == nil {
		return time.Time{}
	}
	return *s.CreationDate
}

func (c *Cloud) post(ctx context.Context, t *cloud.Task) error {
	req, err := c.request(ctx, t.Spec)
	if err != nil {
		c.closeWindow(t) // nothing was sent
		return err
	}
	// From here on the server may exist, whatever comes back.
	c.openWindow(t)
	resp, err := c.api.CreateServer(req, scw.WithContext(ctx))
	if err == nil && resp.Server == nil {
		err = scaleway.ErrEmptyAnswer
	}
	switch {
	case err == nil:
		c.remember(t, resp.Server)
		return nil
	case scaleway.Refused(err):
		c.closeWindow(t)
		if err = scaleway.Explain(err); errors.Is(err, cloud.ErrNotFound) {
			return c.missing(req, err)
		}
		return err
	default:
		c.openWindow(t) // anew: the call may have taken its time
		c.log.Warn("an order was sent but not answered; looking for its server before any other",
			"operation", t.Spec.OperationID, "error", err)
		return c.again("the order was not answered: %v", err)
	}
}

// request is the order. It names the image by UUID: see imageCache.
func (c *Cloud) request(ctx context.Context, spec cloud.Spec) (*instance.CreateServerRequest, error) {
	o, err := cloud.DecodeOptions(spec.Options)
	if err != nil {
		return nil, err
	}
	image, err := c.images.resolve(ctx, c.image(o), spec.Type, rootType(o))
	if err != nil {
		return nil, err
	}
	dynamic := c.publicAddress(o) == cloud.PublicDynamic
	req := &instance.CreateServerRequest{
		Zone:              c.scope.Zone,
		Name:              scaleway.ServerName(spec.MachineID, spec.OperationID),
		CommercialType:    spec.Type,
		Image:             &image,
		Volumes:           volumes(c.image(o), o.RootVolume),
		DynamicIPRequired: &dynamic,
		Project:           &c.scope.Project,
		// In the POST itself: tags added later would leave a time in which nobody
		// knows whose the server is.
		Tags: append(c.scope.Own(scaleway.Tags{Machine: spec.MachineID, Operation: spec.OperationID, Life: spec.OperationID}).List(), o.Tags...),
	}
	if o.SecurityGroup != "" {
		req.SecurityGroup = &o.SecurityGroup
	}
	if o.PlacementGroup != "" {
		req.PlacementGroup = &o.PlacementGroup
	}
	return req, nil
}

// missing names what the order asked for and the API does not have.
func (c *Cloud) missing(req *instance.CreateServerRequest, err error) error {
	field, id := "image", *req.Image
	if gone, ok := errors.AsType[*scw.ResourceNotFoundError](err); ok {
		switch {
		case gone.Resource == "instance_security_group" && req.SecurityGroup != nil:
			field, id = "security_group_id", *req.SecurityGroup
		case gone.Resource == "instance_placement_group" && req.PlacementGroup != nil:
			field, id = "placement_group_id", *req.PlacementGroup
		}
	}
	if field == "image" {
		c.images.forget()
	}
	return fmt.Errorf("%w: %s %s: %w", cloud.ErrInvalid, field, id, err)
}

// remember notes the ordered server and its volumes.
func (c *Cloud) remember(t *cloud.Task, server *instance.Server) {
	t.Ref = c.scope.Ref(server.ID)
	scaleway.NoteTime(t, noteOrdered, time.Now())
	noteVolumes(t, server)
}

// noteVolumes notes the volumes that came with a server.
func noteVolumes(t *cloud.Task, server *instance.Server) {
	for _, v := range server.Volumes {
		switch {
		case v == nil:
		case onBlock(v):
			addID(t, noteRoot, v.ID)
		default:
			addID(t, noteRootLocal, v.ID)
		}
	}
}

// mine reads the task's server.
func (c *Cloud) mine(ctx context.Context, t *cloud.Task) (*instance.Server, error) {
	young := c.young(t)
	server, err := c.owned(ctx, t.Ref)
	if err != nil {
		return nil, young(err)
	}
	t.Note(noteSeen, "1")
	return server, nil
}

// young returns what turns "not found" of calls that are begun from now on into
// "not yet", while the server was only just ordered and was not read yet: reads can lag behind the
// order, and an answer tells how things were when it was asked for.
func (c *Cloud) young(t *cloud.Task) func(error) error {
	at, ok := scaleway.NotedTime(t, noteOrdered)
	settling := ok && t.Notes[noteSeen] == "" && time.Since(at) < c.timing.Settle
	return func(err error) error {
		if settling && errors.Is(err, cloud.ErrNotFound) {
			return c.again("the server was ordered but cannot be read yet")
		}
		return err
	}
}

// onBlock says which of two APIs knows the volume; each answers 404 for the
// volumes of the other.
func onBlock(v *instance.VolumeServer) bool {
	return v.VolumeType == instance.VolumeServerVolumeTypeSbsVolume
}

func hasTag(tags []string, tag string) bool { return slices.Contains(tags, tag) }
