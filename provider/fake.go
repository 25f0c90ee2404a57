package provider

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"bigfleet-providers/provider/internal/cloud/scaleway"
	"bigfleet-providers/provider/internal/cloud/scaleway/instances"
	"bigfleet-providers/provider/internal/fakecloud"
	"bigfleet-providers/provider/internal/fakecloud/host"
	"bigfleet-providers/provider/internal/machine"
	"bigfleet-providers/provider/internal/store"
	"bigfleet-providers/shared/token"
)

const (
	// fakeName is the channel's name in the network of in-process hosts. It
	// stays the same over restarts, whatever port the channel gets. The domain
	// exists nowhere (RFC 6761).
	fakeName     = "provider.invalid"
	fakeEndpoint = "https://" + fakeName + ":9443"

	// What a fake world keeps beside the state file.
	fakePair     = "channel.pem" // certificate and key
	fakeSecret   = "bootstrap-secret"
	fakeHostsDir = "hosts"
	fakeAddr     = "channel-addr"

	fakeCertLife = 10 * 365 * 24 * time.Hour
)

// fakeWorld is a fake Scaleway inside the process, with its hosts, and what a
// real deployment would bring along: a bootstrap secret and a certificate for
// the channel. A real cloud outlives a provider that is killed; the fake dies
// with it. With a state file it is made again at the next start: the servers
// that the state knows are restored, and what agents rely on is kept in the
// folder STATE.fake.
type fakeWorld struct {
	cloud  *fakecloud.Cloud
	url    string
	stop   context.CancelFunc
	served chan error

	accessKey, secretKey, projectID string
	timing                          instances.Timing

	dir    string // "" when nothing is kept
	secret []byte
	pair   tls.Certificate
	caPEM  string
	real   bool // hosts are processes and dial the channel's real address
	addr   chan string
}

// openFakeWorld starts the fake cloud and its hosts.
func openFakeWorld(ctx context.Context, cfg *Config, log *slog.Logger) (w *fakeWorld, err error) {
	w = &fakeWorld{
		accessKey: fakecloud.DefaultAccessKey, secretKey: fakecloud.DefaultSecretKey, projectID: fakecloud.DefaultProjectID,
		timing: instances.Timing{
			Poll:   scaled(cfg.FakeScale, 5*time.Second, 20*time.Millisecond),
			Settle: scaled(cfg.FakeScale, 10*time.Second, 100*time.Millisecond),
		},
		real:   cfg.FakeHosts == string(host.Process),
		addr:   make(chan string, 1),
		served: make(chan error, 1),
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, w.Close())
			w = nil
		}
	}()
	if cfg.State != "" {
		w.dir = cfg.State + ".fake"
		if err := os.MkdirAll(w.dir, 0o700); err != nil {
			return w, fmt.Errorf("fake backend: %w", err)
		}
	}
	if w.secret, err = w.kept(fakeSecret, newSecret); err != nil {
		return w, fmt.Errorf("fake backend: %w", err)
	}
	pairPEM, err := w.kept(fakePair, newPair)
	if err != nil {
		return w, fmt.Errorf("fake backend: %w", err)
	}
	if w.pair, err = tls.X509KeyPair(pairPEM, pairPEM); err != nil {
		return w, fmt.Errorf("fake backend: %s: %w; remove the folder %s and the state to start afresh", fakePair, err, w.dir)
	}
	w.caPEM = string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: w.pair.Certificate[0]}))

	hosts, err := w.hosts(cfg, log) //nolint:contextcheck // what it runs has deadlines of its own
	if err != nil {
		return w, fmt.Errorf("fake backend: %w", err)
	}
	quiet := slog.New(levelled{log.With("part", "fakecloud").Handler(), slog.LevelWarn})
	w.cloud = fakecloud.New(fakecloud.Options{Log: quiet, Scale: cfg.FakeScale, Hosts: hosts, SSHKeys: []string{fakecloud.SampleSSHKey}})
	ln, err := listen(ctx, "use-fake-backend", "127.0.0.1:0")
	if err != nil {
		return w, err
	}
	w.url = "http://" + ln.Addr().String()
	serving, stop := context.WithCancel(context.WithoutCancel(ctx))
	w.stop = stop
	go func() { w.served <- serveHTTP(serving, ln, w.cloud.Handler(), log) }()
	log.Info("fake Scaleway serves", "url", w.url, "hosts", cfg.FakeHosts, "scale", cfg.FakeScale)
	return w, nil
}

func scaled(scale float64, d, least time.Duration) time.Duration {
	return max(time.Duration(float64(d)*scale), least)
}

// hosts makes what boots when a server is powered on.
func (w *fakeWorld) hosts(cfg *Config, log *slog.Logger) (fakecloud.Hosts, error) {
	// Thousands of agents in the process would drown its own log.
	quiet := slog.New(levelled{log.Handler(), slog.LevelWarn})
	return host.Choose(host.Choice{
		Mode: host.Mode(cfg.FakeHosts), Dir: w.path(fakeHostsDir), Agent: cfg.FakeAgent, Dial: w.dial, Log: quiet,
	})
}

// levelled lets through what is of a level or above.
type levelled struct {
	slog.Handler
	least slog.Level
}

// Enabled implements slog.Handler.
func (l levelled) Enabled(ctx context.Context, level slog.Level) bool {
	return level >= l.least && l.Handler.Enabled(ctx, level)
}

// WithAttrs implements slog.Handler.
func (l levelled) WithAttrs(attrs []slog.Attr) slog.Handler {
	return levelled{l.Handler.WithAttrs(attrs), l.least}
}

// WithGroup implements slog.Handler.
func (l levelled) WithGroup(name string) slog.Handler {
	return levelled{l.Handler.WithGroup(name), l.least}
}

// dial is the network of in-process hosts: whatever they dial, they reach the
// channel.
func (w *fakeWorld) dial(ctx context.Context, network, _ string) (net.Conn, error) {
	var d net.Dialer
	select {
	case addr := <-w.addr:
		w.addr <- addr
		return d.DialContext(ctx, network, addr)
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// channelAddr is where the channel should listen: for hosts in processes, which
// outlive a crash of ours, at the same port as before.
func (w *fakeWorld) channelAddr() string {
	if w.real && w.dir != "" {
		if b, err := os.ReadFile(w.path(fakeAddr)); err == nil {
			return string(b)
		}
	}
	return "127.0.0.1:0"
}

// meet tells the hosts where the channel is and returns the endpoint for their
// user data.
func (w *fakeWorld) meet(channel net.Addr) (string, error) {
	w.addr <- channel.String()
	if !w.real {
		return fakeEndpoint, nil
	}
	if w.dir != "" {
		if err := replaceFile(w.path(fakeAddr), []byte(channel.String())); err != nil {
			return "", fmt.Errorf("fake backend: %w", err)
		}
	}
	return "https://" + channel.String(), nil
}

// restore makes the servers of the state's machines again, under their ids, and
// boots their hosts.
func (w *fakeWorld) restore(cfg *Config, st *store.Store, userData func(machineID string) ([]byte, error)) error {
	if cfg.Substrate == SubstrateElasticMetal {
		return w.restoreMetal(cfg, st, userData)
	}
	var errs []error
	st.Records(func(rec machine.Record) bool {
		ref, cluster := rec.Host, ""
		switch {
		case rec.Op != nil:
			ref = rec.Op.Ref
		case rec.Leftover != nil:
			ref = rec.Leftover.Ref
		}
		if rec.State == machine.Configured || rec.State == machine.Draining {
			cluster = rec.Cluster
		}
		zone, id, ok := strings.Cut(ref, "/")
		if !ok {
			return true
		}
		data, err := userData(rec.ID)
		if err == nil {
			err = w.cloud.Restore(fakecloud.Existing{
				ID: id, Zone: zone, Project: w.projectID, CommercialType: rec.Offer.InstanceType, Image: cfg.Image,
				Name:     scaleway.ServerName(rec.ID, rec.History.Create),
				Tags:     scaleway.Tags{Owner: cfg.Provider, Machine: rec.ID, Operation: rec.History.Create, Cluster: cluster}.List(),
				UserData: data,
			})
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("machine %s: %w", rec.ID, err))
		}
		return true
	})
	return errors.Join(errs...)
}

func (w *fakeWorld) path(name string) string {
	if w.dir == "" {
		return ""
	}
	return filepath.Join(w.dir, name)
}

// kept returns what an earlier process kept under the name, or makes and keeps
// it.
func (w *fakeWorld) kept(name string, produce func() ([]byte, error)) ([]byte, error) {
	if w.dir == "" {
		return produce()
	}
	content, err := os.ReadFile(w.path(name))
	if !errors.Is(err, fs.ErrNotExist) {
		return content, err
	}
	if content, err = produce(); err != nil {
		return nil, err
	}
	return content, replaceFile(w.path(name), content)
}

// replaceFile writes a file whole or not at all.
func replaceFile(path string, content []byte) error {
	temp := path + ".new"
	if err := os.WriteFile(temp, content, 0o600); err != nil {
		return err
	}
	return os.Rename(temp, path)
}

func newSecret() ([]byte, error) {
	// Text, so that an operator can use it with openssl as the docs show.
	raw := make([]byte, token.MinSecretBytes/2)
	rand.Read(raw) // never fails, by its documentation
	return fmt.Appendf(nil, "%x", raw), nil
}

// newPair makes a certificate that signs itself, for the names under which
// fake hosts reach the channel.
func newPair() ([]byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, err
	}
	now := time.Now()
	cert := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: "BigFleet fake backend"},
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(fakeCertLife),
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		BasicConstraintsValid: true, IsCA: true,
		DNSNames: []string{fakeName, "localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback},
	}
	der, err := x509.CreateCertificate(rand.Reader, cert, cert, &key.PublicKey, key)
	if err != nil {
		return nil, err
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	out := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	return append(out, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER})...), nil
}

// Close stops the API, the cloud and its hosts.
func (w *fakeWorld) Close() error {
	var errs []error
	if w.stop != nil {
		w.stop()
		if err := <-w.served; err != nil && !errors.Is(err, http.ErrServerClosed) {
			errs = append(errs, err)
		}
	}
	if w.cloud != nil {
		w.cloud.Close()
	}
	return errors.Join(errs...)
}
