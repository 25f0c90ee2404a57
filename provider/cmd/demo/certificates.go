package main

import (
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
	"time"
)

// certificateLife is generous for a demo and useless to whoever finds its keys.
const certificateLife = time.Hour

// certificates are a throwaway CA and what it signed: PEM files for the
// programs that the demo starts, and the demo's own side of mutual TLS.
type certificates struct {
	ca        string // signs all of them; every side trusts it alone
	serverCrt string // for the loopback addresses
	serverKey string
	// shard is what the client presents: a certificate that names its shard in
	// a URI, so that the provider can hold it to that shard's tokens.
	shard *tls.Config
	// stranger trusts the provider and presents nothing.
	stranger *tls.Config
}

// makeCertificates writes a CA and a server certificate into dir and keeps the
// client's in memory.
func makeCertificates(dir, shard string) (*certificates, error) {
	now := time.Now()
	root := &x509.Certificate{
		Subject:               pkix.Name{CommonName: "BigFleet demo CA"},
		NotBefore:             now.Add(-time.Minute),
		NotAfter:              now.Add(certificateLife),
		IsCA:                  true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageCertSign,
	}
	ca, err := sign(root, nil)
	if err != nil {
		return nil, err
	}
	server, err := sign(&x509.Certificate{
		Subject:     pkix.Name{CommonName: "provider"},
		NotBefore:   root.NotBefore,
		NotAfter:    root.NotAfter,
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		DNSNames:    []string{"localhost"},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback},
	}, ca)
	if err != nil {
		return nil, err
	}
	client, err := sign(&x509.Certificate{
		Subject:     pkix.Name{CommonName: shard},
		NotBefore:   root.NotBefore,
		NotAfter:    root.NotAfter,
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
		URIs:        []*url.URL{{Scheme: "bigfleet", Host: "shard", Path: "/" + shard}},
	}, ca)
	if err != nil {
		return nil, err
	}

	pool := x509.NewCertPool()
	pool.AddCert(ca.Leaf)
	trust := &tls.Config{MinVersion: tls.VersionTLS13, RootCAs: pool}
	c := &certificates{
		ca:        filepath.Join(dir, "ca.pem"),
		serverCrt: filepath.Join(dir, "server.pem"),
		serverKey: filepath.Join(dir, "server-key.pem"),
		shard:     trust.Clone(),
		stranger:  trust,
	}
	c.shard.Certificates = []tls.Certificate{*client}

	key, err := x509.MarshalPKCS8PrivateKey(server.PrivateKey)
	if err != nil {
		return nil, fmt.Errorf("server key: %w", err)
	}
	for _, f := range []struct {
		path, kind string
		der        []byte
	}{
		{c.ca, "CERTIFICATE", ca.Certificate[0]},
		{c.serverCrt, "CERTIFICATE", server.Certificate[0]},
		{c.serverKey, "PRIVATE KEY", key},
	} {
		text := pem.EncodeToMemory(&pem.Block{Type: f.kind, Bytes: f.der})
		if err := os.WriteFile(f.path, text, 0o600); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// sign makes a key pair and a certificate over it, signed by the issuer, or by
// itself when there is none.
func sign(template *x509.Certificate, issuer *tls.Certificate) (*tls.Certificate, error) {
	fail := func(err error) (*tls.Certificate, error) {
		return nil, fmt.Errorf("certificate of %q: %w", template.Subject.CommonName, err)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return fail(err)
	}
	template.SerialNumber, err = rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return fail(err)
	}
	parent, signer := template, any(key)
	if issuer != nil {
		parent, signer = issuer.Leaf, issuer.PrivateKey
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		return fail(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		return fail(err)
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}, nil
}
