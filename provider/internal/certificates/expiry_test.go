package certificates

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"bigfleet-providers/provider/internal/telemetry"
)

// TestEndsAreAnnounced: every certificate's end is a metric, and a warning from
// 14 days before on, at start and daily.
func TestEndsAreAnnounced(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		w := &world{folder: folder{t, dir}, reg: prometheus.NewRegistry()}
		begun := time.Now().Add(-time.Hour)
		end := time.Now().Add(16*day + time.Hour)
		// Of a bundle, the last to end counts; the certificate itself ends late.
		w.set(good(t, "pair"), issue(t, "CA", begun, end), issue(t, "CA", begun.Add(-year), begun))
		w.keep(false, func(w *world) {
			if got := w.value(telemetry.MetricCertificateExpiry.Name, "grpc-ca"); got != float64(end.Unix()) {
				t.Errorf("the bundle's end is %v, want %v", got, end.Unix())
			}
			if got := w.value(telemetry.MetricCertificateExpiry.Name, "grpc"); got != float64(w.live.Current().Pair.Leaf.NotAfter.Unix()) {
				t.Errorf("the pair's end is %v", got)
			}
			if w.log.String() != "" {
				t.Errorf("16 days before: %s", w.log.String())
			}
			w.pass(2 * day)
			if w.log.String() != "" {
				t.Errorf("14 days and an hour before: %s", w.log.String())
			}
			w.pass(day)
			if n := w.said("level=WARN msg=\"a certificate ends soon; replace it\" certificate=grpc-ca"); n != 1 || w.said("certificate=grpc ") != 0 {
				t.Errorf("13 days before: %s", w.log.String())
			}
			w.pass(5 * day)
			if n := w.said("ends soon"); n != 6 {
				t.Errorf("%d warnings in 6 days", n)
			}
			w.pass(10 * day)
			if w.said("level=ERROR msg=\"a certificate has ended") < 1 {
				t.Errorf("after its end: %s", w.log.String())
			}
		})
	})
}

// TestEndOfABundle: a CA that has ended beside one that has not ends nothing, and
// clients of one that ends soon are not forgotten.
func TestEndOfABundle(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		now := time.Now()
		for name, c := range map[string]struct {
			cas  []time.Duration // their ends
			end  time.Duration
			says string
		}{
			"one ended":     {[]time.Duration{-day, year}, year, ""},
			"ended, second": {[]time.Duration{year, -day}, year, ""},
			"one ends soon": {[]time.Duration{3*day + time.Hour, year}, year, "level=WARN msg=\"a CA of the bundle ends soon"},
			"both soon":     {[]time.Duration{day, 3*day + time.Hour}, 3*day + time.Hour, "level=WARN msg=\"a certificate ends soon; replace it\" certificate=grpc-ca subject=\"CN=CA 1\""},
			"all ended":     {[]time.Duration{-day, -time.Hour}, -time.Hour, "level=ERROR msg=\"a certificate has ended"},
		} {
			w := &world{folder: folder{t, dir}, reg: prometheus.NewRegistry()}
			var cas []issued
			for i, end := range c.cas {
				cas = append(cas, issue(t, fmt.Sprintf("CA %d", i), now.Add(-2*year), now.Add(end)))
			}
			w.set(good(t, "pair"), cas...)
			w.keep(false, func(w *world) {
				if got, want := w.value(telemetry.MetricCertificateExpiry.Name, "grpc-ca"), float64(now.Add(c.end).Unix()); got != want {
					t.Errorf("%s: the bundle ends at %v, want %v", name, got, want)
				}
				if c.says == "" && w.log.String() != "" || w.said(c.says) == 0 {
					t.Errorf("%s: %s", name, w.log.String())
				}
			})
		}
	})
}

// TestEndOfWhatIsPinned: of what agents pin, the CAs count that verify the
// listener's certificate.
func TestEndOfWhatIsPinned(t *testing.T) {
	f := folder{t, t.TempDir()}
	pair := good(t, "channel") // signed by itself, so it is its own CA
	other := issue(t, "other", time.Now().Add(-time.Hour), time.Now().Add(10*year))
	f.set(pair, other, pair)
	src := f.source()
	src.Pinned = true
	live, err := Open(src)
	if err != nil {
		t.Fatal(err)
	}
	if ends := live.Ends(); len(ends) != 2 || ends[1].Subject != "CN=channel" || !ends[1].At.Equal(ends[0].At) {
		t.Errorf("%+v", ends)
	}
	f.set(pair, other)
	if live, err = Open(src); err != nil {
		t.Fatal(err)
	}
	if ends := live.Ends(); len(ends) != 2 || ends[1].Subject != "CN=other" {
		t.Errorf("none verifies: %+v", ends)
	}
}

// TestEndIsAnnouncedAtStart for whoever starts daily.
func TestEndIsAnnouncedAtStart(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		w := &world{folder: folder{t, dir}, reg: prometheus.NewRegistry()}
		w.set(issue(t, "pair", time.Now().Add(-year), time.Now().Add(13*day)), issue(t, "CA", time.Now().Add(-year), time.Now().Add(-time.Hour)))
		w.keep(true, func(w *world) {
			if w.said("ends soon; replace it\" certificate=grpc ") != 1 || w.said("days=13") != 1 || w.said("has ended and is refused; replace it\" certificate=grpc-ca") != 1 {
				t.Error(w.log.String())
			}
		})
	})
}

// TestBundleGivesNothingElseAway: a file with a certificate often holds its key,
// and a bundle's text goes into every server's user data.
func TestBundleGivesNothingElseAway(t *testing.T) {
	f := folder{t, t.TempDir()}
	pair := good(t, "combined")
	f.write("both.pem", append(append([]byte("a comment\n"), pair.key...), pair.cert...))
	file := func(flag string) File { return File{flag, f.dir + "/both.pem"} }
	live, err := Open(Source{Name: "channel", Cert: file("bootstrap-tls-cert"), Key: file("bootstrap-tls-key"), CA: file("bootstrap-tls-cert")})
	if err != nil {
		t.Fatal(err)
	}
	if text := live.Current().Bundle.PEM; text != string(pair.cert) {
		t.Errorf("the bundle's text is %q", text)
	}
	// A bundle on its own has no business with a key: somebody mixed files up.
	f.write("tls.crt", pair.cert)
	f.write("tls.key", pair.key)
	f.write("ca.crt", append(pair.cert, pair.key...))
	if _, err := Open(f.source()); err == nil || !strings.Contains(err.Error(), "block 2 (line 9) is a PRIVATE KEY") || strings.Contains(err.Error(), string(pair.key[30:60])) {
		t.Errorf("a bundle with a key: %v", err)
	}
}

// TestOpenReportsEveryFault at once.
func TestOpenReportsEveryFault(t *testing.T) {
	f := folder{t, t.TempDir()}
	f.write("ca.crt", nil)
	f.write("tls.crt", good(t, "a").cert)
	f.write("tls.key", good(t, "b").key)
	_, err := Open(f.source())
	for _, want := range []string{"does not match", "holds no PEM certificate"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not say %q", err, want)
		}
	}
	f.remove("tls.crt")
	f.remove("tls.key")
	_, err = Open(f.source())
	for _, want := range []string{"--tls-cert: open", "--tls-key: open"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not say %q", err, want)
		}
	}
}

func TestFixed(t *testing.T) {
	live := Fixed("channel", pairOf(t, good(t, "x")), nil)
	if c, err := live.Certificate(nil); err != nil || c.Leaf.Subject.CommonName != "x" {
		t.Errorf("%v, %v", c, err)
	}
	// A keeper that follows files leaves it alone.
	k := NewKeeper(prometheus.NewRegistry(), nil, true, live)
	if k.follows(live) {
		t.Error("a pair without files is followed")
	}
}
