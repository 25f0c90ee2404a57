// Package provider is a capacity provider as a process: it reads the
// configuration, builds the parts, runs them, and stops them in order.
package provider

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/netip"
	"net/url"
	"os"
	"runtime"
	"strings"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"bigfleet-providers/cloudinit"
	"bigfleet-providers/provider/internal/certificates"
	"bigfleet-providers/provider/internal/channel"
	"bigfleet-providers/provider/internal/fakecloud"
	"bigfleet-providers/provider/internal/lifecycle"
	"bigfleet-providers/provider/internal/machine"
	"bigfleet-providers/provider/internal/offering"
	"bigfleet-providers/provider/internal/rpc"
	"bigfleet-providers/provider/internal/store"
	"bigfleet-providers/provider/internal/telemetry"
	"bigfleet-providers/provider/internal/telemetry/tracing"
	"bigfleet-providers/shared/token"
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
	log = log.With("provider", cfg.Provider, telemetry.KeyZone, cfg.Zone)
	log.Info("starting", "version", version, "security", security, "substrate", cfg.Substrate, "fake", cfg.UseFake)

	if !cfg.UseFake {
		// Which key and project, for whoever rotates or audits keys; the access key is
		// an id and no secret.
		log.Info("Scaleway account", "access_key", cfg.AccessKey, "project", cfg.ProjectID)
		if inClear(cfg.APIURL) {
			log.Warn("the secret key travels in clear: --api-url is http and not on this host", "api_url", cfg.APIURL)
		}
	}

	collections := collectRarely()
	defer collections.stop()
	reg := telemetry.NewRegistry(cloudName, version)
	m := newMetrics(reg)
	traces, err := tracing.Open(ctx, tracing.Options{
		Cloud: cloudName, Provider: cfg.Provider, Zone: cfg.Zone, Version: version, Lookup: os.LookupEnv, Log: log,
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

	var fake *fakeWorld
	if cfg.UseFake {
		if fake, err = openFakeWorld(ctx, cfg, log); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, fake.Close()) }()
	}
	secret, previous, sealer, err := bootstrapSecret(cfg, fake, log)
	if err != nil {
		return err
	}
	front, err := openChannel(ctx, cfg, fake, log)
	if err != nil {
		return err
	}
	ch, err := channel.New(channel.Options{
		Secret:   secret,
		Previous: previous,
		Locks:    hostLocks{st},
		Known:    func(id string) bool { _, _, ok := st.Get(id); return ok },
		Settled:  func(id, command string) bool { return settled(st, id, command) },
		Packages: front.packages,
		Log:      log,
		Metrics:  reg,
	})
	if err != nil {
		return errors.Join(err, front.listener.Close())
	}

	back, err := openScaleway(cfg, fake, version, reg, traces, log)
	if err != nil {
		return errors.Join(err, front.listener.Close())
	}
	if fake == nil {
		if err := checkAccess(ctx, back.prober, accessPause, log); err != nil {
			return errors.Join(err, front.listener.Close())
		}
	}
	if back.startable != nil {
		if err := back.startable(ctx); err != nil {
			return errors.Join(fmt.Errorf("--image: %w", err), front.listener.Close())
		}
	}
	params := front.params
	userData := func(id string) ([]byte, error) {
		p := params
		p.MachineID, p.Token = id, token.Derive(secret, id)
		p.CAPEM = front.certs.Current().Bundle.PEM
		return cloudinit.Render(p)
	}
	if fake != nil {
		if err := fake.restore(cfg, st, userData); err != nil {
			return errors.Join(fmt.Errorf("fake backend: %w", err), front.listener.Close())
		}
	}
	var held time.Time
	if restored := st.Restored(); !restored.IsZero() {
		if held = restored.Add(store.RestoreHold); time.Now().Before(held) {
			log.Warn("the state is a restored copy: calls wait for the first inventory, and servers that no machine claims are kept", "restored", restored, "until", held)
		}
	}
	if back.holdOrders != nil && fake == nil { // what a fake has ordered is listed at once
		since := st.Restored()
		if !st.Inventoried() {
			since = time.Now()
		}
		back.holdOrders(since)
	}
	o := lifecycle.Options{
		Store: st, Cloud: back.cloud, Deleter: back.deleter, Sweeper: back.sweeper, Keeper: back.keeper, Delivery: ch,
		Provider: cfg.Provider, UserData: userData, Capacity: offering.Capacity(cfg.Substrate),
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
		Sealer:          sealer,
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
	if cfg.UseFake {
		o.Pace.RetryMin, o.Pace.RetryMax = fakeRetryMin, fakeRetryMax
		// Its stock comes back as fast as all else happens in it.
		o.Pace.TypePauseMin = scaled(cfg.FakeScale, cfg.TypePause, 0)
		o.Pace.TypePauseMax = scaled(cfg.FakeScale, cfg.TypePauseMax, 0)
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
	slots := &slotSource{cfg: cfg, catalog: back.catalog, fitter: back.fitter, adopter: back.adopter, engine: engine, metrics: m, log: log}
	if err := slots.seed(ctx, true); err != nil {
		return errors.Join(err, front.listener.Close())
	}
	collections.serve()

	grpcListener, err := listen(ctx, "addr", cfg.Addr)
	if err != nil {
		return errors.Join(err, front.listener.Close())
	}
	metricsListener, err := listenMetrics(ctx, cfg, log)
	if err != nil {
		return errors.Join(err, front.listener.Close(), grpcListener.Close())
	}
	var adminListener net.Listener
	if cfg.AdminSocket != "" {
		if adminListener, err = listenAdmin(ctx, cfg.AdminSocket); err != nil {
			err = errors.Join(err, front.listener.Close(), grpcListener.Close())
			if metricsListener != nil {
				err = errors.Join(err, metricsListener.Close())
			}
			return err
		}
	}
	if params.Endpoint == fakeEndpoint {
		log.Info("the endpoint's name is known to the fake's own hosts alone", "endpoint", params.Endpoint, "listen", front.listener.Addr().String())
	}
	log.Info("serving", "grpc", grpcListener.Addr().String(), "metrics", addrOf(metricsListener), "endpoint", params.Endpoint,
		"machines", st.Size())

	var serving atomic.Bool // the gRPC port
	listeners := []*certificates.Live{front.certs}
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
		{"bootstrap channel", func(ctx context.Context) error {
			return ch.Serve(ctx, front.listener, &tls.Config{MinVersion: tls.VersionTLS13, GetCertificate: front.certs.Certificate})
		}},
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
	}
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
			return serveAdmin(ctx, adminListener, st, ch, log)
		}})
	}
	err = runParts(ctx, log, parts)
	if err == nil {
		log.Info("stopped")
	}
	return err
}

// inClear says whether an API's address has the secret key leave this host
// without TLS.
func inClear(apiURL string) bool {
	u, err := url.Parse(apiURL)
	if err != nil || u.Scheme != "http" {
		return false
	}
	addr, err := netip.ParseAddr(u.Hostname())
	return u.Hostname() != "localhost" && (err != nil || !addr.IsLoopback())
}

// owner is whose state this process keeps: a state file is good for one alone.
func (c *Config) owner() store.Owner {
	project := c.ProjectID
	if c.UseFake {
		project = fakecloud.DefaultProjectID
	}
	return store.Owner{Provider: c.Provider, Zone: c.Zone, Substrate: c.Substrate, Project: strings.ToLower(project)}
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

// settled says whether a command's outcome is on record: the host may stop
// repeating its report.
func settled(st *store.Store, machineID, commandID string) bool {
	rec, _, ok := st.Get(machineID)
	if !ok || commandID == "" {
		return false
	}
	if rec.Op != nil && rec.Op.ID == commandID {
		return rec.Op.Joined
	}
	return commandID == rec.History.Configure || commandID == rec.History.Drain
}

// bootstrapSecret chooses the secret that tokens derive from, and the one before
// if there is one. A random one dies with the process, so nothing is sealed with
// it.
func bootstrapSecret(cfg *Config, fake *fakeWorld, log *slog.Logger) (secret, previous token.Secret, _ *lifecycle.Sealer, err error) {
	raw := []byte(cfg.Bootstrap.Secret)
	if len(raw) == 0 && fake != nil {
		raw = fake.secret
	}
	if len(raw) == 0 {
		log.Warn("BIGFLEET_BOOTSTRAP_SECRET is not set: a random secret is used, and every agent's token dies with this process")
		raw = make([]byte, token.MinSecretBytes)
		rand.Read(raw) // never fails, by its documentation
		secret, err = token.NewSecret(raw)
		return secret, previous, nil, err
	}
	if secret, err = token.NewSecret(raw); err != nil {
		return secret, previous, nil, err
	}
	var old [][]byte
	if cfg.Bootstrap.SecretPrevious != "" {
		if previous, err = token.NewSecret([]byte(cfg.Bootstrap.SecretPrevious)); err != nil {
			return secret, previous, nil, err
		}
		old = append(old, previous.Bytes())
		log.Warn("tokens of the previous bootstrap secret are accepted: take --bootstrap-secret-previous away once capacityctl host list shows no machine that uses it")
	}
	sealer, err := lifecycle.NewSealer(secret.Bytes(), old...)
	return secret, previous, sealer, err
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

// channelFront is what the bootstrap channel shows to agents.
type channelFront struct {
	listener net.Listener
	certs    *certificates.Live
	params   cloudinit.Params
	packages fs.FS
}

// openChannel opens the channel's port and settles under which name and CA
// agents reach it.
func openChannel(ctx context.Context, cfg *Config, fake *fakeWorld, log *slog.Logger) (*channelFront, error) {
	params, err := cfg.userDataParams()
	if err != nil {
		return nil, err
	}
	f := &channelFront{params: params}
	addr := cfg.Bootstrap.Addr
	if cfg.Bootstrap.TLSCert != "" {
		if f.certs, err = cfg.Bootstrap.openCertificates(params, log); err != nil {
			return nil, err
		}
		f.params.CAPEM = f.certs.Current().Bundle.PEM
	} else {
		f.certs = certificates.Fixed(channelCertificate, fake.pair, &certificates.Bundle{Certs: []*x509.Certificate{fake.pair.Leaf}, PEM: fake.caPEM})
		f.params.CAPEM = fake.caPEM
		if !cfg.set["bootstrap-addr"] {
			addr = fake.channelAddr()
		}
	}
	if cfg.Bootstrap.AgentPackages != "" {
		root, err := os.OpenRoot(cfg.Bootstrap.AgentPackages)
		if err != nil {
			return nil, fmt.Errorf("--agent-packages: %w", err)
		}
		f.packages = root.FS()
	}
	if f.listener, err = listen(ctx, "bootstrap-addr", addr); err != nil {
		return nil, err
	}
	if cfg.Bootstrap.TLSCert == "" {
		f.params.Endpoint, err = fake.meet(f.listener.Addr())
		if err != nil {
			return nil, errors.Join(err, f.listener.Close())
		}
	}
	if err := cloudinit.Check(f.params); err != nil {
		return nil, errors.Join(err, f.listener.Close())
	}
	return f, nil
}
