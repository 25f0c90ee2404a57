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
	"time"

	"bigfleet-providers/shared/symlink"
	"bigfleet-providers/shared/token"
)

const (
	// trialName is the channel's name in the network of in-process hosts. It
	// stays the same over restarts, whatever port the channel gets. The domain
	// exists nowhere (RFC 6761).
	trialName     = "provider.invalid"
	trialEndpoint = "https://" + trialName + ":9443"

	// What a trial keeps beside the state file.
	trialPair   = "channel.pem" // certificate and key
	trialSecret = "bootstrap-secret"
	trialAddr   = "channel-addr"

	trialCertLife = 10 * 365 * 24 * time.Hour
)

// Trial is what a fake cloud inside the process finds there, and what a real
// deployment would bring along: a bootstrap secret and a certificate for the
// channel. A real cloud outlives a provider that is killed; the fake dies with
// it. With a state file it is made again at the next start: the servers that the
// state knows are restored, and what agents rely on is kept in the folder
// STATE.fake.
type Trial struct {
	dir    string // "" when nothing is kept
	log    *slog.Logger
	secret []byte
	pair   tls.Certificate
	caPEM  string
	addr   chan string // the channel's, once it is known
}

// openTrial makes a trial that is kept beside the state file; "" keeps nothing.
func openTrial(cfg *Config, state string, log *slog.Logger) (*Trial, error) {
	t := &Trial{log: log, addr: make(chan string, 1)}
	if state != "" {
		t.dir = state + ".fake"
		if err := os.MkdirAll(t.dir, 0o700); err != nil {
			return nil, fmt.Errorf("fake backend: %w", err)
		}
	}
	if cfg.vendor.Delivers {
		return t, nil
	}
	var err error
	if t.secret, err = t.kept(trialSecret, newSecret); err != nil {
		return nil, fmt.Errorf("fake backend: %w", err)
	}
	pairPEM, err := t.kept(trialPair, newPair)
	if err != nil {
		return nil, fmt.Errorf("fake backend: %w", err)
	}
	if t.pair, err = tls.X509KeyPair(pairPEM, pairPEM); err != nil {
		return nil, fmt.Errorf("fake backend: %s: %w; remove the folder %s and the state to start afresh", trialPair, err, t.dir)
	}
	t.caPEM = string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: t.pair.Certificate[0]}))
	return t, nil
}

// Serve serves a fake's API on loopback until stop, which waits for its end.
func (t *Trial) Serve(ctx context.Context, api http.Handler) (url string, stop func() error, err error) {
	ln, err := listen(ctx, "use-fake-backend", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	serving, cancel := context.WithCancel(context.WithoutCancel(ctx))
	served := make(chan error, 1)
	go func() { served <- serveHTTP(serving, ln, api, t.log) }()
	stop = func() error {
		cancel()
		return <-served
	}
	return "http://" + ln.Addr().String(), stop, nil
}

// Dial is the network of in-process hosts: whatever they dial, they reach the
// channel.
func (t *Trial) Dial(ctx context.Context, network, _ string) (net.Conn, error) {
	var d net.Dialer
	select {
	case addr := <-t.addr:
		t.addr <- addr
		return d.DialContext(ctx, network, addr)
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// Path is where something is kept over restarts, "" when nothing is.
func (t *Trial) Path(name string) string {
	if t.dir == "" {
		return ""
	}
	return filepath.Join(t.dir, name)
}

// channelAddr is where the channel should listen: for hosts in processes, which
// outlive a crash of ours, at the same port as before.
func (t *Trial) channelAddr(processes bool) string {
	if processes && t.dir != "" {
		if b, err := os.ReadFile(t.Path(trialAddr)); err == nil {
			return string(b)
		}
	}
	return "127.0.0.1:0"
}

// meet tells the hosts where the channel is and returns the endpoint for their
// user data.
func (t *Trial) meet(channel net.Addr, processes bool) (string, error) {
	t.addr <- channel.String()
	if !processes {
		return trialEndpoint, nil
	}
	if t.dir != "" {
		if err := replaceFile(t.Path(trialAddr), []byte(channel.String())); err != nil {
			return "", fmt.Errorf("fake backend: %w", err)
		}
	}
	return "https://" + channel.String(), nil
}

// kept returns what an earlier process kept under the name, or makes and keeps
// it.
func (t *Trial) kept(name string, produce func() ([]byte, error)) ([]byte, error) {
	if t.dir == "" {
		return produce()
	}
	content, err := os.ReadFile(t.Path(name))
	if !errors.Is(err, fs.ErrNotExist) {
		return content, err
	}
	if content, err = produce(); err != nil {
		return nil, err
	}
	return content, replaceFile(t.Path(name), content)
}

// replaceFile writes a file whole or not at all.
func replaceFile(path string, content []byte) error {
	path, err := symlink.Target(path)
	if err != nil {
		return err
	}
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
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(trialCertLife),
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		BasicConstraintsValid: true, IsCA: true,
		DNSNames: []string{trialName, "localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback},
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
