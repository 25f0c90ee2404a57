package lifecycle

import (
	"context"
	"errors"
	"time"

	"bigfleet-providers/provider/internal/cloud"
	"bigfleet-providers/provider/internal/machine"
	"bigfleet-providers/provider/internal/telemetry"
)

// kindServer is a server among the kinds of orphans; the others are those of
// cloud.Stray.
const kindServer = "server"

// How the removal of an orphan went, as metrics name it.
const (
	removalDone   = "removed"
	removalFailed = "failed"
	removalDry    = "dry_run"
	removalHeld   = "held" // too many at once, bound to a cluster, or the state is a restored copy
)

// orphan is something of ours at the cloud that nobody claims.
type orphan struct {
	kind, ref, machine string
	remove             func(context.Context) error
}

// sweep finds side resources that no server uses and no record claims. What it
// cannot read, it does not judge; the rest of the pass stands.
func (e *Engine) sweep(ctx context.Context, p *pass) {
	if e.o.Sweeper == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, inventoryTimeout)
	defer cancel()
	strays, err := e.o.Sweeper.Strays(ctx)
	if err != nil {
		if ctx.Err() == nil || errors.Is(ctx.Err(), context.DeadlineExceeded) {
			e.o.Log.Error("volumes and addresses could not be read; none is removed in this pass", telemetry.KeyError, err.Error())
		}
		return
	}
	p.swept = true
	found := map[strayKey]sighting{}
	for _, s := range strays {
		// As it is now: a Create may have begun since the pass did, and the volumes
		// that it makes are claimed by nothing that the pass knows.
		rec, known := e.o.Store.Record(s.MachineID)
		if known && claimsStray(rec, s) || p.serves(s) {
			continue
		}
		if s.MachineID == "" || noID(s.MachineID) {
			e.o.Log.Error("something carries this provider's tag but names no machine that there can be; it is left alone: look at it in the console", telemetry.KeyKind, s.Kind, telemetry.KeyInstance, s.Ref)
			continue
		}
		p.strays = append(p.strays, s)
		key := strayKey{s.Kind, s.Ref}
		before, again := e.strays[key]
		if !again {
			before.since = p.began
		}
		before.times++
		found[key] = before
	}
	e.strays = found
}

type strayKey struct{ kind, ref string }

// sighting is since when and how often in a row a stray was found.
type sighting struct {
	since time.Time
	times int
}

// claimsStray says whether a record accounts for a side resource of its
// machine: anything while work on the machine is under way or to come, else
// what the present host was made with.
func claimsStray(rec machine.Record, s cloud.Stray) bool {
	if rec.Op != nil || rec.Leftover != nil {
		return true
	}
	return rec.Host != "" && rec.State != machine.Failed && (s.OperationID == "" || s.OperationID == rec.History.Create)
}

// serves says whether a server of the inventory may still be what the side
// resource is for.
func (p *pass) serves(s cloud.Stray) bool {
	for _, in := range p.instances {
		if s.OperationID != "" && in.OperationID == s.OperationID || s.OperationID == "" && in.MachineID == s.MachineID {
			return true
		}
	}
	return false
}

// removeOrphans removes what carries our tags and no record claims, if it is
// old and little enough. How old is judged by when the pass began to read: an
// inventory may take minutes, and tells of the time before.
func (e *Engine) removeOrphans(p *pass) {
	old := append(e.oldServers(p), e.oldStrays(p)...)
	if len(old) == 0 {
		return
	}
	log := e.o.Log.With(telemetry.KeyCount, len(old), telemetry.KeyKind, old[0].kind, "first", old[0].ref)
	held := func() {
		for _, o := range old {
			e.o.Observer.Orphan(o.kind, removalHeld)
		}
	}
	switch {
	case e.o.DryRun:
		for _, o := range old {
			e.o.Observer.Orphan(o.kind, removalDry)
			e.o.Log.Warn("would remove what no machine claims, but this is a dry run", telemetry.KeyKind, o.kind, telemetry.KeyInstance, o.ref, telemetry.KeyMachine, o.machine)
		}
	case p.began.Before(e.o.RemovalsFrom):
		held()
		log.Warn("what no machine claims is kept: the state is a restored copy and may not know it", "until", e.o.RemovalsFrom)
	case len(old) > e.o.RemovalCap:
		held()
		log.Error("too much that no machine claims; nothing is removed: look at it in the console, then delete it there or raise --removal-cap", "cap", e.o.RemovalCap)
	default:
		for _, o := range old {
			e.goFor("removal "+o.kind+" "+o.ref, func(ctx context.Context) { e.removeOrphan(cloud.WithPriority(ctx, cloud.Background), o) })
		}
	}
}

// oldServers are those that may go.
func (e *Engine) oldServers(p *pass) []orphan {
	var old []orphan
	for _, in := range p.unclaimed {
		if p.began.Sub(in.Created) < e.o.RemovalGrace {
			continue
		}
		if in.Cluster != "" {
			// Whatever ends a binding clears the tag or claims the server. So the
			// state is older than the binding, and workloads run there.
			e.o.Observer.Orphan(kindServer, removalHeld)
			e.o.Log.Error("no machine claims a server that is bound to a cluster; it is left alone, and adopted once its machine has lost its host: was the state file replaced by an older one?",
				telemetry.KeyInstance, in.Ref, telemetry.KeyMachine, in.MachineID, telemetry.KeyCluster, in.Cluster)
			continue
		}
		old = append(old, orphan{kindServer, in.Ref, in.MachineID, func(ctx context.Context) error { return e.discardServer(ctx, in) }})
	}
	return old
}

// oldStrays are those that were found often enough in a row and are old. The
// age of one whose making the cloud does not date is that of its first sighting.
func (e *Engine) oldStrays(p *pass) []orphan {
	var old []orphan
	for _, s := range p.strays {
		seen := e.strays[strayKey{s.Kind, s.Ref}]
		born := s.Created
		if born.IsZero() {
			born = seen.since
		}
		if seen.times < confirmations || p.began.Sub(born) < e.o.RemovalGrace {
			continue
		}
		old = append(old, orphan{s.Kind, s.Ref, s.MachineID, func(ctx context.Context) error {
			ctx, cancel := context.WithTimeout(ctx, 2*readTimeout) // a read and a deletion
			defer cancel()
			return e.guarded(s.MachineID, "remove", func() error { return e.o.Sweeper.Remove(ctx, s) })
		}})
	}
	return old
}

// removeOrphan keeps nothing: a pass that finds the orphan again starts again.
func (e *Engine) removeOrphan(ctx context.Context, o orphan) {
	log := e.o.Log.With(telemetry.KeyKind, o.kind, telemetry.KeyInstance, o.ref, telemetry.KeyMachine, o.machine)
	if e.o.Keeper != nil {
		log = log.With(telemetry.KeyReason, "it is kept as a spare")
	}
	log.Warn("removing what no machine claims")
	switch err := o.remove(ctx); {
	case err == nil:
		e.o.Observer.Orphan(o.kind, removalDone)
		log.Info("what no machine claims was removed")
	case ctx.Err() == nil:
		e.o.Observer.Orphan(o.kind, removalFailed)
		log.Warn("what no machine claims could not be removed; the next pass tries again", telemetry.KeyError, err.Error())
	}
}

// discardServer tears one unclaimed server down. Its first step reads the
// server again and refuses one that is not ours.
func (e *Engine) discardServer(ctx context.Context, in cloud.Instance) error {
	t := &cloud.Task{Spec: cloud.Spec{MachineID: in.MachineID, Type: in.Type, Zone: in.Zone}, Ref: in.Ref}
	if e.o.Keeper != nil {
		// A Create may have taken the server since the inventory was read.
		t.Spec.OperationID = in.OperationID
	}
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
				return err
			}
			if !sleep(ctx, pause) {
				return context.Cause(ctx)
			}
		}
	}
	e.showElsewhere(ctx, in.Ref)
	return nil
}
