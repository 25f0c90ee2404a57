package doctor

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"bigfleet-providers/provider/internal/identity"
)

// expiryWarning is how long before a certificate's end it is time to act: the
// alert BigFleetCertificateEndsSoon says the same.
const expiryWarning = 14 * 24 * time.Hour

// secured looks at the TLS of a port: one finding for each thing that can be
// wrong with it, so that none hides another. ok says that a client would connect.
func (e *examination) secured(ctx context.Context, what, addr, name string, roots *x509.CertPool, caFlag string) (ok bool) {
	state, err := e.handshake(ctx, addr, name)
	if err != nil {
		advice := "Is this the right port? A provider speaks TLS there if it was started with a certificate."
		if _, plain := errors.AsType[tls.RecordHeaderError](err); plain {
			advice = "It speaks plaintext. Start the provider with a certificate for this port, or check the port."
			if what == "grpc" {
				advice = "It speaks plaintext. Give --insecure, or start the provider with --tls-cert and --tls-key; or this is another port than --addr."
			}
		}
		e.say(what+" tls", Fail, advice, "%s: %v", addr, err)
		return false
	}
	ok = true
	check := func(check string, bad bool, level Level, advice, format string, args ...any) {
		if !bad {
			level, advice = OK, ""
		}
		ok = ok && level != Fail
		e.say(what+" "+check, level, advice, format, args...)
	}
	old := state.Version < tls.VersionTLS13
	check("tls", old, Warn, "The provider itself speaks TLS 1.3: something on the way ends the connection.", "%s, %s", tls.VersionName(state.Version), tls.CipherSuiteName(state.CipherSuite))
	leaf, now := state.PeerCertificates[0], time.Now()
	err = chain(state.PeerCertificates, roots, now)
	detail := fmt.Sprintf("%s, signed by %s", subject(leaf), issuer(leaf))
	if err != nil {
		detail += ": " + err.Error()
	}
	check("chain", err != nil, Fail, "Give the CA that signed it with "+caFlag+", or have the provider show a certificate of yours, with the intermediate ones behind it.", "%s", detail)
	err = leaf.VerifyHostname(name)
	detail = "good for " + name
	if err != nil {
		detail = err.Error()
	}
	check("name", err != nil, Fail, "Have the certificate issued for this name, or use a name that is in it.", "%s", detail)
	level, detail, advice := validity(leaf, now)
	check("expiry", level != OK, level, advice, "%s", detail)
	return ok
}

// handshake shakes hands and takes whatever certificate is shown: what it is
// worth is looked at afterwards, and nothing is sent.
func (e *examination) handshake(ctx context.Context, addr, name string) (state tls.ConnectionState, err error) {
	err = e.shake(ctx, addr, name, nil, func(conn *tls.Conn) error {
		state = conn.ConnectionState()
		return nil
	})
	return state, err
}

// shake shakes hands and has use take a look at the connection.
func (e *examination) shake(ctx context.Context, addr, name string, cert *tls.Certificate, use func(*tls.Conn) error) error {
	ctx, cancel := context.WithTimeout(ctx, e.Timeout)
	defer cancel()
	raw, err := e.dial(ctx, addr)
	if err != nil {
		return err
	}
	defer raw.Close()
	conn := tls.Client(raw, lenient(name, cert))
	if err := conn.HandshakeContext(ctx); err != nil {
		return err
	}
	return use(conn)
}

// welcomePause is how long a server may take to say that it refuses a client.
const welcomePause = 2 * time.Second

// welcome looks whether the server takes the client, with its certificate or
// without one. In TLS 1.3 it says so only after the handshake, and a client that
// writes meanwhile may not get to read it; a gRPC server that takes the client
// speaks first.
func (e *examination) welcome(ctx context.Context, name string) bool {
	refused := e.shake(ctx, e.Addr, name, e.Certificate, func(conn *tls.Conn) error {
		if err := conn.SetReadDeadline(time.Now().Add(min(welcomePause, e.Timeout))); err != nil {
			return err
		}
		_, err := conn.Read(make([]byte, 1))
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return nil // something in between that waits for the client
		}
		return err
	})
	const check = "client certificate"
	switch {
	case refused == nil && e.Certificate == nil:
	case refused == nil:
		e.say(check, OK, "", "%s is taken", subject(e.Certificate.Leaf))
	case e.Certificate == nil:
		e.say(check, Fail, "It wants a client certificate: give one with --tls-cert and --tls-key.", "the provider refuses the connection: %v", refused)
	default:
		e.say(check, Fail, "It does not accept the client certificate, which must chain to the provider's --tls-ca.", "the provider refuses the connection with %s: %v", subject(e.Certificate.Leaf), refused)
	}
	return refused == nil
}

func lenient(name string, cert *tls.Certificate) *tls.Config {
	cfg := &tls.Config{
		ServerName: name, MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"},
		InsecureSkipVerify: true, //nolint:gosec // G402: each fault of the certificate is reported by name instead
	}
	if cert != nil {
		cfg.Certificates = []tls.Certificate{*cert}
	}
	return cfg
}

// chain verifies a certificate without its name, and without its time, which
// are checks of their own: one that has ended is verified as of its days.
func chain(shown []*x509.Certificate, roots *x509.CertPool, now time.Time) error {
	leaf := shown[0]
	between := x509.NewCertPool()
	for _, c := range shown[1:] {
		between.AddCert(c)
	}
	verify := func(at time.Time) error {
		_, err := leaf.Verify(x509.VerifyOptions{Roots: roots, Intermediates: between, CurrentTime: at, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}})
		return err
	}
	if now.Before(leaf.NotAfter) && now.After(leaf.NotBefore) {
		return verify(now)
	}
	// Those that signed it may have lived for a part of its days only.
	err := verify(leaf.NotBefore.Add(time.Second))
	if err != nil {
		err = verify(leaf.NotAfter.Add(-time.Second))
	}
	return err
}

// validity judges a certificate's time.
func validity(c *x509.Certificate, now time.Time) (level Level, detail, advice string) {
	left := c.NotAfter.Sub(now)
	switch {
	case now.Before(c.NotBefore):
		return Fail, "not valid before " + date(c.NotBefore), "Or this host's clock is wrong: it says " + date(now) + "."
	case left <= 0:
		return Fail, "ended " + date(c.NotAfter), "Replace it; with --tls-reload the provider takes the new file by itself. Or this host's clock is wrong: it says " + date(now) + "."
	case left < expiryWarning:
		return Warn, fmt.Sprintf("ends %s, in %d days", date(c.NotAfter), int(left.Hours()/24)), "Replace it before that; with --tls-reload the provider takes the new file by itself."
	default:
		return OK, fmt.Sprintf("ends %s, in %d days", date(c.NotAfter), int(left.Hours()/24)), ""
	}
}

func date(t time.Time) string { return t.UTC().Format(time.RFC3339) }

func subject(c *x509.Certificate) string {
	names := slices.Clone(c.DNSNames)
	for _, ip := range c.IPAddresses {
		names = append(names, ip.String())
	}
	return cmp.Or(c.Subject.String(), strings.Join(names, ", "), "a certificate without a name")
}

func issuer(c *x509.Certificate) string { return cmp.Or(c.Issuer.String(), "an issuer without a name") }

// client looks at the certificate that is presented.
func (e *examination) client(now time.Time) {
	if e.Certificate == nil {
		return
	}
	leaf := e.Certificate.Leaf
	level, detail, advice := validity(leaf, now)
	e.say("client expiry", level, advice, "%s %s", subject(leaf), detail)
	if len(leaf.ExtKeyUsage) > 0 && !slices.Contains(leaf.ExtKeyUsage, x509.ExtKeyUsageClientAuth) && !slices.Contains(leaf.ExtKeyUsage, x509.ExtKeyUsageAny) {
		e.say("client usage", Fail, "Have it issued with the extended key usage clientAuth.", "%s is not made for clients", subject(leaf))
	}
	level, role, advice := roleOf(leaf)
	e.say("client identity", level, advice, "%s %s", subject(leaf), role)
}

// roleOf says what a client certificate may do, by its URI names.
func roleOf(c *x509.Certificate) (level Level, role, advice string) {
	const form = "Have it issued with exactly one URI name: " + identity.Forms + "."
	id, err := identity.Of(c)
	switch {
	case err != nil:
		return Fail, "has " + err.Error() + ": it is refused", form
	case id.Role == identity.Shard:
		return OK, "is " + id.URI + ": it may read, and drive machines as --shard " + id.Shard, ""
	case id.Role == identity.Reader:
		return OK, "is " + id.URI + ": it may only read", ""
	default:
		return Warn, "has no bigfleet:// identity: it may do everything, as any shard, unless the provider has --require-shard-identity", form
	}
}

// splitLine splits text at its first line.
func splitLine(text string) (first, rest string) {
	first, rest, _ = strings.Cut(text, "\n")
	return first, rest
}
