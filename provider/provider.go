// Package provider is a capacity provider as a process, for whichever vendor's
// cloud: it reads the configuration, builds the parts, runs them, and stops them
// in order. What is particular to a vendor comes with its Vendor.
package provider

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"bigfleet-providers/provider/internal/certificates"
	"bigfleet-providers/provider/internal/cloud"
	"bigfleet-providers/provider/internal/lifecycle"
	"bigfleet-providers/provider/internal/machine"
	"bigfleet-providers/provider/internal/rpc"
	"bigfleet-providers/provider/internal/store"
	"bigfleet-providers/provider/internal/telemetry"
	"bigfleet-providers/provider/internal/telemetry/tracing"
)

// startWait is how long the first inventory is waited for, before reads are served
// without it.
const startWait = 15 * time.Second

// Run runs a provider until ctx ends. The configuration must be valid. All
// listeners are open, and their addresses logged, before the first call is
// answered.
func Run(ctx context.Context, cfg *Config, version string, log *slog.Logger) (err error) {
	grpcCerts, security, err := cfg.TLS.open()
	if err != nil {
		return err
	}
	scope := cfg.settings.Scope(cfg)
	log.Info("starting", "version", version, "security", security, "substrate", scope.Substrate, "fake", cfg.UseFake)

	if !cfg.UseFake {
		cfg.settings.LogAccount(log)
		if security == securityInsecure {
			log.Warn("the gRPC port is plaintext: everyone who reaches it can order and delete servers; set --tls-cert, --tls-key and --tls-ca, "+
				"unless a mesh sidecar in front of it enforces mTLS and nothing else can reach the port", telemetry.KeyListen, cfg.Addr)
		}
	}

	collections := collectRarely()
	defer collections.stop()
	reg := telemetry.NewRegistry(cfg.vendor.Name, cfg.Provider, version)
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
	back, err := openBackend(ctx, cfg, opening)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, back.close()) }()
	var opened undo
	defer func() { err = errors.Join(err, opened.run()) }()
	boot, err := openBootstrap(ctx, cfg, back, opening.Trial, st, reg, log)
	if err != nil {
		return err
	}
	opened.add(boot.Close)
	if back.Fake == nil {
		if err := checkAccess(ctx, cfg.vendor.Name, back.Prober, accessPause, log); err != nil {
			return err
		}
	}
	if err := back.startable(ctx); err != nil {
		return err
	}
	if back.Fake != nil {
		if err := back.Fake.Restore(st.Records, boot.userData); err != nil {
			return fmt.Errorf("fake backend: %w", err)
		}
	}
	engine := newEngine(cfg, st, back, boot, m, traces, log)
	reg.MustRegister(newFleet(st, engine))
	establish(ctx, engine, log)
	slots := &slotSource{cfg: cfg, catalog: back.Catalog, fitter: back.Fitter, adopter: back.Adopter, reach: back.Reach, engine: engine, metrics: m, log: log}
	collections.seed()
	if err := slots.seed(ctx, true); err != nil {
		return err
	}
	collections.serve()

	ports, err := openPorts(ctx, cfg, &opened, log)
	if err != nil {
		return err
	}
	if boot.endpoint() == trialEndpoint {
		log.Info("the endpoint's name is known to the fake's own hosts alone", "endpoint", trialEndpoint, "listen", boot.front.listener.Addr().String())
	}
	log.Info("serving", "grpc", ports.grpc.Addr().String(), "metrics", addrOf(ports.metrics), "endpoint", boot.endpoint(),
		"machines", st.Size())

	p := &process{cfg: cfg, log: log, reg: reg, metrics: m, traces: traces, st: st, boot: boot, engine: engine, slots: slots, ports: ports, grpcCerts: grpcCerts, returner: back.Returner}
	opened = nil // the parts close what they serve
	if err = runParts(ctx, log, p.parts(ctx)); err == nil {
		log.Info("stopped")
	}
	return err
}

// process is what a start has opened and made.
type process struct {
	cfg       *Config
	log       *slog.Logger
	reg       *telemetry.Registry
	metrics   *metrics
	traces    *tracing.Tracing
	st        *store.Store
	boot      *bootstrap
	engine    *lifecycle.Engine
	slots     *slotSource
	ports     ports
	grpcCerts *certificates.Live // nil: plaintext
	returner  cloud.Returner     // nil where no server is ever spare

	serving, stopping atomic.Bool // the gRPC port
}

// parts are the process's, in the order in which they stop.
func (p *process) parts(ctx context.Context) []part {
	listeners := p.boot.certificates()
	if p.grpcCerts != nil {
		listeners = append(listeners, p.grpcCerts)
	}
	keeper := certificates.NewKeeper(p.reg, p.log, p.cfg.TLSReload, listeners...)
	parts := append([]part{{"grpc", p.serveGRPC}}, p.boot.parts()...)
	parts = append(parts,
		part{"certificates", keeper.Run},
		part{"lifecycle", func(ctx context.Context) error { return p.engine.Run(ctx, p.cfg.ReconcileInterval) }},
		part{"prices", func(ctx context.Context) error { return p.slots.refresh(ctx, p.cfg.PriceRefresh) }},
		part{"readiness", p.announce},
		part{"store", p.watchStore},
		part{"owner", p.watchOwner},
	)
	if p.ports.metrics != nil {
		ready := func() []string { return p.unready(ctx) }
		parts = append(parts, part{"metrics", func(ctx context.Context) error {
			return serveHTTP(ctx, p.ports.metrics, telemetry.NewHandler(p.reg, ready), p.log)
		}})
	}
	if p.ports.admin != nil {
		parts = append(parts, part{"admin socket", func(ctx context.Context) error {
			return serveAdmin(ctx, p.ports.admin, p.st, p.boot.channel, &keptHandlers{engine: p.engine, returner: p.returner, log: p.log}, p.log)
		}})
	}
	return parts
}

func (p *process) serveGRPC(ctx context.Context) error {
	defer p.stopping.Store(true)
	// Connections wait in the listener's queue meanwhile, so that a shard that finds
	// the port open finds its calls accepted too. After a while reads are worth more
	// than waiting.
	select {
	case <-p.engine.Began():
	case <-time.After(startWait):
		p.log.Warn("the cloud's inventory could not be read yet: machines are shown, and calls that change them are refused until it was")
	case <-ctx.Done():
		return p.ports.grpc.Close()
	}
	o := grpcOptions{
		reflection: p.cfg.Reflection, requireIdentity: p.cfg.RequireShardIdentity,
		stopTimeout: p.cfg.ShutdownTimeout, serving: &p.serving, lost: p.engine.Lost(), metrics: p.metrics, log: p.log, more: p.traces.ServerOptions(rpc.Mutations()...),
	}
	if p.grpcCerts != nil {
		o.tls = grpcTLS(p.grpcCerts)
	}
	return serveGRPC(ctx, p.ports.grpc, rpc.New(p.engine, frames{p.st}, p.cfg.Provider), o)
}

// announce says on the log when calls are accepted.
func (p *process) announce(ctx context.Context) error {
	select {
	case <-p.engine.Began():
		p.log.Info("ready: calls are accepted")
		<-ctx.Done()
	case <-ctx.Done():
	}
	return nil
}

// watchStore ends the process when the state cannot be written any more.
func (p *process) watchStore(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case <-p.st.Done():
		return fmt.Errorf("the state cannot be written any more: %w", p.st.Err())
	}
}

// unready is why no call would be accepted now; ctx is the process's.
func (p *process) unready(ctx context.Context) []string {
	var reasons []string
	if p.stopping.Load() || ctx.Err() != nil {
		reasons = append(reasons, "stopping")
	}
	if err := p.engine.Ready(); err != nil {
		reasons = append(reasons, err.Error())
	}
	if !p.serving.Load() && len(reasons) == 0 {
		reasons = append(reasons, "the gRPC port is not served yet")
	}
	if err := errors.Join(p.st.Err(), p.st.Full()); err != nil {
		reasons = append(reasons, "the state cannot be written: "+err.Error())
	}
	return reasons
}

// owner is whose state this process keeps: a state file is good for one alone.
func (c *Config) owner() store.Owner {
	s := c.settings.Scope(c)
	return store.Owner{Provider: c.Provider, Zone: s.Zone, Substrate: s.Substrate, Project: strings.ToLower(s.Project), Flags: store.OwnerFlags(c.vendor.Help.Owner)}
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
