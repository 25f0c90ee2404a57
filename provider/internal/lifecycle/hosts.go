package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"bigfleet-providers/provider/internal/cloud"
	"bigfleet-providers/provider/internal/machine"
	"bigfleet-providers/provider/internal/telemetry"
)

// checkHosts looks for machines whose host is gone or off, and mends tags.
func (e *Engine) checkHosts(ctx context.Context, p *pass) {
	missing, off := map[string]int{}, map[string]int{}
	var broken, mistagged []machine.Record
	for id, rec := range p.records {
		if rec.State != machine.Idle && rec.State != machine.Configured || !rec.Since.Before(p.began) {
			continue
		}
		in, there := p.seen[rec.Host]
		switch {
		case !there, rec.State == machine.Configured && in.Power == cloud.PowerStopped:
			if missing[id] = e.missing[id] + 1; missing[id] >= confirmations {
				broken = append(broken, rec)
			}
			continue
		case in.Power == cloud.PowerStopped:
			// It bills, and a Configure powers it on: nothing to do but to say so.
			p.reported[reportStopped]++
			if off[id] = e.off[id] + 1; off[id] == confirmations {
				e.o.Log.Warn("the server of an IDLE machine is powered off; a Configure powers it on", telemetry.KeyMachine, id, telemetry.KeyInstance, rec.Host)
			}
		}
		if in.Cluster != rec.Cluster && len(mistagged) < tagRepairs {
			mistagged = append(mistagged, rec)
		}
	}
	e.missing, e.off = missing, off

	var (
		mu    sync.Mutex
		group errgroup.Group
	)
	group.SetLimit(directReads)
	for _, rec := range broken {
		group.Go(func() error {
			if !e.confirmBroken(ctx, rec) {
				mu.Lock()
				defer mu.Unlock()
				p.reported[reportUnreadable]++
			}
			return nil
		})
	}
	for _, rec := range mistagged {
		group.Go(func() error {
			e.mendTag(ctx, rec)
			return nil
		})
	}
	_ = group.Wait() // its functions return none
}

func (e *Engine) mendTag(ctx context.Context, rec machine.Record) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	log := e.o.Log.With(telemetry.KeyMachine, rec.ID, telemetry.KeyInstance, rec.Host, telemetry.KeyCluster, rec.Cluster)
	err := e.guarded(rec.ID, stepTag, func() error { return e.o.Cloud.SetCluster(ctx, rec.Host, rec.Cluster) })
	if err != nil {
		log.Warn("the cluster tag of a host does not match its binding and cannot be written", telemetry.KeyError, err.Error())
		return
	}
	log.Info("the cluster tag of a host was mended")
}

// confirmBroken asks the cloud directly. A machine whose host is gone is freed
// if it was IDLE and FAILED if it was CONFIGURED; so is one whose host is off
// while it should carry workloads. It reports false when the cloud did not
// answer.
func (e *Engine) confirmBroken(ctx context.Context, rec machine.Record) bool {
	in, err := e.read(ctx, rec.Host)
	switch {
	case errors.Is(err, cloud.ErrNotFound) && rec.State == machine.Idle && e.o.Deleter != nil:
		e.vacate(ctx, rec)
	case errors.Is(err, cloud.ErrNotFound):
		e.breakMachine(ctx, rec, 0, fmt.Sprintf("host %s is gone (%s): it is in none of %d inventories in a row and a direct read does not find it; it was removed by somebody else",
			rec.Host, classMissing, confirmations))
	case err != nil:
		e.o.Log.Warn("a host is not in the inventory and cannot be read either", telemetry.KeyMachine, rec.ID, telemetry.KeyInstance, rec.Host, telemetry.KeyError, err.Error())
		return false
	case rec.State == machine.Configured && in.Power == cloud.PowerStopped:
		reason := fmt.Sprintf("host %s is powered off (%s): it was so in %d inventories in a row; it was stopped by somebody else or by its own shutdown",
			rec.Host, classMissing, confirmations)
		if e.o.Keeper != nil {
			reason += fmt.Sprintf("; after %s %s", e.o.FailedRetention, e.o.Keeper.Keeps(rec.Host, rec.Offer.InstanceType))
		}
		e.breakMachine(ctx, rec, e.o.FailedRetention, reason)
	}
	return true
}

// vacate gives back the slot of an IDLE machine whose host is gone. It goes the
// way of a Delete, which finds the host gone and removes what it left.
func (e *Engine) vacate(ctx context.Context, rec machine.Record) {
	log := e.o.Log.With(telemetry.KeyMachine, rec.ID, telemetry.KeyInstance, rec.Host)
	if e.o.DryRun {
		log.Warn("the host of an IDLE machine is gone; its slot would be freed, but this is a dry run")
		return
	}
	id := e.o.NewID()
	vacated := false
	next, err := e.o.Store.DoLater(ctx, rec.ID, func(cur machine.Record) (machine.Record, machine.Change, error) {
		vacated = false
		if cur.Host != rec.Host {
			return cur, machine.Unchanged, nil
		}
		next, ok := machine.Vacate(cur, id, time.Now(), e.o.Timeouts.Delete)
		if !ok {
			return cur, machine.Unchanged, nil
		}
		vacated = true
		return next, machine.Visible, nil
	})
	switch {
	case err != nil:
		log.Error("a lost host could not be recorded", telemetry.KeyError, err.Error())
	case vacated:
		log.Warn("the host of an IDLE machine is gone; its slot is being freed", telemetry.KeyOperation, id,
			telemetry.KeyKind, machine.Delete.String(), telemetry.KeyState, next.State.String())
		e.o.Delivery.Forget(rec.ID)
		e.o.Observer.Started(machine.Delete)
		e.o.Tracer.Accepted(ctx, traced(next))
		e.launch(next)
	}
}

// breakMachine fails a machine at rest. Its host, if it is there, is kept so
// long.
func (e *Engine) breakMachine(ctx context.Context, rec machine.Record, keep time.Duration, reason string) {
	broken := false
	next, err := e.o.Store.DoLater(ctx, rec.ID, func(cur machine.Record) (machine.Record, machine.Change, error) {
		broken = false
		if cur.Host != rec.Host || cur.State != rec.State {
			return cur, machine.Unchanged, nil
		}
		next, ok := machine.Break(cur, reason, time.Now(), keep)
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
		e.o.Log.Error("machine lost its host", telemetry.KeyMachine, rec.ID, telemetry.KeyState, next.State.String(), telemetry.KeyReason, reason)
		e.launchTeardown(next)
	}
}
