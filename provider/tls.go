package provider

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
)

// The transport modes of the gRPC port, as logged under "security".
const (
	securityInsecure = "insecure"
	securityTLS      = "TLS"
	securityMTLS     = "mTLS"
)

// load reads the gRPC port's TLS configuration: nil for plaintext. A pair that
// does not fit or a CA bundle without a certificate is an error, so that a
// mistake can never come up insecure.
func (t TLSConfig) load() (*tls.Config, string, error) {
	if t.Cert == "" && t.Key == "" {
		return nil, securityInsecure, nil
	}
	pair, err := loadPair("tls-cert", t.Cert, "tls-key", t.Key)
	var pool *x509.CertPool
	var caErr error
	if t.CA != "" {
		pool, _, caErr = loadBundle("tls-ca", t.CA)
	}
	if err := errors.Join(err, caErr); err != nil {
		return nil, "", err
	}
	cfg := &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{pair}, NextProtos: []string{"h2"}}
	if pool == nil {
		return cfg, securityTLS, nil
	}
	cfg.ClientCAs, cfg.ClientAuth = pool, tls.RequireAndVerifyClientCert
	return cfg, securityMTLS, nil
}

// load reads the channel's certificate and the PEM that agents pin.
func (b BootstrapConfig) load() (tls.Certificate, string, error) {
	pair, err := loadPair("bootstrap-tls-cert", b.TLSCert, "bootstrap-tls-key", b.TLSKey)
	caFlag, caFile := "bootstrap-ca", b.CA
	if caFile == "" {
		caFlag, caFile = "bootstrap-tls-cert", b.TLSCert
	}
	if err != nil && b.CA == "" {
		return tls.Certificate{}, "", err // about the same file
	}
	pool, pemText, caErr := loadBundle(caFlag, caFile)
	if err := errors.Join(err, caErr); err != nil {
		return tls.Certificate{}, "", err
	}
	// An agent verifies the endpoint's host name against the pinned CA. Here is
	// the place to find out that it cannot succeed, not at the first boot.
	if u, err := url.Parse(b.Endpoint); err == nil && u.Hostname() != "" {
		intermediates := x509.NewCertPool()
		for _, der := range pair.Certificate[1:] {
			if c, err := x509.ParseCertificate(der); err == nil {
				intermediates.AddCert(c)
			}
		}
		if _, err := pair.Leaf.Verify(x509.VerifyOptions{DNSName: u.Hostname(), Roots: pool, Intermediates: intermediates}); err != nil {
			return tls.Certificate{}, "", fmt.Errorf("--bootstrap-tls-cert: agents could not verify it for --bootstrap-endpoint %s with the CA they pin (--%s): %w", b.Endpoint, caFlag, err)
		}
	}
	return pair, pemText, nil
}

func loadPair(certFlag, certFile, keyFlag, keyFile string) (tls.Certificate, error) {
	certPEM, err1 := readFile(certFlag, certFile)
	keyPEM, err2 := readFile(keyFlag, keyFile)
	if err := errors.Join(err1, err2); err != nil {
		return tls.Certificate{}, err
	}
	pair, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("--%s %s and --%s %s: %w", certFlag, certFile, keyFlag, keyFile, err)
	}
	return pair, nil
}

func loadBundle(flag, file string) (*x509.CertPool, string, error) {
	content, err := readFile(flag, file)
	if err != nil {
		return nil, "", err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(content) {
		return nil, "", fmt.Errorf("--%s %s: holds no PEM certificate", flag, file)
	}
	return pool, string(content), nil
}
