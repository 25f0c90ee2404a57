package certificates

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	"strings"
	"testing"
	"time"
)

type unfitPair struct {
	pair issued
	says string
}

// shortKey is an RSA key of 1,024 bits, which crypto/rsa makes no more unless
// asked to.
func shortKey(t testing.TB) *rsa.PrivateKey {
	t.Helper()
	t.Setenv("GODEBUG", "rsa1024min=0")
	key, err := rsa.GenerateKey(rand.Reader, 1024)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// unfit are pairs that fit together and are not to be served.
func unfit(t testing.TB) map[string]unfitPair {
	t.Helper()
	make224 := func() crypto.Signer {
		key, err := ecdsa.GenerateKey(elliptic.P224(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		return key
	}
	p256, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := func(uses ...x509.ExtKeyUsage) *x509.Certificate {
		return &x509.Certificate{
			SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "unfit"}, ExtKeyUsage: uses,
			NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(year),
		}
	}
	return map[string]unfitPair{
		"RSA key is short":   {issueWith(t, shortKey(t), template()), "its RSA key has 1024 bits, at least 2048 are needed"},
		"curve of old TLS":   {issueWith(t, make224(), template()), "TLS 1.3 has no curve P-224"},
		"pair is a client's": {issueWith(t, p256, template(x509.ExtKeyUsageClientAuth)), "does not allow servers"},
	}
}

// TestUnfitPairsAreRefused at a start, as they are when they replace others.
func TestUnfitPairsAreRefused(t *testing.T) {
	for name, c := range unfit(t) {
		t.Run(name, func(t *testing.T) {
			f := folder{t, t.TempDir()}
			f.set(c.pair, good(t, "CA"))
			if _, err := Open(f.source()); err == nil || !strings.Contains(err.Error(), c.says) || !strings.Contains(err.Error(), "--tls-cert") {
				t.Errorf("the pair is taken: %v", err)
			}
		})
	}
	t.Run("CA", func(t *testing.T) {
		f := folder{t, t.TempDir()}
		f.set(good(t, "server"), good(t, "CA"), unfit(t)["RSA key is short"].pair)
		if _, err := Open(f.source()); err == nil || !strings.Contains(err.Error(), "certificate 2: its RSA key has 1024 bits") || !strings.Contains(err.Error(), "--tls-ca") {
			t.Errorf("the CA is taken: %v", err)
		}
	})
	t.Run("any use", func(t *testing.T) {
		key, err := rsa.GenerateKey(rand.Reader, 2048)
		if err != nil {
			t.Fatal(err)
		}
		f := folder{t, t.TempDir()}
		f.set(issueWith(t, key, &x509.Certificate{
			SerialNumber: big.NewInt(1), ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}, NotBefore: time.Now(), NotAfter: time.Now().Add(year),
		}), good(t, "CA"))
		if _, err := Open(f.source()); err != nil {
			t.Error(err)
		}
	})
}
