package certificates

import (
	"bytes"
	"encoding/pem"
	"testing"
	"time"
)

// FuzzBundle: what is taken for a bundle holds certificates, and its text gives
// nothing else away.
func FuzzBundle(f *testing.F) {
	t0 := time.Unix(0, 0)
	a, b := issue(f, "a", t0, t0.Add(year)), issue(f, "b", t0, t0.Add(year))
	for _, content := range [][]byte{nil, a.cert, bundle(a, b), a.key, append(bytes.Clone(a.cert), a.key...), append([]byte("# text\n"), a.cert...), a.cert[:100], append(bytes.Clone(a.cert), b.cert[:100]...)} {
		f.Add(content, true)
		f.Add(content, false)
	}
	f.Fuzz(func(t *testing.T, content []byte, mixed bool) {
		got, err := parseBundle(File{"tls-ca", "ca.pem"}, content, mixed)
		if err != nil {
			return
		}
		rest, n := []byte(got.PEM), 0
		for len(rest) > 0 {
			var block *pem.Block
			if block, rest = pem.Decode(rest); block == nil || block.Type != "CERTIFICATE" || !bytes.Equal(block.Bytes, got.Certs[n].Raw) {
				t.Fatalf("block %d of %q", n, got.PEM)
			}
			n++
		}
		if n == 0 || n != len(got.Certs) {
			t.Errorf("%d certificates, %d in the text", len(got.Certs), n)
		}
	})
}
