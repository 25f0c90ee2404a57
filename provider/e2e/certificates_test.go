package e2e

import (
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/credentials"

	pb "bigfleet-providers/proto/bigfleet/v1alpha1"
)

// mounted is a folder with certificate files as a mounted Kubernetes Secret has
// them: names that go through one symbolic link, which is replaced whole.
type mounted struct {
	t     *testing.T
	dir   string
	swaps int
}

func (m *mounted) file(name string) string { return filepath.Join(m.dir, name) }

// swap replaces all files at once.
func (m *mounted) swap(cert, key string, cas ...*authority) {
	m.t.Helper()
	m.swaps++
	generation := fmt.Sprint("..", m.swaps)
	var bundle []byte
	for _, ca := range cas {
		bundle = append(bundle, read(m.t, ca.pem)...)
	}
	must := func(err error) {
		m.t.Helper()
		if err != nil {
			m.t.Fatal(err)
		}
	}
	must(os.Mkdir(m.file(generation), 0o700))
	for name, content := range map[string][]byte{"tls.crt": read(m.t, cert), "tls.key": read(m.t, key), "ca.crt": bundle} {
		must(os.WriteFile(filepath.Join(m.file(generation), name), content, 0o600))
		if m.swaps == 1 {
			must(os.Symlink(filepath.Join("..data", name), m.file(name)))
		}
	}
	must(os.Symlink(generation, m.file("..tmp")))
	must(os.Rename(m.file("..tmp"), m.file("..data")))
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return content
}

// shows is the serial number of the certificate at an address.
func shows(t *testing.T, addr string, conf *tls.Config) string {
	t.Helper()
	conf = conf.Clone()
	conf.InsecureSkipVerify = true // what it shows is the question
	conn, err := tls.Dial("tcp", addr, conf)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	return conn.ConnectionState().PeerCertificates[0].SerialNumber.Text(16)
}

func serial(t *testing.T, cert, key string) string {
	t.Helper()
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	return pair.Leaf.SerialNumber.Text(16)
}

// TestReload rotates the certificates of both listeners, and their CAs, under a
// provider that runs.
func TestReload(t *testing.T) {
	t.Parallel()
	before, after, stranger := newAuthority(t), newAuthority(t), newAuthority(t)
	grpcFiles, channelFiles := &mounted{t: t, dir: t.TempDir()}, &mounted{t: t, dir: t.TempDir()}
	cert1, key1 := before.pair("first", nil)
	cert2, key2 := after.pair("second", nil)
	grpcFiles.swap(cert1, key1, before)
	channelFiles.swap(cert1, key1, before)
	p := startProvider(t, environment(), credentials.NewTLS(before.client("bigfleet://shard/s")),
		"--use-fake-backend", "--fake-hosts=none", "--provider=certify", "--tls-reload", "--seed-count=2", "--bootstrap-addr=127.0.0.1:0",
		"--tls-cert="+grpcFiles.file("tls.crt"), "--tls-key="+grpcFiles.file("tls.key"), "--tls-ca="+grpcFiles.file("ca.crt"),
		"--bootstrap-endpoint=https://localhost:9443", "--bootstrap-tls-cert="+channelFiles.file("tls.crt"), "--bootstrap-tls-key="+channelFiles.file("tls.key"), "--bootstrap-ca="+channelFiles.file("ca.crt"))
	channel := p.line(`bootstrap channel.*listen=(\S+)`)[1]
	both := func(want string) bool {
		grpc := before.client("")
		grpc.NextProtos = []string{"h2"}
		return shows(t, p.addr, grpc) == want && shows(t, channel, &tls.Config{}) == want
	}
	reloads := func(certificate, result string) float64 {
		return p.counter(t, fmt.Sprintf("bigfleet_scaleway_certificate_reloads_total{certificate=%q,result=%q}", certificate, result))
	}
	works := func(what string, conf *tls.Config) {
		t.Helper()
		if _, err := p.dial(t, conf).List(t.Context(), &pb.ListFilter{}); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	// What has ends shows them, and these are near.
	for name, want := range map[string]time.Time{"grpc": end(t, cert1), "grpc-ca": end(t, before.pem), "channel": end(t, cert1), "channel-ca": end(t, before.pem)} {
		if got := p.counter(t, fmt.Sprintf("bigfleet_scaleway_certificate_expiry_timestamp_seconds{certificate=%q}", name)); got != float64(want.Unix()) {
			t.Errorf("%s ends at %v, want %d", name, got, want.Unix())
		}
		p.line(`level=WARN msg="a certificate ends soon; replace it" .*certificate=` + name + " ")
	}
	if !both(serial(t, cert1, key1)) {
		t.Fatal("the first certificates are not served")
	}
	// A client that comes back to its session, and one whose connection stands.
	resuming := before.client("bigfleet://shard/s")
	resuming.ClientSessionCache = tls.NewLRUClientSessionCache(8)
	works("a client with a session", resuming)
	standing := p.dial(t, before.client("bigfleet://shard/s"))
	standing.list()

	// Rotation: new certificates, and CAs of before and after for a while.
	grpcFiles.swap(cert2, key2, before, after)
	channelFiles.swap(cert2, key2, before, after)
	second := serial(t, cert2, key2)
	await(t, "the second certificates on both listeners", func() bool { return both(second) })
	trusting := func(of *authority) *tls.Config { // shows a certificate of one, trusts what is served
		conf := of.client("bigfleet://shard/s")
		conf.RootCAs.AddCert(after.cert)
		return conf
	}
	works("a client of the CA before", trusting(before))
	works("a client of the CA after", trusting(after))
	if reloads("grpc", "ok") != 1 || reloads("channel", "ok") != 1 {
		t.Error("a reload is not counted once for each listener")
	}
	p.line(`locked out.*`)

	// The user data of new servers pins the CAs of now.
	now := p.dial(t, trusting(after))
	if data := now.userDataOf(t, p.machines(2)[0]); !strings.Contains(data, line(t, after.pem)) || !strings.Contains(data, line(t, before.pem)) {
		t.Error("the user data does not hold both CAs")
	}

	// Bad sets, one after another: all of it stays as it was.
	spoiled := 0.0
	for what, spoil := range map[string]func(){
		"half a pair":        func() { grpcFiles.swap(cert1, key2, before, after) },
		"an empty CA bundle": func() { grpcFiles.swap(cert2, key2) },
		"a CA that is a key": func() { grpcFiles.swap(cert2, key2, &authority{pem: key1}) },
		"no files": func() {
			if err := os.Remove(grpcFiles.file("..data")); err != nil {
				t.Fatal(err)
			}
		},
	} {
		spoil()
		spoiled++
		await(t, what+" is refused", func() bool { return reloads("grpc", "failed") == spoiled })
		if !both(second) {
			t.Errorf("%s: another certificate is served", what)
		}
		works(what+": a client of the CA before", trusting(before))
		p.unreachable(t, what+": client without a certificate", after.client())
		foreign := after.client()
		foreign.Certificates = []tls.Certificate{stranger.loaded("stranger", nil)}
		p.unreachable(t, what+": client of another CA", foreign)
	}
	p.line(`level=WARN msg="replaced certificate files cannot be used; the ones before them are served on"`)

	// The CA before goes. A session of it is worth nothing, a standing connection
	// stands.
	grpcFiles.swap(cert2, key2, after)
	await(t, "the CA before is gone", func() bool { return reloads("grpc", "ok") == 2 })
	works("a client of the CA after", trusting(after))
	p.unreachable(t, "client of the CA before", trusting(before))
	resuming.RootCAs.AddCert(after.cert)
	p.unreachable(t, "client of the CA before with a session", resuming)
	standing.list()
}

// line is a line of a PEM file's content that no other has.
func line(t *testing.T, path string) string {
	t.Helper()
	return lines(t, path)[2]
}

func lines(t *testing.T, path string) []string {
	t.Helper()
	return strings.Split(strings.TrimSpace(string(read(t, path))), "\n")
}

// end is when a PEM file's first certificate ends.
func end(t *testing.T, path string) time.Time {
	t.Helper()
	return parsed(t, path).NotAfter
}

func parsed(t *testing.T, path string) *x509.Certificate {
	t.Helper()
	block, _ := pem.Decode(read(t, path))
	c, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// below is a CA that the authority vouches for.
func (a *authority) below(t *testing.T) *authority {
	t.Helper()
	b := &authority{t: t, dir: t.TempDir()}
	key, der := a.sign(&x509.Certificate{
		Subject: pkix.Name{CommonName: "intermediate"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}, a.cert)
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	b.key, b.cert = key, cert
	return b
}

// TestChain: a client whose certificate an intermediate CA signed shows it along.
func TestChain(t *testing.T) {
	t.Parallel()
	root := newAuthority(t)
	below := root.below(t)
	cert, key := root.pair("server", nil)
	p := startProvider(t, environment(), credentials.NewTLS(root.client("")), "--use-fake-backend", "--fake-hosts=none", "--provider=certify",
		"--tls-cert="+cert, "--tls-key="+key, "--tls-ca="+root.pem)
	leaf := below.loaded("client", nil)
	alone := root.client()
	alone.Certificates = []tls.Certificate{leaf}
	p.unreachable(t, "a chain with a gap", alone)
	whole := root.client()
	leaf.Certificate = append(leaf.Certificate, below.cert.Raw)
	whole.Certificates = []tls.Certificate{leaf}
	p.dial(t, whole).list()
}
