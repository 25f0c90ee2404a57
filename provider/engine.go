package provider

import (
	"fmt"
	"log/slog"
	"runtime"
	"time"

	"github.com/google/uuid"

	"bigfleet-providers/provider/internal/lifecycle"
	"bigfleet-providers/provider/internal/offering"
	"bigfleet-providers/provider/internal/store"
	"bigfleet-providers/provider/internal/telemetry/tracing"
)

// Limits on background work that no operator needs to turn.
const (
	maxCloudSteps = 64               // cloud steps at the same time
	failedListed  = 15 * time.Minute // a failed machine with nothing left
	removalGrace  = 30 * time.Minute // before what nobody claims is removed
	tagBudget     = time.Minute      // for a cluster tag before reconcile takes over
	retryMin      = time.Second
	retryMax      = time.Minute
	fakeRetryMin  = 20 * time.Millisecond
	fakeRetryMax  = time.Second
)

// hints are what last_error tells an operator to look at.
func (c *Config) hints() lifecycle.Hints {
	h := lifecycle.Hints{CallRate: c.vendor.Help.CallRate}
	if c.vendor.Delivers {
		return h
	}
	const agentLog = "the agent's log on %s (journalctl -u bigfleet-agent)"
	h.Contact = "look at the server's console, and whether it reaches --bootstrap-endpoint"
	h.Deliver = "see whether the host is up and reaches --bootstrap-endpoint, and " + fmt.Sprintf(agentLog, "it")
	h.Agent = "see " + fmt.Sprintf(agentLog, "the host")
	return h
}

// bornAt is when the state began to know what is ordered: with the first inventory,
// or as a copy of another. A restart makes it no older.
func bornAt(st *store.Store, now time.Time) time.Time {
	at, restored := st.InventoriedAt(), st.Restored()
	switch {
	case !st.Inventoried():
		return now
	case restored.After(at):
		return restored
	default:
		return at
	}
}

// newEngine makes the engine that drives the machines of the store.
func newEngine(cfg *Config, st *store.Store, back *Backend, boot *bootstrap, m *metrics, traces *tracing.Tracing, log *slog.Logger) *lifecycle.Engine {
	var held time.Time
	if restored := st.Restored(); !restored.IsZero() {
		if held = restored.Add(store.RestoreHold); time.Now().Before(held) {
			log.Warn("the state is a restored copy: calls wait for the first inventory, and servers that no machine claims are kept", "restored", restored, "until", held)
		}
	}
	if back.HoldOrders != nil && back.Fake == nil { // what a fake has ordered is listed at once
		back.HoldOrders(bornAt(st, time.Now()))
	}
	o := lifecycle.Options{
		Store: st, Cloud: back.Cloud, Deleter: back.Deleter, Sweeper: back.Sweeper, Keeper: back.Keeper, Delivery: boot.delivery,
		Provider: cfg.Provider, UserData: boot.userData, Capacity: offering.Capacity(cfg.settings.Scope(cfg).Substrate),
		NewID: uuid.NewString,
		Timeouts: lifecycle.Timeouts{
			Create: cfg.CreateTimeout, Configure: cfg.ConfigureTimeout,
			Drain: cfg.DrainTimeout, Delete: cfg.DeleteTimeout,
		},
		Pace: lifecycle.Pace{
			RetryMin: retryMin, RetryMax: retryMax, TagBudget: tagBudget, Poll: back.Poll, Reconnect: cfg.ReconnectWindow,
			TypePauseMin: cfg.TypePause, TypePauseMax: cfg.TypePauseMax,
		},
		Log:             log,
		Hints:           cfg.hints(),
		Observer:        m,
		Sealer:          boot.sealer,
		RequireFence:    cfg.RequireFence,
		FailedRetention: cfg.FailedRetention,
		FailedListed:    failedListed,
		MaxCloudSteps:   maxCloudSteps,
		MaxCreates:      cfg.MaxParallelCreates,
		Awaiting:        !st.Inventoried() || time.Now().Before(held),
		RemovalsFrom:    held,
		RemovalGrace:    removalGrace,
		RemovalCap:      cfg.RemovalCap,
		DryRun:          cfg.ReconcileDryRun,
	}
	if back.Fake != nil {
		o.Pace.RetryMin, o.Pace.RetryMax = fakeRetryMin, fakeRetryMax
		// Its stock comes back as fast as all else happens in it.
		o.Pace.TypePauseMin, o.Pace.TypePauseMax = back.Fake.Scaled(cfg.TypePause), back.Fake.Scaled(cfg.TypePauseMax)
		// The fake's calls cost our own processors: more of them at once than
		// there are would only keep the shards' calls waiting.
		o.MaxCloudSteps = runtime.GOMAXPROCS(0)
		o.Pace.CallsFirst = true
		if !back.Fake.Processes && !cfg.Given("reconnect-window") {
			o.Pace.Reconnect = back.Fake.Scaled(cfg.ReconnectWindow) // its hosts end with this process
		}
	}
	if traces != nil {
		o.Tracer = traces
	}
	return lifecycle.New(o)
}
