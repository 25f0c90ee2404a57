package crash

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "bigfleet-providers/proto/bigfleet/v1alpha1"
	"bigfleet-providers/provider/internal/cloud/scaleway"
)

// audit is held right after a restart, while transitions go on and no shard
// calls: what was acknowledged before must hold.
func (c *churn) audit() error {
	c.calls.Lock()
	defer c.calls.Unlock()
	var errs []error
	for _, s := range c.slots {
		if err := errors.Join(c.auditMachine(s), c.auditDead(s)); err != nil {
			errs = append(errs, fmt.Errorf("%s, turn %d: %w", s.id, s.turn, err))
		}
	}
	return errors.Join(append(errs, c.checkCursors(), c.checkOrders())...)
}

func (c *churn) auditMachine(s *slot) error {
	m, err := c.get(s.id)
	if err != nil {
		return err
	}
	if err := s.shown(m); err != nil || s.acked.kind == "" {
		return err
	}
	var errs []error
	used := s.acked.token
	for _, stale := range []token{used, {used.shard, used.epoch, used.sequence - 1}, {used.shard, used.epoch - 1, used.sequence + 100}} {
		if _, err := c.send(s.acked.kind, s.id, stale, s.binding); status.Code(err) != codes.FailedPrecondition {
			errs = append(errs, fmt.Errorf("token %v was accepted before and is not stale: %w", stale, err))
		}
	}
	if s.pending != "" {
		return errors.Join(errs...) // it may have begun: then the call before is no replay
	}
	s.last.sequence++
	ack, err := c.send(s.acked.kind, s.id, s.last, s.binding)
	switch {
	case status.Code(err) == codes.Internal && s.acked.kind == create && strings.Contains(err.Error(), "FAILED for good"):
	case err != nil:
		errs = append(errs, fmt.Errorf("replay of %s: %w", s.acked.kind, err))
	case ack.GetOperationId() != s.acked.operation:
		errs = append(errs, fmt.Errorf("replay of %s: operation %s, want %s", s.acked.kind, ack.GetOperationId(), s.acked.operation))
	default:
		s.acked.token = s.last
	}
	return errors.Join(errs...)
}

// auditDead looks at the machines that failed in the slot before.
func (c *churn) auditDead(s *slot) error {
	var errs []error
	for id, reason := range s.dead {
		m, err := c.get(id)
		if status.Code(err) == codes.NotFound {
			delete(s.dead, id) // shown for long enough
			continue
		}
		if err != nil || m.GetState() != failed || m.GetLastError() != reason {
			errs = append(errs, fmt.Errorf("%s: %v, %q, %w; it failed with %q", id, m.GetState(), m.GetLastError(), err, reason))
		}
	}
	return errors.Join(errs...)
}

// checkOrders looks for operations that made two servers.
func (c *churn) checkOrders() error {
	of := map[string]string{}
	var errs []error
	for _, server := range c.cloud.Servers() {
		tags := scaleway.ParseTags(server.Tags)
		if other := of[tags.Operation]; other != "" {
			errs = append(errs, fmt.Errorf("servers %s and %s are both of operation %s of %s", other, server.ID, tags.Operation, tags.Machine))
		}
		of[tags.Operation] = server.ID
	}
	return errors.Join(errs...)
}

// settleWithin bounds what may still be under way once no shard calls any more.
const settleWithin = 30 * time.Second

// quiesce lets every transition end, and compares the list with the cloud.
func (c *churn) quiesce() {
	c.t.Helper()
	c.acts.Lock()
	defer c.acts.Unlock()
	eventually(c.t, settleWithin, func() error { return c.compare(c.list()) })
	if err := errors.Join(c.hosts.complaints()...); err != nil {
		c.t.Error(err)
	}
}

// compare wants exactly one server for each machine that has a host, nothing
// else that bills, and nothing under way.
func (w *world) compare(l *pb.MachineList) error {
	var errs []error
	hosts := map[string]string{}
	for _, m := range l.GetMachines() {
		if transitional(m.GetState()) {
			errs = append(errs, fmt.Errorf("%s stays %s", m.GetId(), m.GetState()))
		}
		if m.GetHost().GetRef() != "" {
			hosts[m.GetHost().GetRef()] = m.GetId()
		}
	}
	kept := map[string]bool{}
	for _, s := range w.cloud.Servers() {
		ref := s.Zone + "/" + s.ID
		tags := scaleway.ParseTags(s.Tags)
		if id := hosts[ref]; id == "" || tags.Machine != id || tags.Owner != providerName {
			errs = append(errs, fmt.Errorf("server %s (%s, tags %q) belongs to machine %q", ref, s.State, s.Tags, id))
		}
		delete(hosts, ref)
		kept[s.ID] = true
	}
	for ref, id := range hosts {
		errs = append(errs, fmt.Errorf("%s: its server %s is gone", id, ref))
	}
	for _, v := range w.cloud.Volumes() {
		if !kept[v.ServerID] {
			errs = append(errs, fmt.Errorf("volume %s (%s, server %q) is left", v.ID, v.Status, v.ServerID))
		}
	}
	for _, leak := range w.cloud.Leaks() {
		errs = append(errs, fmt.Errorf("the cloud bills %s %s, which no server uses", leak.Kind, leak.ID))
	}
	return errors.Join(errs...)
}
