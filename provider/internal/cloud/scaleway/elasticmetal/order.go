package elasticmetal

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/scaleway/scaleway-sdk-go/api/baremetal/v1"
	"github.com/scaleway/scaleway-sdk-go/scw"

	"bigfleet-providers/provider/internal/cloud"
	"bigfleet-providers/provider/internal/cloud/scaleway"
)

// HoldOrders says that the state came to be at a time and does not know what was
// ordered before: it is new, the one before was lost, or it is an older copy.
// Nothing is ordered until Settle after it, when such an order is listed. It must
// be called before the first step runs.
func (c *Cloud) HoldOrders(since time.Time) {
	if now := time.Now(); since.After(now) {
		since = now // the clock was set
	}
	c.newState = since
}

// errMustOrder says that no server there is will do.
var errMustOrder = errors.New("a server must be ordered")

// order gets the task a server: one of this machine or a spare one, if there is
// any, else a new one. The first run that finds none writes the order down and
// asks to be called again at once, since the caller makes that durable; the next
// sends it. An order that may have been sent is looked for until its server must
// have turned up, and then given up: it is never sent twice.
func (c *Cloud) order(ctx context.Context, t *cloud.Task) error {
	if t.Ref != "" {
		return nil
	}
	operation := t.Spec.OperationID
	if err := c.scope.CheckOrder(t.Spec); err != nil {
		return err
	}
	if until, doubt := c.doubtful(t); doubt {
		return c.search(ctx, t, until)
	}
	if c.mark(t).there && c.turn.renew(operation, c.timing.Patience+c.timing.Settle) {
		return c.post(ctx, t)
	}
	clearMark(t) // written down and never sent
	if !c.turn.take(operation, c.timing.Turn) {
		return cloud.Again(2*c.timing.Poll, "another order in this project and zone is under way")
	}
	// What the time allows is known before the list is asked for: one that was
	// begun within the window and ends after it may lack a server.
	wait := time.Until(c.newState.Add(c.timing.Settle))
	err := c.reuse(ctx, t)
	if wait > 0 && errors.Is(err, errMustOrder) {
		err = cloud.Again(min(wait, 2*c.timing.Poll), "the state is new or a copy, and a server that it does not know may still turn up; nothing is ordered for so long: "+wait.Round(time.Second).String())
	}
	if errors.Is(err, errMustOrder) {
		c.setMark(t, "about")
		return cloud.Again(0, "the order is written down and about to be sent")
	}
	c.turn.leave(operation)
	return err
}

// reuse looks for a server that is there already. It returns errMustOrder when
// there is none and one may be ordered.
func (c *Cloud) reuse(ctx context.Context, t *cloud.Task) error {
	o, err := cloud.DecodeOptions(t.Spec.Options)
	if err != nil {
		return err
	}
	if o.Server != "" {
		return c.takeGiven(ctx, t, o.Server)
	}
	// What cannot be installed must be known before anything is paid for.
	if err := c.Fit(ctx, t.Spec.Type, o); err != nil {
		return err
	}
	if _, err := c.keys(ctx); err != nil {
		return err
	}
	servers, err := c.list(ctx)
	if err != nil {
		return err
	}
	if made := withOperation(servers, t.Spec.OperationID); len(made) > 0 {
		return c.keepOldest(ctx, t, made)
	}
	for _, s := range servers {
		// Of a Create that another state file knows, or knew.
		if tags := scaleway.ParseTags(s.Tags); tags.Machine == t.Spec.MachineID && takeable(s) {
			if tags.Cluster != "" {
				return fmt.Errorf("%w: server %s carries this machine's tag and is bound to cluster %q; it is left alone, and nothing is ordered beside it",
					cloud.ErrConflict, s.ID, tags.Cluster)
			}
			return c.take(ctx, t, s, "it carries this machine's tag")
		}
	}
	if s := c.bestSpare(servers, t.Spec.Type); s != nil {
		return c.take(ctx, t, s, "it is spare")
	}
	offer, err := c.offer(ctx, t.Spec.Type)
	if err != nil {
		return err
	}
	if offer.Stock == baremetal.OfferStockEmpty {
		return fmt.Errorf("%w: offer %s is out of stock in %s; nothing was ordered", cloud.ErrNoCapacity, offer.Name, c.scope.Zone)
	}
	t.Note(noteOffer, offer.ID)
	return errMustOrder
}

// post sends the order. Its turn is the task's, and the mark is on disk.
func (c *Cloud) post(ctx context.Context, t *cloud.Task) error {
	o, err := cloud.DecodeOptions(t.Spec.Options)
	if err != nil {
		return err
	}
	operation := t.Spec.OperationID
	c.setMark(t, "sent") // from here on the server may exist, whatever comes back
	sending, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.timing.Patience)
	defer cancel()
	server, err := c.api.CreateServer(&baremetal.CreateServerRequest{
		Zone:        c.scope.Zone,
		OfferID:     t.Notes[noteOffer],
		ProjectID:   &c.scope.Project,
		Name:        scaleway.ServerName(t.Spec.MachineID, operation),
		Description: "ordered by the BigFleet provider " + c.scope.Provider,
		// In the order itself: tags added later would leave a time in which nobody
		// knows whose the server is.
		Tags: append(c.scope.Own(scaleway.Tags{Machine: t.Spec.MachineID, Operation: operation, Life: operation}).List(), o.Tags...),
	}, scw.WithContext(sending))
	if err == nil && (server == nil || server.ID == "") {
		err = scaleway.ErrEmptyAnswer
	}
	switch {
	case err == nil:
		c.log.Info("a server was ordered", "machine_id", t.Spec.MachineID, "operation_id", operation, "server", server.ID, "offer", server.OfferName)
		c.remember(t, server)
		c.turn.leave(operation)
		return nil
	case scaleway.Refused(err):
		clearMark(t)
		c.turn.leave(operation)
		if err = scaleway.Explain(err); errors.Is(err, cloud.ErrNotFound) {
			return fmt.Errorf("%w: offer %s (%s): %w", cloud.ErrInvalid, t.Spec.Type, t.Notes[noteOffer], err)
		}
		return fmt.Errorf("the order was refused: %w", err)
	default:
		c.setMark(t, "sent") // anew: the call may have taken its time
		c.turn.take(operation, c.timing.Settle)
		c.log.Warn("an order was sent but not answered; its server is looked for, and nothing else is ordered meanwhile",
			"machine_id", t.Spec.MachineID, "operation_id", operation, "error", err)
		return c.again("the order was not answered (%v)", err)
	}
}

// search looks for the server of an order whose answer was lost. It gives up on
// a list that was begun when the server must have turned up.
func (c *Cloud) search(ctx context.Context, t *cloud.Task, until time.Time) error {
	operation := t.Spec.OperationID
	left := time.Until(until)
	servers, err := c.list(ctx, scaleway.OwnerTag(c.scope.Provider), scaleway.OperationTag(operation))
	if err != nil {
		return err
	}
	if made := withOperation(servers, operation); len(made) > 0 {
		c.log.Info("found the server of an order that was not answered", "machine_id", t.Spec.MachineID, "operation_id", operation, "server", made[0].ID)
		err := c.keepOldest(ctx, t, made)
		if err == nil {
			c.turn.leave(operation)
		}
		return err
	}
	if left > 0 {
		c.turn.take(operation, left)
		return c.again("an order may have been sent; its server is looked for until %s", until.UTC().Format(time.RFC3339))
	}
	c.turn.leave(operation)
	tag := scaleway.OperationTag(operation)
	return cloud.Advise(fmt.Errorf("%w: an order of %s may have been sent at %s and no answer to it was seen; no server with the tag %q is listed. It may still turn up, so nothing is ordered in its place before %s",
		cloud.ErrUncertain, t.Spec.Type, c.mark(t).at.UTC().Format(time.RFC3339), tag, until.Add(c.timing.Hold).UTC().Format(time.RFC3339)),
		fmt.Sprintf("look for the server in the cloud's console, by the tag %q: one that is there is paid for and becomes a spare by itself; if there is none, nothing was ordered", tag))
}

// keepOldest makes the oldest of an operation's servers the task's. There can be
// more only if somebody copied tags; they are paid for, so they become spares.
func (c *Cloud) keepOldest(ctx context.Context, t *cloud.Task, servers []*baremetal.Server) error {
	for _, extra := range servers[1:] {
		c.log.Error("two servers carry one operation; the younger becomes a spare", "operation_id", t.Spec.OperationID, "kept", servers[0].ID, "spare", extra.ID)
		if err := c.makeSpare(ctx, extra); err != nil {
			return err
		}
	}
	c.remember(t, servers[0])
	return nil
}

// withOperation returns the servers of an operation, oldest first.
func withOperation(servers []*baremetal.Server, operation string) []*baremetal.Server {
	return slices.DeleteFunc(slices.Clone(servers), func(s *baremetal.Server) bool {
		return scaleway.ParseTags(s.Tags).Operation != operation
	})
}

// remember makes the server the task's.
func (c *Cloud) remember(t *cloud.Task, server *baremetal.Server) {
	t.Ref = c.scope.Ref(server.ID)
	clearMark(t)
	delete(t.Notes, noteOffer)
	scaleway.NoteTime(t, noteTaken, time.Now())
}

// mine reads the task's server.
func (c *Cloud) mine(ctx context.Context, t *cloud.Task) (*baremetal.Server, error) {
	young := c.young(t)
	server, err := c.owned(ctx, t.Ref)
	if err != nil {
		return nil, young(err)
	}
	t.Note(noteSeen, "1")
	return server, nil
}

// settling says whether what is asked from now on may lag behind the task's taking
// of its server. It must be called before what it judges: an answer tells how
// things were when it was asked for.
func (c *Cloud) settling(t *cloud.Task) bool {
	at, ok := scaleway.NotedTime(t, noteTaken)
	return ok && time.Since(at) < c.timing.Settle
}

// young returns what turns "not found" of calls that are begun from now on into
// "not yet", while the task's server was only just ordered and was not read yet.
func (c *Cloud) young(t *cloud.Task) func(error) error {
	settling := c.settling(t) && t.Notes[noteSeen] == ""
	return func(err error) error {
		if settling && errors.Is(err, cloud.ErrNotFound) {
			return c.again("the server was ordered but cannot be read yet")
		}
		return err
	}
}
