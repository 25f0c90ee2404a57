package lifecycle

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"golang.org/x/sync/errgroup"

	"bigfleet-providers/provider/internal/cloud"
	"bigfleet-providers/provider/internal/machine"
	"bigfleet-providers/provider/internal/telemetry"
)

// claims says whether a record accounts for an instance.
func claims(rec machine.Record, in cloud.Instance) bool {
	if rec.Host == in.Ref || rec.Leftover != nil && (rec.Leftover.Ref == in.Ref || rec.Leftover.Ref == "" && rec.Leftover.OperationID == in.OperationID) {
		return true
	}
	op := rec.Op
	if op == nil {
		return false
	}
	// While a Create has no reference yet, every server of its operation may be
	// the one it is about to find.
	return op.Ref == in.Ref || op.Kind == machine.Create && op.Ref == "" && op.ID == in.OperationID
}

// garbled says what is wrong with an instance's tags, "" when they can be ours.
// They can be edited by hand, and what they say would go into records and
// answers that must be text.
func garbled(in cloud.Instance) string {
	switch {
	case in.MachineID == "":
		return "they name no machine"
	case noID(in.MachineID):
		return "no machine can have the id that they name"
	case noID(in.Cluster):
		return "no cluster can have the id that they name"
	case noID(in.OperationID):
		return "no operation can have the id that they name"
	default:
		return ""
	}
}

// noID says that nothing can have the id.
func noID(s string) bool {
	return len(s) > machine.MaxIDBytes || !utf8.ValidString(s) || slices.ContainsFunc([]rune(s), unicode.IsControl)
}

// claim matches instances to records, adopts what has a place, and finds what
// nobody claims.
func (e *Engine) claim(ctx context.Context, p *pass) error {
	// Of two servers for one machine the first here is adopted: one that is bound
	// to a cluster, since workloads run there, else the older.
	slices.SortFunc(p.instances, func(a, b cloud.Instance) int {
		if bound := a.Cluster != ""; bound != (b.Cluster != "") {
			if bound {
				return -1
			}
			return 1
		}
		return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.Ref, b.Ref))
	})
	var homeless []cloud.Instance
	for _, in := range p.instances {
		e.reportOdd(p, in)
		if in.Spare {
			p.reported[reportSpare]++
			continue
		}
		if why := garbled(in); why != "" {
			p.reported[reportNameless]++
			e.o.Log.Error("a server carries this provider's tag, but its other tags are no use; it is left alone: look at it in the console", telemetry.KeyInstance, in.Ref, telemetry.KeyReason, why)
			continue
		}
		rec, known := p.records[in.MachineID]
		switch {
		case known && claims(rec, in):
			// A machine that was never configured in its present life cannot have got a
			// tag from us since: a plain copy of an older state was put in place.
			unknownBinding := rec.State == machine.Idle && rec.History.Configure == ""
			if (p.first || unknownBinding) && in.Cluster != "" && in.Cluster != rec.Cluster {
				believed, err := e.believe(ctx, in)
				if err != nil {
					return fmt.Errorf("take over the binding of %s: %w", in.Ref, err)
				}
				p.records[in.MachineID] = believed
			}
		case known && e.replaced(ctx, p, rec):
			adopted, err := e.adopt(ctx, p.began, in, rec.Host)
			if err != nil {
				return fmt.Errorf("adopt %s: %w", in.Ref, err)
			}
			p.records[in.MachineID] = adopted
		case known && (rec.State != machine.Speculative || !rec.Since.Before(p.began)):
			p.unclaimed = append(p.unclaimed, in)
		case !known && in.Cluster == "" && e.over(in.MachineID):
			p.unclaimed = append(p.unclaimed, in)
		case in.Unfinished && in.Cluster == "" && e.o.Keeper != nil:
			// Its Create is on no record. The next one of its machine finds it by its tag.
			p.unclaimed = append(p.unclaimed, in)
		default:
			homeless = append(homeless, in)
		}
	}
	if !p.first {
		homeless = e.confirmThere(ctx, p, homeless)
	}
	for _, in := range homeless {
		if rec, known := p.records[in.MachineID]; known && rec.State != machine.Speculative {
			p.unclaimed = append(p.unclaimed, in) // an older server was adopted a moment ago
			continue
		}
		adopted, err := e.adopt(ctx, p.began, in, "")
		if err != nil {
			return fmt.Errorf("adopt %s: %w", in.Ref, err)
		}
		p.records[in.MachineID] = adopted
	}
	return nil
}

// replaced says that the host of a machine at rest is gone, by the cloud's own
// word. It is asked of restored states only: the copy may be older than the host.
// Until the server that replaced it is the machine's, the machine is listed as
// free on nothing, and the token of the host before is the one that works.
func (e *Engine) replaced(ctx context.Context, p *pass, rec machine.Record) bool {
	if _, listed := p.seen[rec.Host]; listed || !p.first || rec.State != machine.Idle && rec.State != machine.Configured {
		return false
	}
	_, err := e.read(ctx, rec.Host)
	return errors.Is(err, cloud.ErrNotFound)
}

// over says that the id was that of a machine that has FAILED and is gone. Where
// workloads run all the same, the server is worth more than the id.
func (e *Engine) over(id string) bool {
	slot, generation := machine.Lineage(id)
	return generation < e.o.Store.Generation(slot)
}

// reportOdd names the servers that something is wrong with at the cloud.
func (e *Engine) reportOdd(p *pass, in cloud.Instance) {
	switch in.Power {
	case cloud.PowerLocked:
		p.reported[reportLocked]++
		e.o.Log.Warn("the cloud holds a server locked", telemetry.KeyInstance, in.Ref, telemetry.KeyMachine, in.MachineID)
	case cloud.PowerUnknown:
		p.reported[reportStrange]++
		e.o.Log.Warn("a server is in a state that this release does not know", telemetry.KeyInstance, in.Ref, telemetry.KeyMachine, in.MachineID, telemetry.KeyState, in.PowerWord)
	case cloud.PowerRunning, cloud.PowerStopped, cloud.PowerChanging:
	}
}

// confirmThere reads each server directly, since a list may lag, and returns
// those that are there. One that cannot be read waits for the next pass, and
// keeps no other waiting.
func (e *Engine) confirmThere(ctx context.Context, p *pass, listed []cloud.Instance) []cloud.Instance {
	var (
		mu     sync.Mutex
		failed = map[string]bool{}
		group  errgroup.Group
	)
	group.SetLimit(directReads)
	for _, in := range listed {
		group.Go(func() error {
			_, err := e.read(ctx, in.Ref)
			if err == nil {
				return nil
			}
			mu.Lock()
			defer mu.Unlock()
			failed[in.Ref] = true
			if !errors.Is(err, cloud.ErrNotFound) {
				p.reported[reportUnreadable]++
				e.o.Log.Warn("a server that no record knows cannot be read; the next pass tries again", telemetry.KeyInstance, in.Ref, telemetry.KeyMachine, in.MachineID, telemetry.KeyError, err.Error())
			}
			return nil
		})
	}
	_ = group.Wait() // its functions return none
	return slices.DeleteFunc(slices.Clone(listed), func(in cloud.Instance) bool { return failed[in.Ref] })
}

// adopt gives a server of an earlier life back to its machine: CONFIGURED when
// its tags say so, else IDLE. One whose slot is offered no more is adopted too,
// so that it can be seen, drained and deleted.
//
// A machine at rest takes it in place of its host if that one, by its ref, is gone.
func (e *Engine) adopt(ctx context.Context, began time.Time, in cloud.Instance, gone string) (machine.Record, error) {
	createID := in.OperationID
	if createID == "" {
		createID = e.o.NewID()
	}
	configureID := e.o.NewID()
	done := false
	rec, err := e.o.Store.Do(ctx, in.MachineID, func(cur machine.Record) (machine.Record, machine.Change, error) {
		done = false
		next := cur.Clone()
		switch {
		case cur.State == machine.Unknown:
			next.ID, next.Slot, next.Retired = in.MachineID, in.MachineID, true
			next.Offer = &machine.Offer{InstanceType: in.Type, Zone: in.Zone, Capacity: e.o.Capacity}
		case gone != "" && cur.Host == gone && (cur.State == machine.Idle || cur.State == machine.Configured):
			next.Cluster, next.Metadata, next.Lock = "", nil, nil
		case cur.State != machine.Speculative || !cur.Since.Before(began):
			return cur, machine.Unchanged, nil
		}
		done = true
		next.State, next.Since = machine.Idle, time.Now()
		next.Host = in.Ref
		next.History = machine.History{Create: createID}
		next.Bound = in.Life != "" && in.Life == in.OperationID
		if in.Cluster != "" {
			next.State, next.Cluster = machine.Configured, in.Cluster
			next.History.Configure = configureID
		}
		return next, machine.Visible, nil
	})
	if err == nil && done {
		if gone != "" {
			e.o.Delivery.Forget(rec.ID) // what it knew is of the host before
		}
		e.o.Log.Warn("adopted a server that the state did not know", telemetry.KeyMachine, rec.ID, telemetry.KeyInstance, in.Ref,
			telemetry.KeyState, rec.State.String(), telemetry.KeyCluster, rec.Cluster)
	}
	return rec, err
}

// believe takes over the cluster that a host's tag names, where the record of a
// machine at rest says otherwise: the record is of an older copy of the state.
// To list a bound machine as free would be to invite its deletion. The reverse,
// a binding without a tag, stays: a drain of what is drained does no harm.
func (e *Engine) believe(ctx context.Context, in cloud.Instance) (machine.Record, error) {
	configureID := e.o.NewID()
	was := ""
	rec, err := e.o.Store.Do(ctx, in.MachineID, func(cur machine.Record) (machine.Record, machine.Change, error) {
		was = ""
		atRest := cur.State == machine.Idle || cur.State == machine.Configured
		if !atRest || cur.Host != in.Ref || in.Cluster == "" || in.Cluster == cur.Cluster {
			return cur, machine.Unchanged, nil
		}
		was = cur.State.String()
		next := cur.Clone()
		next.State, next.Since = machine.Configured, time.Now()
		next.Cluster, next.Metadata = in.Cluster, nil
		next.History.Configure, next.History.Drain = configureID, ""
		return next, machine.Visible, nil
	})
	if err == nil && was != "" {
		e.o.Log.Warn("a server is bound to another cluster than the state knew; the server is believed", telemetry.KeyMachine, rec.ID,
			telemetry.KeyInstance, in.Ref, telemetry.KeyState, was, telemetry.KeyCluster, rec.Cluster)
	}
	return rec, err
}
