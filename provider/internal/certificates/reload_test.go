package certificates

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
	"time"

	"bigfleet-providers/provider/internal/telemetry"
)

func TestSymlinkSwapIsFollowed(t *testing.T) {
	inWorld(t, func(w *world) {
		w.serves("first", "first CA")
		w.swap("..2", good(t, "second"), good(t, "first CA"), good(t, "second CA"))
		w.looks(2)
		w.serves("second", "first CA", "second CA")
		w.reloads(1, 0)
		// The CA alone, which certificates that are followed by their own forget.
		w.swap("..3", issued{w.file("tls.crt"), w.file("tls.key")}, good(t, "second CA"))
		w.looks(2)
		w.serves("second", "second CA")
		w.reloads(2, 0)
		if end := w.live.Current().Chain[0].NotAfter; w.value(telemetry.MetricCertificateExpiry.Name, "grpc") != float64(end.Unix()) {
			t.Error("the metric shows another certificate's end")
		}
	})
}

// TestFilesReplacedOneByOne replaces files in place, slowly.
func TestFilesReplacedOneByOne(t *testing.T) {
	inWorld(t, func(w *world) {
		next := good(t, "second")
		w.write("tls.crt", next.cert)
		w.looks(1)
		w.reloads(0, 0) // it may be half done, which is no failure
		w.looks(5)
		w.serves("first", "first CA")
		w.reloads(0, 1) // told once
		if n := w.said("private key does not match"); n != 1 {
			t.Errorf("the log says %d times that the pair does not fit", n)
		}
		w.write("tls.key", next.key)
		w.looks(2)
		w.serves("second", "first CA")
		w.reloads(1, 1)
		w.looks(100)
		w.reloads(1, 1)
	})
}

// TestBadFilesKeepTheLastGoodSet replaces the set with others that are not to be
// served, each for long, and puts it back.
func TestBadFilesKeepTheLastGoodSet(t *testing.T) {
	now := time.Now
	for name, c := range map[string]struct {
		spoil func(f folder)
		says  string
	}{
		"certificate of another key": {func(f folder) { f.write("tls.crt", good(f.t, "x").cert) }, "private key does not match public key"},
		"empty certificate":          {func(f folder) { f.write("tls.crt", nil) }, "holds no PEM certificate"},
		"certificate is cut":         {func(f folder) { f.write("tls.crt", good(f.t, "x").cert[:300]) }, "--tls-cert"},
		"no certificate":             {func(f folder) { f.remove("tls.crt") }, "no such file"},
		"no key":                     {func(f folder) { f.remove("tls.key") }, "no such file"},
		"key is empty":               {func(f folder) { f.write("tls.key", nil) }, "--tls-key"},
		"no CA":                      {func(f folder) { f.remove("ca.crt") }, "--tls-ca"},
		"CA is empty":                {func(f folder) { f.write("ca.crt", nil) }, "holds no PEM certificate"},
		"CA is garbage":              {func(f folder) { f.write("ca.crt", []byte("no certificate\n")) }, "holds no PEM certificate"},
		"CA is a key":                {func(f folder) { f.write("ca.crt", good(f.t, "x").key) }, "block 1 (line 1) is a PRIVATE KEY"},
		"second CA is cut":           {func(f folder) { f.write("ca.crt", append(good(f.t, "x").cert, good(f.t, "y").cert[:200]...)) }, "is the file cut off?"},
		"first CA lacks a dash":      {func(f folder) { f.write("ca.crt", append(good(f.t, "x").cert[1:], good(f.t, "y").cert...)) }, "block 1 (line 1)"},
		"first CA is indented":       {func(f folder) { f.write("ca.crt", append([]byte(" "), bundle(good(f.t, "x"), good(f.t, "y"))...)) }, "block 1 (line 1)"},
		"first CA is no base64": {func(f folder) {
			f.write("ca.crt", append(bytes.Replace(good(f.t, "x").cert, []byte("\nMII"), []byte("\nM!I"), 1), good(f.t, "y").cert...))
		}, "line 2: not base64"},
		"CAs are joined": {func(f folder) {
			f.write("ca.crt", append(bytes.TrimSpace(good(f.t, "x").cert), good(f.t, "y").cert...))
		}, "joined without a line break"},
		"chain is damaged": {func(f folder) {
			pair := good(f.t, "x")
			f.write("tls.crt", append(pair.cert, good(f.t, "y").cert[1:]...))
			f.write("tls.key", pair.key)
		}, "--tls-cert"},
		"second CA does not parse": {func(f folder) {
			f.write("ca.crt", append(good(f.t, "x").cert, "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"...))
		}, "block 2"},
		"CA is endless":                {func(f folder) { f.write("ca.crt", bytes.Repeat([]byte("#"), maxFileBytes+1)) }, "larger than 1048576 bytes"},
		"CA has ended":                 {func(f folder) { f.write("ca.crt", issue(f.t, "x", now().Add(-year), now().Add(-time.Hour)).cert) }, "every certificate in it has ended"},
		"certificate has ended":        {func(f folder) { f.set(issue(f.t, "x", now().Add(-year), now().Add(-time.Hour)), good(f.t, "x")) }, "ended on"},
		"certificate has not begun":    {func(f folder) { f.set(issue(f.t, "x", now().Add(time.Hour), now().Add(year)), good(f.t, "x")) }, "is good only from"},
		"good pair beside a bad CA":    {func(f folder) { f.set(good(f.t, "x")) }, "holds no PEM certificate"},
		"good CA beside half a pair":   {func(f folder) { f.write("tls.key", good(f.t, "x").key); f.write("ca.crt", good(f.t, "x").cert) }, "does not match"},
		"RSA key is short":             {func(f folder) { f.set(unfit(f.t)["RSA key is short"].pair, good(f.t, "x")) }, "its RSA key has 1024 bits"},
		"pair is a client's":           {func(f folder) { f.set(unfit(f.t)["pair is a client's"].pair, good(f.t, "x")) }, "does not allow servers"},
		"CA's RSA key is short":        {func(f folder) { f.write("ca.crt", unfit(f.t)["RSA key is short"].pair.cert) }, "--tls-ca"},
		"the folder is somewhere else": {func(f folder) { f.remove("..data") }, "no such file"},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				before := issued{w.file("tls.crt"), w.file("tls.key")}
				ca := w.file("ca.crt")
				c.spoil(w.folder)
				w.looks(20)
				w.serves("first", "first CA")
				w.reloads(0, 1)
				if w.said(c.says) == 0 {
					t.Errorf("the log does not say %q: %s", c.says, w.log.String())
				}
				if _, err := os.Lstat(filepath.Join(w.dir, "..data")); err != nil {
					return // nothing can be written there
				}
				w.write("tls.crt", before.cert)
				w.write("tls.key", before.key)
				w.write("ca.crt", ca)
				w.looks(2)
				w.reloads(0, 1) // nothing was replaced after all
				w.set(good(t, "second"), good(t, "second CA"))
				w.looks(2)
				w.serves("second", "second CA")
				w.reloads(1, 1)
			})
		})
	}
}

// TestWriterIsNotOvertaken lets a bundle grow for a long time. At the moment
// when it holds one whole CA it looks good, and is not.
func TestWriterIsNotOvertaken(t *testing.T) {
	inWorld(t, func(w *world) {
		whole := bundle(good(t, "first CA"), good(t, "second CA"))
		half := bytes.Index(whole, []byte("-----END CERTIFICATE-----\n")) + len("-----END CERTIFICATE-----\n")
		for _, n := range []int{0, half / 2, half, half + 100} {
			w.write("ca.crt", whole[:n])
			w.looks(1)
			w.serves("first", "first CA")
		}
		w.write("ca.crt", whole)
		w.looks(2)
		w.serves("first", "first CA", "second CA")
		w.reloads(1, 0)
	})
}

// TestCertificateThatBeginsLater is taken over when its time has come, without
// another change of the files.
func TestCertificateThatBeginsLater(t *testing.T) {
	inWorld(t, func(w *world) {
		w.swap("..2", issue(t, "second", time.Now().Add(time.Hour), time.Now().Add(year)), good(t, "CA"))
		w.pass(59 * time.Minute)
		w.serves("first", "first CA")
		w.reloads(0, 1)
		w.pass(2 * time.Minute)
		w.serves("second", "CA")
		w.reloads(1, 1)
	})
}

// TestCheckAndSwapped: what a source's owner refuses is not served, and it is
// told of what is.
func TestCheckAndSwapped(t *testing.T) {
	var told []string
	source := func(src *Source) {
		src.Check = func(m *Material) error {
			if m.Chain[0].Subject.CommonName == "refused" {
				return os.ErrPermission
			}
			return nil
		}
		src.Swapped = func(before, now *Material) {
			told = append(told, before.Chain[0].Subject.CommonName+" "+now.Chain[0].Subject.CommonName)
		}
	}
	inWorldOf(t, true, source, func(w *world) {
		w.swap("..2", good(t, "refused"), good(t, "CA"))
		w.looks(3)
		w.serves("first", "first CA")
		w.swap("..3", good(t, "third"), good(t, "CA"))
		w.looks(3)
		w.serves("third", "CA")
		if len(told) != 1 || told[0] != "first third" {
			t.Errorf("told of %q", told)
		}
	})
}

// TestNothingIsFollowedUnasked: without reload the files are read once.
func TestNothingIsFollowedUnasked(t *testing.T) {
	inWorldOf(t, false, nil, func(w *world) {
		w.swap("..2", good(t, "second"), good(t, "second CA"))
		w.pass(time.Hour)
		w.serves("first", "first CA")
	})
}
