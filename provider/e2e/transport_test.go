package e2e

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	pb "bigfleet-providers/proto/bigfleet/v1alpha1"
)

// authority is a CA of the tests; dir is where its files go.
type authority struct {
	t    *testing.T
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  string // file with its certificate
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{t: t, dir: t.TempDir()}
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: "test CA"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
	var der []byte
	a.key, der = a.sign(template, nil)
	var err error
	if a.cert, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	a.pem = a.write("ca.pem", "CERTIFICATE", der)
	return a
}

func (a *authority) sign(template, parent *x509.Certificate) (*ecdsa.PrivateKey, []byte) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	if template.SerialNumber, err = rand.Int(rand.Reader, big.NewInt(1<<62)); err != nil {
		a.t.Fatal(err)
	}
	signer := a.key
	if parent == nil {
		parent, signer = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	if err != nil {
		a.t.Fatal(err)
	}
	return key, der
}

func (a *authority) write(name, kind string, der []byte) string {
	a.t.Helper()
	path := filepath.Join(a.dir, name)
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		a.t.Fatal(err)
	}
	return path
}

// pair issues a certificate for loopback and writes it and its key. edit may be
// nil.
func (a *authority) pair(name string, edit func(*x509.Certificate)) (cert, key string) {
	a.t.Helper()
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: name}, DNSNames: []string{"localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	if edit != nil {
		edit(template)
	}
	private, der := a.sign(template, a.cert)
	keyDER, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		a.t.Fatal(err)
	}
	return a.write(name+".pem", "CERTIFICATE", der), a.write(name+"-key.pem", "PRIVATE KEY", keyDER)
}

// client is a client's TLS: it trusts the authority and, with uris other than
// nil, shows a certificate with them.
func (a *authority) client(uris ...string) *tls.Config {
	a.t.Helper()
	conf := &tls.Config{RootCAs: x509.NewCertPool(), ServerName: "localhost"}
	conf.RootCAs.AddCert(a.cert)
	if uris != nil {
		conf.Certificates = []tls.Certificate{a.loaded("client", func(c *x509.Certificate) {
			for _, uri := range uris {
				if uri == "" {
					continue
				}
				u, err := url.Parse(uri)
				if err != nil {
					a.t.Fatal(err)
				}
				c.URIs = append(c.URIs, u)
			}
		})}
	}
	return conf
}

func (a *authority) loaded(name string, edit func(*x509.Certificate)) tls.Certificate {
	a.t.Helper()
	pair, err := tls.LoadX509KeyPair(a.pair(name, edit))
	if err != nil {
		a.t.Fatal(err)
	}
	return pair
}

// dial makes another client of the provider. nil is plaintext.
func (p *provider) dial(t *testing.T, conf *tls.Config) *provider {
	t.Helper()
	creds := insecure.NewCredentials()
	if conf != nil {
		creds = credentials.NewTLS(conf)
	}
	conn, err := grpc.NewClient(p.addr, grpc.WithTransportCredentials(creds))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return &provider{process: p.process, t: t, addr: p.addr, conn: conn, CapacityProviderClient: pb.NewCapacityProviderClient(conn)}
}

// unreachable expects that a client gets no answer, from any service on the
// port, in whatever way its handshake fails.
func (p *provider) unreachable(t *testing.T, what string, conf *tls.Config) {
	t.Helper()
	c := p.dial(t, conf)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	_, err := c.List(ctx, &pb.ListFilter{})
	wantCode(t, what, err, codes.Unavailable)
	_, err = healthpb.NewHealthClient(c.conn).Check(ctx, &healthpb.HealthCheckRequest{})
	wantCode(t, what+", health", err, codes.Unavailable)
}

// security is what the provider logged as its transport mode.
func (p *provider) security() string { return p.line(`msg=starting .*security=(\S+)`)[1] }

func TestTransportModes(t *testing.T) {
	t.Parallel()
	ca, other := newAuthority(t), newAuthority(t)
	cert, key := ca.pair("server", nil)
	fake := []string{"--use-fake-backend", "--provider=certify"}
	flags := func(extra ...string) []string { return append(extra, fake...) }

	t.Run("insecure", func(t *testing.T) {
		p := startProvider(t, environment(), nil, flags()...)
		if s := p.security(); s != "insecure" {
			t.Errorf("security=%s", s)
		}
		p.unreachable(t, "TLS client", ca.client())
		if strings.Contains(p.text(), "is plaintext") {
			t.Error("the fake backend is warned of plaintext")
		}
	})
	t.Run("TLS", func(t *testing.T) {
		p := startProvider(t, environment(), credentials.NewTLS(ca.client()), flags("--tls-cert="+cert, "--tls-key="+key)...)
		if s := p.security(); s != "TLS" {
			t.Errorf("security=%s", s)
		}
		p.unreachable(t, "plaintext client", nil)
		p.unreachable(t, "client of another CA", other.client())
		old := ca.client()
		old.MaxVersion = tls.VersionTLS12
		p.unreachable(t, "TLS 1.2 client", old)
		p.dial(t, ca.client("bigfleet://shard/s")).list() // a certificate nobody asks for does no harm
		// Without client authentication nobody is held to an identity.
		c := p.dial(t, ca.client("bigfleet://readonly"))
		c.must("Create", c.machines(1)[0], token{"x", 1, 1}, unspecified)
	})
	t.Run("mTLS", func(t *testing.T) {
		p := startProvider(t, environment(), credentials.NewTLS(ca.client("")), flags("--tls-cert="+cert, "--tls-key="+key, "--tls-ca="+ca.pem)...)
		if s := p.security(); s != "mTLS" {
			t.Errorf("security=%s", s)
		}
		p.unreachable(t, "plaintext client", nil)
		p.unreachable(t, "client without a certificate", ca.client())
		stranger := ca.client()
		stranger.Certificates = []tls.Certificate{other.loaded("stranger", nil)}
		p.unreachable(t, "certificate of another CA", stranger)
		self := ca.client()
		self.Certificates = []tls.Certificate{{Certificate: [][]byte{other.cert.Raw}, PrivateKey: other.key}}
		p.unreachable(t, "certificate that signs itself", self)
		for name, edit := range map[string]func(*x509.Certificate){
			"expired certificate":    func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Minute) },
			"certificate of the day": func(c *x509.Certificate) { c.NotBefore = time.Now().Add(time.Hour) },
			"server-only usage":      func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth} },
		} {
			conf := ca.client()
			conf.Certificates = []tls.Certificate{ca.loaded("bad", edit)}
			p.unreachable(t, name, conf)
		}
		old := ca.client("")
		old.MaxVersion = tls.VersionTLS12
		p.unreachable(t, "TLS 1.2 client", old)
		if r, err := healthpb.NewHealthClient(p.conn).Check(t.Context(), &healthpb.HealthCheckRequest{}); err != nil || r.GetStatus() != healthpb.HealthCheckResponse_SERVING {
			t.Errorf("health: %v, %v", r, err)
		}
		// The certificates are read once, at start.
		if err := os.WriteFile(ca.pem, []byte("not a certificate"), 0o600); err != nil {
			t.Fatal(err)
		}
		p.dial(t, ca.client("")).list()
	})
}

func TestTransportFaultsEndTheStart(t *testing.T) {
	t.Parallel()
	ca, other := newAuthority(t), newAuthority(t)
	cert, key := ca.pair("server", nil)
	_, wrongKey := other.pair("other", nil)
	empty := filepath.Join(ca.dir, "empty.pem")
	garbage := filepath.Join(ca.dir, "garbage.pem")
	good, err := os.ReadFile(ca.pem)
	if err != nil {
		t.Fatal(err)
	}
	half := filepath.Join(ca.dir, "half.pem")
	for path, content := range map[string]string{half: " " + string(good) + string(good), empty: "", garbage: "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"certificate without key":  {[]string{"--tls-cert=" + cert}, "--tls-cert and --tls-key: only one is set"},
		"key without certificate":  {[]string{"--tls-key=" + key}, "--tls-cert and --tls-key: only one is set"},
		"CA without pair":          {[]string{"--tls-ca=" + ca.pem}, "--tls-ca: set without --tls-cert and --tls-key"},
		"key that does not fit":    {[]string{"--tls-cert=" + cert, "--tls-key=" + wrongKey}, "private key does not match public key"},
		"certificate is garbage":   {[]string{"--tls-cert=" + garbage, "--tls-key=" + key}, "--tls-cert " + garbage},
		"certificate is not there": {[]string{"--tls-cert=/nonexistent", "--tls-key=" + key}, "--tls-cert: open /nonexistent"},
		"CA bundle is empty":       {[]string{"--tls-cert=" + cert, "--tls-key=" + key, "--tls-ca=" + empty}, "--tls-ca " + empty + ": holds no PEM certificate"},
		"CA bundle is garbage":     {[]string{"--tls-cert=" + cert, "--tls-key=" + key, "--tls-ca=" + garbage}, "--tls-ca " + garbage},
		"CA bundle is damaged":     {[]string{"--tls-cert=" + cert, "--tls-key=" + key, "--tls-ca=" + half}, "--tls-ca " + half + ": block 1 (line 1)"},
		"CA bundle is a key":       {[]string{"--tls-cert=" + cert, "--tls-key=" + key, "--tls-ca=" + key}, "--tls-ca " + key},
		"identities without mTLS":  {[]string{"--require-shard-identity"}, "--require-shard-identity: needs mTLS"},
		"identities with TLS only": {[]string{"--require-shard-identity", "--tls-cert=" + cert, "--tls-key=" + key}, "--require-shard-identity: needs mTLS"},
	} {
		t.Run(name, func(t *testing.T) {
			for _, command := range []string{"serve", "check-config"} {
				code, out := run(t, environment(), append([]string{command, "--use-fake-backend", "--addr=127.0.0.1:0", "--metrics-addr=127.0.0.1:0"}, c.args...)...)
				wantRefusal(t, command, code, out, c.want)
			}
		})
	}
}

// TestShardIdentity holds callers to the URI in their certificate.
func TestShardIdentity(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t)
	cert, key := ca.pair("server", nil)
	args := []string{"--use-fake-backend", "--provider=certify", "--tls-cert=" + cert, "--tls-key=" + key, "--tls-ca=" + ca.pem}
	const denied, ok = codes.PermissionDenied, codes.OK
	type verdicts struct{ read, own, foreign, unfenced codes.Code }
	cases := []struct {
		name           string
		uris           []string
		want, required verdicts
	}{
		{"shard", []string{"bigfleet://shard/s"}, verdicts{ok, ok, denied, denied}, verdicts{ok, ok, denied, denied}},
		{"shard beside a foreign URI", []string{"spiffe://mesh/sa", "bigfleet://shard/s"}, verdicts{ok, ok, denied, denied}, verdicts{ok, ok, denied, denied}},
		{"another shard", []string{"bigfleet://shard/z"}, verdicts{ok, denied, denied, denied}, verdicts{ok, denied, denied, denied}},
		{"readonly", []string{"bigfleet://readonly"}, verdicts{ok, denied, denied, denied}, verdicts{ok, denied, denied, denied}},
		{"admin", []string{"bigfleet://admin"}, verdicts{ok, denied, denied, denied}, verdicts{ok, denied, denied, denied}},
		{"none", []string{""}, verdicts{ok, ok, ok, ok}, verdicts{denied, denied, denied, denied}},
		{"a foreign URI only", []string{"spiffe://mesh/sa"}, verdicts{ok, ok, ok, ok}, verdicts{denied, denied, denied, denied}},
		{"two shards", []string{"bigfleet://shard/s", "bigfleet://shard/x"}, verdicts{denied, denied, denied, denied}, verdicts{denied, denied, denied, denied}},
		{"shard and readonly", []string{"bigfleet://shard/s", "bigfleet://readonly"}, verdicts{denied, denied, denied, denied}, verdicts{denied, denied, denied, denied}},
		{"shard without an id", []string{"bigfleet://shard/"}, verdicts{denied, denied, denied, denied}, verdicts{denied, denied, denied, denied}},
		{"unknown role", []string{"bigfleet://root"}, verdicts{denied, denied, denied, denied}, verdicts{denied, denied, denied, denied}},
		{"shard with a query", []string{"bigfleet://shard/s?x=1"}, verdicts{denied, denied, denied, denied}, verdicts{denied, denied, denied, denied}},
		{"shard with a fragment", []string{"bigfleet://shard/s#x"}, verdicts{denied, denied, denied, denied}, verdicts{denied, denied, denied, denied}},
		{"shard with a user", []string{"bigfleet://u@shard/s"}, verdicts{denied, denied, denied, denied}, verdicts{denied, denied, denied, denied}},
		{"shard whose id has a slash", []string{"bigfleet://shard/s/t"}, verdicts{ok, denied, denied, denied}, verdicts{ok, denied, denied, denied}},
		{"shard spelled otherwise", []string{"bigfleet://shard/%73"}, verdicts{denied, denied, denied, denied}, verdicts{denied, denied, denied, denied}},
		{"readonly with a slash", []string{"bigfleet://readonly/"}, verdicts{denied, denied, denied, denied}, verdicts{denied, denied, denied, denied}},
		{"readonly with a path", []string{"bigfleet://readonly/s"}, verdicts{denied, denied, denied, denied}, verdicts{denied, denied, denied, denied}},
	}
	for _, required := range []bool{false, true} {
		t.Run(fmt.Sprintf("required=%v", required), func(t *testing.T) {
			p := startProvider(t, environment(), credentials.NewTLS(ca.client("bigfleet://shard/s")), append(args, fmt.Sprintf("--require-shard-identity=%v", required))...)
			refusals := 0
			for i, c := range cases {
				t.Run(c.name, func(t *testing.T) {
					want := c.want
					if required {
						want = c.required
					}
					client := p.dial(t, ca.client(c.uris...))
					_, err := client.List(t.Context(), &pb.ListFilter{})
					wantCode(t, "List", err, want.read)
					_, err = client.Get(t.Context(), &pb.MachineRef{Id: "nobody"})
					if want.read == ok {
						wantCode(t, "Get", err, codes.NotFound)
					} else {
						wantCode(t, "Get", err, denied)
						refusals += 2
					}
					for what, v := range map[string]struct {
						tok  token
						want codes.Code
					}{
						"a call as its own shard": {token{"s", 1, int64(i + 1)}, want.own},
						"a call as another shard": {token{"x", 1, int64(i + 1)}, want.foreign},
						"a call without a token":  {token{}, want.unfenced},
					} {
						for _, kind := range kinds {
							_, err := client.call(kind, "nobody-"+kind, v.tok)
							if v.want == ok {
								wantCode(t, what+", "+kind, err, codes.NotFound)
							} else {
								wantCode(t, what+", "+kind, err, denied)
								refusals++
							}
						}
					}
					// Health is open to every certificate that the port accepts.
					if _, err := healthpb.NewHealthClient(client.conn).Check(t.Context(), &healthpb.HealthCheckRequest{}); err != nil {
						t.Errorf("health: %v", err)
					}
				})
			}
			// A refused caller must not have moved a mark.
			_, err := p.call("Create", "nobody-Create", token{"z", 0, 0})
			wantCode(t, "another shard_id", err, denied)
			refusals++
			if got := p.counter(t, "bigfleet_scaleway_rpc_denied_total"); got != float64(refusals) {
				t.Errorf("%v refusals are counted, want %d", got, refusals)
			}
			p.line(`"call refused".*code=PermissionDenied`)
		})
	}
}
