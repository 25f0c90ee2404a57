package certificates

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"log/slog"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"bigfleet-providers/provider/internal/telemetry"
)

const year = 365 * day

// issued is a self-signed certificate of a test, and its key, as PEM.
type issued struct{ cert, key []byte }

func issue(t testing.TB, name string, from, until time.Time) issued {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return issueWith(t, key, &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotBefore: from, NotAfter: until})
}

func issueWith(t testing.TB, key crypto.Signer, template *x509.Certificate) issued {
	t.Helper()
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return issued{
		pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER}),
	}
}

// good is one that has begun and ends in a year.
func good(t *testing.T, name string) issued {
	t.Helper()
	return issue(t, name, time.Now().Add(-time.Hour), time.Now().Add(year))
}

// folder is a folder with the files of a listener.
type folder struct {
	t   *testing.T
	dir string
}

func (f folder) write(name string, content []byte) {
	f.t.Helper()
	if err := os.WriteFile(filepath.Join(f.dir, name), content, 0o600); err != nil {
		f.t.Fatal(err)
	}
}

func (f folder) remove(name string) {
	f.t.Helper()
	if err := os.Remove(filepath.Join(f.dir, name)); err != nil {
		f.t.Fatal(err)
	}
}

// set writes a pair and the CAs of its bundle.
func (f folder) set(pair issued, cas ...issued) {
	f.t.Helper()
	f.write("tls.crt", pair.cert)
	f.write("tls.key", pair.key)
	f.write("ca.crt", bundle(cas...))
}

// swap replaces the set as the kubelet does: files in a new folder, and one
// rename of the symbolic link that all names go through.
func (f folder) swap(generation string, pair issued, cas ...issued) {
	f.t.Helper()
	next := folder{f.t, filepath.Join(f.dir, generation)}
	if err := os.Mkdir(next.dir, 0o700); err != nil {
		f.t.Fatal(err)
	}
	next.set(pair, cas...)
	if err := os.Symlink(generation, filepath.Join(f.dir, "..data_tmp")); err != nil {
		f.t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(f.dir, "..data_tmp"), filepath.Join(f.dir, "..data")); err != nil {
		f.t.Fatal(err)
	}
	for _, name := range []string{"tls.crt", "tls.key", "ca.crt"} {
		if err := os.Symlink(filepath.Join("..data", name), filepath.Join(f.dir, name)); err != nil && !os.IsExist(err) {
			f.t.Fatal(err)
		}
	}
}

func (f folder) source() Source {
	file := func(flag, name string) File { return File{flag, filepath.Join(f.dir, name)} }
	return Source{Name: "grpc", Cert: file("tls-cert", "tls.crt"), Key: file("tls-key", "tls.key"), CA: file("tls-ca", "ca.crt")}
}

func (f folder) file(name string) []byte {
	f.t.Helper()
	content, err := os.ReadFile(filepath.Join(f.dir, name))
	if err != nil {
		f.t.Fatal(err)
	}
	return content
}

func pairOf(t *testing.T, i issued) tls.Certificate {
	t.Helper()
	pair, err := tls.X509KeyPair(i.cert, i.key)
	if err != nil {
		t.Fatal(err)
	}
	return pair
}

func bundle(cas ...issued) []byte {
	var all []byte
	for _, ca := range cas {
		all = append(all, ca.cert...)
	}
	return all
}

// world is a Keeper that runs in a bubble of synctest.
type world struct {
	folder
	live *Live
	reg  *prometheus.Registry
	log  journal
	edit func(*Source)
}

// journal is a log that is read while it is written.
type journal struct {
	mu   sync.Mutex
	text strings.Builder
}

func (j *journal) Write(b []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.Write(b)
}

func (j *journal) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.String()
}

// inWorld runs a test in a bubble, with a keeper that follows a set.
func inWorld(t *testing.T, run func(w *world)) {
	t.Helper()
	inWorldOf(t, true, nil, run)
}

// inWorldOf is inWorld with a keeper that follows its set or does not, and with
// more to the source than its files.
func inWorldOf(t *testing.T, reload bool, edit func(*Source), run func(w *world)) {
	t.Helper()
	dir := t.TempDir() // whose removal must not be in the bubble
	synctest.Test(t, func(t *testing.T) {
		w := &world{folder: folder{t, dir}, reg: prometheus.NewRegistry(), edit: edit}
		w.swap("..1", good(t, "first"), good(t, "first CA"))
		w.keep(reload, run)
	})
}

// keep opens the set and runs a keeper beside a test.
func (w *world) keep(reload bool, run func(w *world)) {
	w.t.Helper()
	src := w.source()
	if w.edit != nil {
		w.edit(&src)
	}
	live, err := Open(src)
	if err != nil {
		w.t.Fatal(err)
	}
	w.live = live
	k := NewKeeper(w.reg, slog.New(slog.NewTextHandler(&w.log, nil)), reload, live)
	ctx, cancel := context.WithCancel(w.t.Context())
	done := make(chan error)
	go func() { done <- k.Run(ctx) }()
	synctest.Wait()
	run(w)
	cancel()
	if err := <-done; err != nil {
		w.t.Error(err)
	}
}

// pass lets a time pass and the keeper come to rest.
func (w *world) pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// looks lets a number of looks happen.
func (w *world) looks(n int) { w.pass(time.Duration(n) * LookInterval) }

// serves says whose pair and CAs are served, by common name.
func (w *world) serves(pair string, cas ...string) {
	w.t.Helper()
	m := w.live.Current()
	var got []string
	for _, c := range m.Bundle.Certs {
		got = append(got, c.Subject.CommonName)
	}
	if name := m.Pair.Leaf.Subject.CommonName; name != pair || strings.Join(got, ",") != strings.Join(cas, ",") {
		w.t.Errorf("%s is served with the CAs %q, want %s with %q\nlog: %s", name, got, pair, cas, w.log.String())
	}
}

func (w *world) reloads(ok, failed float64) {
	w.t.Helper()
	for result, want := range map[string]float64{"ok": ok, "failed": failed} {
		if got := w.value(telemetry.MetricCertificateReloads.Name, result); got != want {
			w.t.Errorf("%v reloads with result %s, want %v\nlog: %s", got, result, want, w.log.String())
		}
	}
}

// value is a metric's, of the series that has the label value.
func (w *world) value(metric, label string) float64 {
	w.t.Helper()
	families, err := w.reg.Gather()
	if err != nil {
		w.t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != metric {
			continue
		}
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if l.GetValue() == label {
					return m.GetGauge().GetValue() + m.GetCounter().GetValue()
				}
			}
		}
	}
	w.t.Fatalf("no %s with %s", metric, label)
	return 0
}

// said counts the log's lines with a text.
func (w *world) said(text string) int { return strings.Count(w.log.String(), text) }
