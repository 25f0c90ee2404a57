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
	"os"

	"github.com/prometheus/client_golang/prometheus"

	"bigfleet-providers/cloudinit"
	"bigfleet-providers/provider/internal/certificates"
	"bigfleet-providers/provider/internal/channel"
	"bigfleet-providers/provider/internal/delivery"
	"bigfleet-providers/provider/internal/lifecycle"
	"bigfleet-providers/provider/internal/store"
	"bigfleet-providers/shared/token"
)

// bootstrap is how hosts come to be machines: their user data, and the way on
// which commands reach them.
type bootstrap struct {
	delivery delivery.Delivery
	userData func(machineID, operationID string) ([]byte, error)
	sealer   *lifecycle.Sealer // nil: no blob is kept, not even sealed
	// The bootstrap channel and what it shows to agents; nil where the vendor
	// delivers.
	channel *channel.Server
	front   *channelFront
}

// openBootstrap opens the channel's port, or takes the vendor's own way.
func openBootstrap(ctx context.Context, cfg *Config, back *Backend, trial *Trial, st *store.Store, reg prometheus.Registerer, log *slog.Logger) (*bootstrap, error) {
	if cfg.vendor.Delivers {
		base, err := readFile("base-user-data", cfg.BaseUserData)
		return &bootstrap{delivery: back.Delivery, userData: func(string, string) ([]byte, error) { return base, nil }}, err
	}
	secret, previous, sealer, err := bootstrapSecret(cfg, trial, log)
	if err != nil {
		return nil, err
	}
	front, err := openChannel(ctx, cfg, trial, back.Fake != nil && back.Fake.Processes, log)
	if err != nil {
		return nil, err
	}
	ch, err := channel.New(channel.Options{
		Secret:   secret,
		Previous: previous,
		Locks:    hostLocks{st},
		Life:     func(id string) (channel.Life, bool) { return lifeOf(st, id) },
		Settled:  func(id, command string) bool { return settled(st, id, command) },
		Packages: front.packages,
		Log:      log,
		Metrics:  reg,
	})
	if err != nil {
		return nil, errors.Join(err, front.listener.Close())
	}
	userData := func(id, operation string) ([]byte, error) {
		p := front.params
		p.MachineID, p.Token = id, token.Derive(secret, id, operation)
		p.CAPEM = front.certs.Current().Bundle.PEM
		return cloudinit.Render(p)
	}
	return &bootstrap{delivery: ch, userData: userData, sealer: sealer, channel: ch, front: front}, nil
}

// Close closes the channel's port, for a start that fails before it is served.
func (b *bootstrap) Close() error {
	if b.front == nil {
		return nil
	}
	return b.front.listener.Close()
}

// endpoint is where agents find the channel, "off" without one.
func (b *bootstrap) endpoint() string {
	if b.front == nil {
		return "off"
	}
	return b.front.params.Endpoint
}

// parts serve the channel.
func (b *bootstrap) parts() []part {
	if b.channel == nil {
		return nil
	}
	return []part{{"bootstrap channel", func(ctx context.Context) error {
		return b.channel.Serve(ctx, b.front.listener, &tls.Config{MinVersion: tls.VersionTLS13, GetCertificate: b.front.certs.Certificate})
	}}}
}

// certificates are those that the channel shows.
func (b *bootstrap) certificates() []*certificates.Live {
	if b.front == nil {
		return nil
	}
	return []*certificates.Live{b.front.certs}
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
func bootstrapSecret(cfg *Config, trial *Trial, log *slog.Logger) (secret, previous token.Secret, _ *lifecycle.Sealer, err error) {
	raw := []byte(cfg.Bootstrap.Secret)
	if len(raw) == 0 && trial != nil {
		raw = trial.secret
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

// channelFront is what the bootstrap channel shows to agents.
type channelFront struct {
	listener net.Listener
	certs    *certificates.Live
	params   cloudinit.Params
	packages fs.FS
}

// openChannel opens the channel's port and settles under which name and CA
// agents reach it.
func openChannel(ctx context.Context, cfg *Config, trial *Trial, processes bool, log *slog.Logger) (*channelFront, error) {
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
		f.certs = certificates.Fixed(channelCertificate, trial.pair, &certificates.Bundle{Certs: []*x509.Certificate{trial.pair.Leaf}, PEM: trial.caPEM})
		f.params.CAPEM = trial.caPEM
		if !cfg.Given("bootstrap-addr") {
			addr = trial.channelAddr(processes)
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
		f.params.Endpoint, err = trial.meet(f.listener.Addr(), processes)
		if err != nil {
			return nil, errors.Join(err, f.listener.Close())
		}
	}
	if err := cloudinit.Check(f.params); err != nil {
		return nil, errors.Join(err, f.listener.Close())
	}
	return f, nil
}
