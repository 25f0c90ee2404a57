package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"bigfleet-providers/provider/internal/cloud"
	"bigfleet-providers/provider/internal/machine"
	"bigfleet-providers/provider/internal/telemetry"
)

const (
	// confirmations is how many complete inventories in a row must lack a host,
	// or show it powered off, before its machine is touched.
	confirmations = 3
	// tagRepairs bounds the tags that one pass writes.
	tagRepairs = 20
	// firstPause is between two tries of the first pass, on which a new state
	// waits.
	firstPause = 2 * time.Second
)

// reconcileLoop compares the cloud with the records until ctx ends.
func (e *Engine) reconcileLoop(ctx context.Context, interval time.Duration) {
	for ctx.Err() == nil {
		pause := interval
		if err := e.Reconcile(ctx); err != nil && ctx.Err() == nil {
			e.o.Log.Error("the cloud's inventory could not be read; nothing is concluded from this pass", telemetry.KeyError, err.Error())
			if e.admits() != nil {
				pause = min(firstPause, interval)
			}
		}
		sleep(ctx, pause)
	}
}

// Reconcile makes one pass. The cloud is a witness, not the judge: an
// incomplete inventory concludes nothing; a server that no record knows is
// adopted where its machine has none; a machine loses its host only after
// several complete inventories and a direct read agree that it is gone; and a
// server is removed only if it carries our tags, no record claims it, it is
// old, a direct read confirms it, and there are few like it.
func (e *Engine) Reconcile(ctx context.Context) error {
	e.reconciling.Lock()
	defer e.reconciling.Unlock()
	began := time.Now()
	instances, err := e.o.Cloud.List(ctx)
	if err != nil {
		e.o.Observer.Reconciled(false, 0, 0)
		return err
	}
	// Records are read after the inventory: a server made in between is claimed
	// by a record that the inventory does not know, never the other way round.
	records := map[string]machine.Record{}
	e.o.Store.Records(func(rec machine.Record) bool {
		records[rec.ID] = rec
		return true
	})
	seen := make(map[string]cloud.Instance, len(instances))
	for _, in := range instances {
		seen[in.Ref] = in
	}

	first := e.isAwaiting()
	unclaimed, err := e.claim(ctx, began, instances, records, first)
	if err != nil {
		return err
	}
	e.checkHosts(ctx, began, records, seen)
	e.removeUnclaimed(unclaimed)
	e.o.Observer.Reconciled(true, len(instances), len(unclaimed))
	if first {
		// Or a restart would take a state that may lack servers for a whole one.
		if err := e.o.Store.SetInventoried(ctx); err != nil {
			return fmt.Errorf("record that the inventory was read: %w", err)
		}
		e.mu.Lock()
		e.awaiting = false
		e.beganIfReady()
		e.mu.Unlock()
		e.o.Log.Info("the cloud's inventory was read", "instances", len(instances))
	}
	return nil
}

func (e *Engine) isAwaiting() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.awaiting
}

// claims says whether a record accounts for an instance.
func claims(rec machine.Record, in cloud.Instance) bool {
	if rec.Host.Ref == in.Ref || rec.Leftover != nil && (rec.Leftover.Ref == in.Ref || rec.Leftover.Ref == "" && rec.Leftover.OperationID == in.OperationID) {
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

// claim matches instances to records, adopts what has a place, and returns what
// nobody claims.
func (e *Engine) claim(ctx context.Context, began time.Time, instances []cloud.Instance, records map[string]machine.Record, first bool) ([]cloud.Instance, error) {
	var unclaimed []cloud.Instance
	// Oldest first, so that of two servers for one machine the older is adopted.
	instances = slices.Clone(instances)
	slices.SortFunc(instances, func(a, b cloud.Instance) int { return a.Created.Compare(b.Created) })
	for _, in := range instances {
		rec, known := records[in.MachineID]
		switch {
		case known && claims(rec, in):
			if first && in.Cluster != "" && in.Cluster != rec.Cluster {
				believed, err := e.believe(ctx, in)
				if err != nil {
					return nil, fmt.Errorf("take over the binding of %s: %w", in.Ref, err)
				}
				records[in.MachineID] = believed
			}
			continue
		case in.MachineID == "":
			e.o.Log.Error("a server carries this provider's tag but names no machine; it is left alone: look at it in the console", telemetry.KeyInstance, in.Ref)
			continue
		case known && (rec.State != machine.Speculative || !rec.Since.Before(began)):
			unclaimed = append(unclaimed, in)
			continue
		}
		if !first {
			// A list may lag: only a direct read says that the server is there.
			if _, err := e.o.Cloud.Get(ctx, in.Ref); err != nil {
				if errors.Is(err, cloud.ErrNotFound) {
					continue
				}
				return nil, fmt.Errorf("confirm %s: %w", in.Ref, err)
			}
		}
		adopted, err := e.adopt(ctx, began, in)
		if err != nil {
			return nil, fmt.Errorf("adopt %s: %w", in.Ref, err)
		}
		records[in.MachineID] = adopted
	}
	return unclaimed, nil
}

// adopt gives a server of an earlier life back to its machine: CONFIGURED when
// its tags say so, else IDLE. One whose slot is offered no more is adopted too,
// so that it can be seen, drained and deleted.
func (e *Engine) adopt(ctx context.Context, began time.Time, in cloud.Instance) (machine.Record, error) {
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
			next.Offer = &machine.Offer{InstanceType: in.Type, Zone: in.Zone, Capacity: machine.OnDemand}
		case cur.State != machine.Speculative || !cur.Since.Before(began):
			return cur, machine.Unchanged, nil
		}
		done = true
		next.State, next.Since = machine.Idle, time.Now()
		next.Host = machine.Host{Provider: e.o.Provider, Ref: in.Ref}
		next.History = machine.History{Create: createID}
		if in.Cluster != "" {
			next.State, next.Cluster = machine.Configured, in.Cluster
			next.History.Configure = configureID
		}
		return next, machine.Visible, nil
	})
	if err == nil && done {
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
		if !atRest || cur.Host.Ref != in.Ref || in.Cluster == "" || in.Cluster == cur.Cluster {
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

// checkHosts looks for machines whose host is gone or off, and mends tags.
func (e *Engine) checkHosts(ctx context.Context, began time.Time, records map[string]machine.Record, seen map[string]cloud.Instance) {
	missing := map[string]int{}
	repairs := 0
	for id, rec := range records {
		if rec.State != machine.Idle && rec.State != machine.Configured || !rec.Since.Before(began) {
			continue
		}
		in, there := seen[rec.Host.Ref]
		switch {
		case !there, rec.State == machine.Configured && in.Power == cloud.PowerStopped:
			if missing[id] = e.missing[id] + 1; missing[id] >= confirmations {
				e.confirmBroken(ctx, rec)
			}
		case in.Cluster != rec.Cluster && repairs < tagRepairs:
			repairs++
			if err := e.o.Cloud.SetCluster(ctx, rec.Host.Ref, rec.Cluster); err != nil {
				e.o.Log.Warn("the cluster tag of a host does not match its binding and cannot be written", telemetry.KeyMachine, id, telemetry.KeyInstance, rec.Host.Ref, telemetry.KeyError, err.Error())
				continue
			}
			e.o.Log.Info("the cluster tag of a host was mended", telemetry.KeyMachine, id, telemetry.KeyInstance, rec.Host.Ref, telemetry.KeyCluster, rec.Cluster)
		}
	}
	e.missing = missing
}

// confirmBroken asks the cloud directly and fails the machine if its host is
// gone, or off while it should carry workloads.
func (e *Engine) confirmBroken(ctx context.Context, rec machine.Record) {
	in, err := e.o.Cloud.Get(ctx, rec.Host.Ref)
	reason := ""
	switch {
	case errors.Is(err, cloud.ErrNotFound):
		reason = fmt.Sprintf("host %s is gone (%s): it was removed by somebody else", rec.Host.Ref, classMissing)
	case err != nil:
		e.o.Log.Warn("a host is not in the inventory and cannot be read either", telemetry.KeyMachine, rec.ID, telemetry.KeyInstance, rec.Host.Ref, telemetry.KeyError, err.Error())
		return
	case rec.State == machine.Configured && in.Power == cloud.PowerStopped:
		reason = fmt.Sprintf("host %s is powered off (%s): it was stopped by somebody else or by its own shutdown", rec.Host.Ref, classMissing)
	default:
		return
	}
	broken := false
	next, err := e.o.Store.DoLater(ctx, rec.ID, func(cur machine.Record) (machine.Record, machine.Change, error) {
		broken = false
		if cur.Host != rec.Host || cur.State != rec.State {
			return cur, machine.Unchanged, nil
		}
		next, ok := machine.Break(cur, reason, time.Now(), e.o.FailedRetention)
		if !ok {
			return cur, machine.Unchanged, nil
		}
		broken = true
		return next, machine.Visible, nil
	})
	if err != nil {
		e.o.Log.Error("a lost host could not be recorded", telemetry.KeyMachine, rec.ID, telemetry.KeyError, err.Error())
		return
	}
	if broken {
		e.o.Log.Error("machine lost its host", telemetry.KeyMachine, rec.ID, telemetry.KeyReason, reason)
		e.launchTeardown(next)
	}
}

// removeUnclaimed removes servers that carry our tags and that no record
// claims, if they are old enough and few enough.
func (e *Engine) removeUnclaimed(unclaimed []cloud.Instance) {
	old := slices.DeleteFunc(slices.Clone(unclaimed), func(in cloud.Instance) bool {
		return time.Since(in.Created) < e.o.RemovalGrace
	})
	if len(old) == 0 {
		return
	}
	if time.Now().Before(e.o.RemovalsFrom) {
		e.o.Log.Warn("servers that no machine claims are kept: the state is a restored copy and may not know them", "servers", len(old),
			"until", e.o.RemovalsFrom, "first", old[0].Ref)
		return
	}
	if len(old) > e.o.RemovalCap {
		e.o.Log.Error("too many servers that no machine claims; none is removed: look at them in the console, then delete them there or raise the cap",
			"servers", len(old), "cap", e.o.RemovalCap, "first", old[0].Ref)
		return
	}
	for _, in := range old {
		e.goFor("removal "+in.Ref, func(ctx context.Context) { e.remove(ctx, in) })
	}
}

// remove tears one unclaimed server down. It keeps nothing: a pass that finds
// the server again starts again.
func (e *Engine) remove(ctx context.Context, in cloud.Instance) {
	e.o.Log.Warn("removing a server that no machine claims", telemetry.KeyInstance, in.Ref, telemetry.KeyMachine, in.MachineID, "created", in.Created)
	t := &cloud.Task{Spec: cloud.Spec{MachineID: in.MachineID, Type: in.Type, Zone: in.Zone}, Ref: in.Ref}
	for _, s := range e.o.Cloud.Discard() {
		t.Rerun = false
		for failures := 0; ; t.Rerun = true {
			err := e.discardStep(ctx, s, t)
			if err == nil {
				break
			}
			pause := e.backoff(failures + 1)
			if again, ok := errors.AsType[*cloud.AgainError](err); ok {
				pause = again.After
			} else if failures++; failures > confirmations {
				e.o.Log.Warn("an unclaimed server could not be removed; the next pass tries again", telemetry.KeyInstance, in.Ref, telemetry.KeyStep, s.Name, telemetry.KeyError, err.Error())
				return
			}
			if !sleep(ctx, pause) {
				return
			}
		}
	}
	e.o.Log.Info("an unclaimed server was removed", telemetry.KeyInstance, in.Ref)
}
