// Package provider is a capacity provider as a process, for whichever vendor's
// cloud: it reads the configuration, builds the parts, runs them, and stops them
// in order. What is particular to a vendor comes with its Vendor.
package provider

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"runtime"
	"strings"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"bigfleet-providers/provider/internal/certificates"
	"bigfleet-providers/provider/internal/lifecycle"
	"bigfleet-providers/provider/internal/machine"
	"bigfleet-providers/provider/internal/offering"
	"bigfleet-providers/provider/internal/rpc"
	"bigfleet-providers/provider/internal/store"
	"bigfleet-providers/provider/internal/telemetry"
	"bigfleet-providers/provider/internal/telemetry/tracing"
)

// Limits on background work that no operator needs to turn.
const (
	maxCloudSteps   = 64               // cloud steps at the same time
	failedListed    = 15 * time.Minute // a failed machine with nothing left
	removalGrace    = 30 * time.Minute // before what nobody claims is removed
	tagBudget       = time.Minute      // for a cluster tag before reconcile takes over
	retryMin        = time.Second
	retryMax        = time.Minute
	fakeRetryMin    = 20 * time.Millisecond
	fakeRetryMax    = time.Second
	catalogDeadline = time.Minute
	startWait       = 15 * time.Second // for the first inventory, before reads are served without it
)

// Run runs a provider until ctx ends. The configuration must be valid. All
// listeners are open, and their addresses logged, before the first call is
// answered.
func Run(ctx context.Context, cfg *Config, version string, log *slog.Logger) (err error) {
	grpcCerts, security, err := cfg.TLS.open()
	if err != nil {
		return err
	}
	scope := cfg.settings.Scope(cfg)
	log = log.With("provider", cfg.Provider, telemetry.KeyZone, scope.Zone)
	log.Info("starting", "version", version, "security", security, "substrate", scope.Substrate, "fake", cfg.UseFake)

	if !cfg.UseFake {
		cfg.settings.LogAccount(log)
	}

	collections := collectRarely()
	defer collections.stop()
	reg := telemetry.NewRegistry(cfg.vendor.Name, version)
	m := newMetrics(reg)
	traces, err := tracing.Open(ctx, tracing.Options{
		Cloud: cfg.vendor.Name, Provider: cfg.Provider, Zone: scope.Zone, Version: version, Lookup: os.LookupEnv, Log: log,
	})
	if err != nil {
		return err
	}
	defer traces.Close(ctx)
	// The store comes first: a second process on the same file must learn that
	// before it opens a port or touches the cloud.
	st, err := store.Open(store.Options{Path: cfg.State, Owner: cfg.owner(), View: (&rpc.Framer{Provider: cfg.Provider}).Frame, Log: log, Committed: m.committed})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, st.Close()) }()
	if cfg.State == "" {
		log.Warn("no --state: machines, bindings and fencing marks are forgotten at exit; only fit for trials")
	}

	opening := Opening{Version: version, Transport: transport(cfg.vendor.Name, reg, traces, log), Metrics: reg, Log: log}
	if cfg.UseFake {
		if opening.Trial, err = openTrial(cfg, cfg.State, log); err != nil {
			return err
		}
	}
	back, err := cfg.settings.Open(ctx, cfg, opening)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, back.close()) }()
	boot, err := openBootstrap(ctx, cfg, back, opening.Trial, st, reg, log)
	if err != nil {
		return err
	}
	if back.Fake == nil {
		if err := checkAccess(ctx, cfg.vendor.Name, back.Prober, accessPause, log); err != nil {
			return errors.Join(err, boot.Close())
		}
	}
	if err := back.startable(ctx); err != nil {
		return errors.Join(err, boot.Close())
	}
	if back.Fake != nil {
		if err := back.Fake.Restore(st.Records, boot.userData); err != nil {
			return errors.Join(fmt.Errorf("fake backend: %w", err), boot.Close())
		}
	}
	var held time.Time
	if restored := st.Restored(); !restored.IsZero() {
		if held = restored.Add(store.RestoreHold); time.Now().Before(held) {
			log.Warn("the state is a restored copy: calls wait for the first inventory, and servers that no machine claims are kept", "restored", restored, "until", held)
		}
	}
	if back.HoldOrders != nil && back.Fake == nil { // what a fake has ordered is listed at once
		since := st.Restored()
		if !st.Inventoried() {
			since = time.Now()
		}
		back.HoldOrders(since)
	}
	o := lifecycle.Options{
		Store: st, Cloud: back.Cloud, Deleter: back.Deleter, Sweeper: back.Sweeper, Keeper: back.Keeper, Delivery: boot.delivery,
		Provider: cfg.Provider, UserData: boot.userData, Capacity: offering.Capacity(scope.Substrate),
		NewID: uuid.NewString,
		Timeouts: lifecycle.Timeouts{
			Create: cfg.CreateTimeout, Configure: cfg.ConfigureTimeout,
			Drain: cfg.DrainTimeout, Delete: cfg.DeleteTimeout,
		},
		Pace: lifecycle.Pace{
			RetryMin: retryMin, RetryMax: retryMax, TagBudget: tagBudget,
			TypePauseMin: cfg.TypePause, TypePauseMax: cfg.TypePauseMax,
		},
		Log:             log,
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
		o.Pace.TypePauseMin, o.Pace.TypePauseMax = back.Fake.scaled(cfg.TypePause), back.Fake.scaled(cfg.TypePauseMax)
		// The fake's calls cost our own processors: more of them at once than
		// there are would only keep the shards' calls waiting.
		o.MaxCloudSteps = runtime.GOMAXPROCS(0)
		o.Pace.CallsFirst = true
	}
	if traces != nil {
		o.Tracer = traces
	}
	engine := lifecycle.New(o)
	reg.MustRegister(newFleet(st, engine))
	slots := &slotSource{cfg: cfg, catalog: back.Catalog, fitter: back.Fitter, adopter: back.Adopter, reach: back.Reach, engine: engine, metrics: m, log: log}
	if err := slots.seed(ctx, true); err != nil {
		return errors.Join(err, boot.Close())
	}
	collections.serve()

	grpcListener, err := listen(ctx, "addr", cfg.Addr)
	if err != nil {
		return errors.Join(err, boot.Close())
	}
	metricsListener, err := listenMetrics(ctx, cfg, log)
	if err != nil {
		return errors.Join(err, boot.Close(), grpcListener.Close())
	}
	var adminListener net.Listener
	if cfg.AdminSocket != "" {
		if adminListener, err = listenAdmin(ctx, cfg.AdminSocket); err != nil {
			err = errors.Join(err, boot.Close(), grpcListener.Close())
			if metricsListener != nil {
				err = errors.Join(err, metricsListener.Close())
			}
			return err
		}
	}
	if boot.endpoint() == trialEndpoint {
		log.Info("the endpoint's name is known to the fake's own hosts alone", "endpoint", trialEndpoint, "listen", boot.front.listener.Addr().String())
	}
	log.Info("serving", "grpc", grpcListener.Addr().String(), "metrics", addrOf(metricsListener), "endpoint", boot.endpoint(),
		"machines", st.Size())

	var serving atomic.Bool // the gRPC port
	listeners := boot.certificates()
	grpcOpts := grpcOptions{
		reflection: cfg.Reflection, requireIdentity: cfg.RequireShardIdentity,
		stopTimeout: cfg.ShutdownTimeout, serving: &serving, metrics: m, log: log, more: traces.ServerOptions(rpc.Mutations()...),
	}
	if grpcCerts != nil {
		listeners = append(listeners, grpcCerts)
		grpcOpts.tls = grpcTLS(grpcCerts)
	}
	keeper := certificates.NewKeeper(reg, log, cfg.TLSReload, listeners...)
	var stopping atomic.Bool
	svc := rpc.New(engine, frames{st}, cfg.Provider)
	parts := []part{
		{"grpc", func(ctx context.Context) error {
			defer stopping.Store(true)
			// Connections wait in the listener's queue meanwhile, so that a shard
			// that finds the port open finds its calls accepted too. After a while
			// reads are worth more than waiting.
			select {
			case <-engine.Began():
			case <-time.After(startWait):
				log.Warn("the cloud's inventory could not be read yet: machines are shown, and calls that change them are refused until it was")
			case <-ctx.Done():
				return grpcListener.Close()
			}
			return serveGRPC(ctx, grpcListener, svc, grpcOpts)
		}},
	}
	parts = append(parts, boot.parts()...)
	parts = append(parts, []part{
		{"certificates", keeper.Run},
		{"lifecycle", func(ctx context.Context) error { return engine.Run(ctx, cfg.ReconcileInterval) }},
		{"prices", func(ctx context.Context) error { return slots.refresh(ctx, cfg.PriceRefresh) }},
		{"readiness", func(ctx context.Context) error {
			select {
			case <-engine.Began():
				log.Info("ready: calls are accepted")
				<-ctx.Done()
			case <-ctx.Done():
			}
			return nil
		}},
		{"store", func(ctx context.Context) error {
			select {
			case <-ctx.Done():
				return nil
			case <-st.Done():
				return fmt.Errorf("the state cannot be written any more: %w", st.Err())
			}
		}},
	}...)
	if metricsListener != nil {
		ready := func() []string {
			var reasons []string
			if stopping.Load() || ctx.Err() != nil {
				reasons = append(reasons, "stopping")
			}
			if err := engine.Ready(); err != nil {
				reasons = append(reasons, err.Error())
			}
			if !serving.Load() && len(reasons) == 0 {
				reasons = append(reasons, "the gRPC port is not served yet")
			}
			if err := st.Err(); err != nil {
				reasons = append(reasons, err.Error())
			}
			return reasons
		}
		parts = append(parts, part{"metrics", func(ctx context.Context) error {
			return serveHTTP(ctx, metricsListener, telemetry.NewHandler(reg, ready), log)
		}})
	}
	if adminListener != nil {
		parts = append(parts, part{"admin socket", func(ctx context.Context) error {
			return serveAdmin(ctx, adminListener, st, boot.channel, log)
		}})
	}
	err = runParts(ctx, log, parts)
	if err == nil {
		log.Info("stopped")
	}
	return err
}

// owner is whose state this process keeps: a state file is good for one alone.
func (c *Config) owner() store.Owner {
	s := c.settings.Scope(c)
	return store.Owner{Provider: c.Provider, Zone: s.Zone, Substrate: s.Substrate, Project: strings.ToLower(s.Project)}
}

// frames shows the store to the service.
type frames struct{ st *store.Store }

// Frame implements rpc.Reader.
func (f frames) Frame(id string) ([]byte, bool) {
	_, view, ok := f.st.Get(id)
	return view, ok
}

// Frames implements rpc.Reader.
func (f frames) Frames(states []machine.State, limit int, since []byte) ([][]byte, []byte) {
	page := f.st.List(store.Filter{States: states, Max: limit, Since: since})
	return page.Views, page.Revision
}

// listenMetrics opens the metrics port. Only a trial on the fake backend, with
// the port left at its default, may go elsewhere when it is taken.
func listenMetrics(ctx context.Context, cfg *Config, log *slog.Logger) (net.Listener, error) {
	if cfg.MetricsAddr == "" {
		return nil, nil
	}
	ln, err := listen(ctx, "metrics-addr", cfg.MetricsAddr)
	if err != nil && cfg.UseFake && !cfg.set["metrics-addr"] {
		log.Warn("the default metrics port is taken; using a free one, since this is a trial", telemetry.KeyError, err.Error())
		return listen(ctx, "metrics-addr", "127.0.0.1:0")
	}
	return ln, err
}

func addrOf(ln net.Listener) string {
	if ln == nil {
		return "off"
	}
	return ln.Addr().String()
}
