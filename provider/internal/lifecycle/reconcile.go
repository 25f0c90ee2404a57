package lifecycle

import (
	"cmp"
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
	// or show it powered off, before its machine is touched; and in how many a
	// stray side resource must be found.
	confirmations = 3
	// tagRepairs bounds the tags that one pass writes.
	tagRepairs = 20
	// directReads bounds the servers that a pass reads at the same time.
	directReads = 8
	// readTimeout bounds a direct read or a write of a pass, inventoryTimeout an
	// inventory: one call that hangs must not keep the pass from all others.
	readTimeout      = 30 * time.Second
	inventoryTimeout = 10 * time.Minute
	// firstPause is between two tries of the first pass, on which a new state
	// waits.
	firstPause = 2 * time.Second
)

// Why a server of ours is reported and not touched, as metrics name it.
const (
	reportUnreadable = "unreadable"    // a direct read failed
	reportNameless   = "no_machine"    // its tags name no machine, or none that there can be
	reportLocked     = "locked"        // held by the cloud
	reportStrange    = "unknown_state" // in a state that the adapter does not know
	reportStopped    = "stopped"       // powered off, although its machine is IDLE
	reportSpare      = "spare"         // paid for and no machine's; the next Create takes it
)

// reports are the reasons above.
func reports() []string {
	return []string{reportUnreadable, reportNameless, reportLocked, reportStrange, reportStopped, reportSpare}
}

// PassReport is what one reconcile pass found.
type PassReport struct {
	Complete  bool // the inventory was; else the rest is empty
	Instances int
	// Reported is the servers that were left as they are, by reason. Each reason
	// is there.
	Reported map[string]int
	// Orphans is what carries our tags and nobody claims, by kind, young or old.
	// Each kind that was looked for is there.
	Orphans map[string]int
}

// pass is one comparison of the cloud with the records.
type pass struct {
	began     time.Time
	first     bool // calls are not accepted before it is through
	instances []cloud.Instance
	seen      map[string]cloud.Instance // by reference
	records   map[string]machine.Record // of machines that have something at the cloud, or that a server names
	reported  map[string]int
	// unclaimed is the servers that no record claims, strays the other things.
	unclaimed []cloud.Instance
	strays    []cloud.Stray
	swept     bool // strays are known
}

// reconcileLoop compares the cloud with the records until ctx ends.
func (e *Engine) reconcileLoop(ctx context.Context, interval time.Duration) {
	for failures := 0; ctx.Err() == nil; {
		pause := interval
		if err := e.Reconcile(ctx); err != nil && ctx.Err() == nil {
			if lost, ok := errors.AsType[*lostError](err); ok {
				e.logLost(lost)
				sleep(ctx, interval)
				continue
			}
			e.o.Log.Error("the cloud's inventory could not be read; nothing is concluded from this pass", telemetry.KeyError, err.Error())
			if e.isAwaiting() {
				e.mu.Lock()
				e.inventoryFault = " (" + clip(err.Error(), maxReasonBytes) + ")"
				e.mu.Unlock()
				pause = min(firstPause<<min(failures, 4), interval)
				failures++
			}
		}
		sleep(ctx, pause)
	}
}

// Reconcile makes one pass. The cloud is a witness, not the judge: an
// incomplete inventory concludes nothing; a server that no record knows is
// adopted where its machine has none; a machine loses its host only after
// several complete inventories and a direct read agree that it is gone; and a
// server, volume or address is removed only if it carries our tags, no record
// claims it, it is old, a direct read confirms it, and there are few like it.
func (e *Engine) Reconcile(ctx context.Context) error {
	e.reconciling.Lock()
	defer e.reconciling.Unlock()
	var report PassReport // incomplete, unless all goes well
	err := e.guarded("", "reconcile", func() (err error) {
		report, err = e.compare(cloud.WithPriority(ctx, cloud.Background))
		return err
	})
	e.o.Observer.Reconciled(report)
	return err
}

// compare is one pass.
func (e *Engine) compare(ctx context.Context) (PassReport, error) {
	p, err := e.inventory(ctx)
	if err != nil {
		return PassReport{}, err
	}
	slices.SortFunc(p.instances, func(a, b cloud.Instance) int { return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.Ref, b.Ref)) })
	if err := e.judgeOwner(ctx, p.instances); err != nil {
		return PassReport{}, err
	}
	if err := e.claim(ctx, p); err != nil {
		return PassReport{}, err
	}
	e.checkHosts(ctx, p)
	if !p.first {
		e.sweep(ctx, p)
		e.removeOrphans(p)
		return p.report(), nil
	}
	// Calls wait for the first pass, so it does no more. Recorded, or a restart
	// would take a state that may lack servers for a whole one.
	if err := e.o.Store.SetInventoried(ctx); err != nil {
		return PassReport{}, fmt.Errorf("record that the inventory was read: %w", err)
	}
	e.mu.Lock()
	e.awaiting = false
	e.beganIfReady()
	e.mu.Unlock()
	e.o.Log.Info("the cloud's inventory was read", "instances", len(p.instances))
	return p.report(), nil
}

// inventory reads what a pass compares.
func (e *Engine) inventory(ctx context.Context) (*pass, error) {
	p := &pass{
		began: time.Now(), first: e.isAwaiting(),
		seen: map[string]cloud.Instance{}, records: map[string]machine.Record{}, reported: map[string]int{},
	}
	for _, reason := range reports() {
		p.reported[reason] = 0
	}
	ctx, cancel := context.WithTimeout(ctx, inventoryTimeout)
	defer cancel()
	var err error
	if p.instances, err = e.o.Cloud.List(ctx); err != nil {
		return nil, err
	}
	tagged := make(map[string]bool, len(p.instances))
	for _, in := range p.instances {
		p.seen[in.Ref], tagged[in.MachineID] = in, true
	}
	// Records are read after the inventory: a server made in between is claimed
	// by a record that the inventory does not know, never the other way round.
	// A free slot matters only if a server names it.
	e.o.Store.Records(func(rec machine.Record) bool {
		if rec.State != machine.Speculative || tagged[rec.ID] {
			p.records[rec.ID] = rec
		}
		return true
	})
	return p, nil
}

func (p *pass) report() PassReport {
	r := PassReport{
		Complete: true, Instances: len(p.instances), Reported: p.reported,
		Orphans: map[string]int{kindServer: len(p.unclaimed)},
	}
	if p.swept {
		r.Orphans[cloud.KindVolume], r.Orphans[cloud.KindAddress] = 0, 0
		for _, s := range p.strays {
			r.Orphans[s.Kind]++
		}
	}
	return r
}

func (e *Engine) isAwaiting() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.awaiting
}

// read reads one server, within a time of its own.
func (e *Engine) read(ctx context.Context, ref string) (in cloud.Instance, err error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	err = e.guarded("", "read", func() (err error) {
		in, err = e.o.Cloud.Get(ctx, ref)
		return err
	})
	return in, err
}
