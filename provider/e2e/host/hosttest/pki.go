package hosttest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Authority is a CA that hosts pin.
type Authority struct {
	File string // its certificate
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// Pair are the files of a certificate and its key.
type Pair struct{ Cert, Key string }

// NewAuthority makes a CA that is valid now.
func NewAuthority(t *testing.T) *Authority {
	t.Helper()
	a := &Authority{File: filepath.Join(t.TempDir(), "ca.pem"), cert: template("host tests CA", time.Now().Add(-time.Minute))}
	a.cert.IsCA, a.cert.BasicConstraintsValid, a.cert.KeyUsage = true, true, x509.KeyUsageCertSign
	a.key = newKey(t)
	der, err := x509.CreateCertificate(rand.Reader, a.cert, a.cert, &a.key.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	writePEM(t, a.File, "CERTIFICATE", der)
	return a
}

// Pair issues a certificate for names and addresses that is valid from the time
// on.
func (a *Authority) Pair(t *testing.T, from time.Time, hosts ...string) Pair {
	t.Helper()
	cert, key := template("host tests", from), newKey(t)
	cert.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	for _, h := range hosts {
		if addr := net.ParseIP(h); addr != nil {
			cert.IPAddresses = append(cert.IPAddresses, addr)
		} else {
			cert.DNSNames = append(cert.DNSNames, h)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, cert, a.cert, &key.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	p := Pair{Cert: filepath.Join(dir, "cert.pem"), Key: filepath.Join(dir, "key.pem")}
	writePEM(t, p.Cert, "CERTIFICATE", der)
	writePEM(t, p.Key, "PRIVATE KEY", keyDER)
	return p
}

func template(name string, from time.Time) *x509.Certificate {
	return &x509.Certificate{
		SerialNumber: big.NewInt(from.UnixNano()), Subject: pkix.Name{CommonName: name},
		NotBefore: from, NotAfter: from.Add(time.Hour), KeyUsage: x509.KeyUsageDigitalSignature,
	}
}

func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func writePEM(t *testing.T, path, kind string, der []byte) {
	t.Helper()
	WriteFile(t, path, string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})), 0o600)
}

// WriteFile writes a file and the folders it is in.
func WriteFile(t *testing.T, path, content string, mode os.FileMode) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), mode); err != nil {
		t.Fatal(err)
	}
}
