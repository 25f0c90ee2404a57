package provider

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"

	"bigfleet-providers/cloudinit"
	"bigfleet-providers/provider/internal/certificates"
	"bigfleet-providers/shared/endpoint"
)

// The transport modes of the gRPC port, as logged under "security".
const (
	securityInsecure = "insecure"
	securityTLS      = "TLS"
	securityMTLS     = "mTLS"
)

// The listeners' names in logs and metrics of certificates.
const (
	grpcCertificate    = "grpc"
	channelCertificate = "channel"
)

// open reads the gRPC port's certificates: nil for plaintext. A pair that does
// not fit or a CA bundle without a certificate is an error, so that a mistake
// can never come up insecure.
func (t TLSConfig) open() (*certificates.Live, string, error) {
	if t.Cert == "" && t.Key == "" {
		return nil, securityInsecure, nil
	}
	live, err := certificates.Open(certificates.Source{
		Name: grpcCertificate,
		Cert: certificates.File{Flag: "tls-cert", Path: t.Cert},
		Key:  certificates.File{Flag: "tls-key", Path: t.Key},
		CA:   certificates.File{Flag: "tls-ca", Path: t.CA},
	})
	switch {
	case err != nil:
		return nil, "", err
	case t.CA == "":
		return live, securityTLS, nil
	default:
		return live, securityMTLS, nil
	}
}

// grpcTLS serves the gRPC port with whatever live holds at each handshake.
// Whether clients must show a certificate is fixed at start. Sessions are not
// resumed: a client would come back on the word of a CA that was taken away.
func grpcTLS(live *certificates.Live) *tls.Config {
	conf := &tls.Config{MinVersion: tls.VersionTLS13, NextProtos: []string{"h2"}, GetCertificate: live.Certificate, SessionTicketsDisabled: true}
	if live.Current().Bundle == nil {
		return conf
	}
	conf.ClientAuth = tls.RequireAndVerifyClientCert
	conf.ClientCAs = live.Current().Bundle.Pool
	fixed := conf.Clone()
	conf.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		now := fixed.Clone()
		m := live.Current() // one set for both, however soon it is replaced
		now.ClientCAs = m.Bundle.Pool
		now.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return &m.Pair, nil }
		return now, nil
	}
	return conf
}

// source is where the channel's certificate and what agents pin come from.
func (b BootstrapConfig) source() certificates.Source {
	src := certificates.Source{
		Name:   channelCertificate,
		Cert:   certificates.File{Flag: "bootstrap-tls-cert", Path: b.TLSCert},
		Key:    certificates.File{Flag: "bootstrap-tls-key", Path: b.TLSKey},
		CA:     certificates.File{Flag: "bootstrap-ca", Path: b.CA},
		Pinned: true,
	}
	if b.CA == "" || b.CAOptional && isNothing(b.CA) {
		src.CA = src.Cert
	}
	// An agent verifies the endpoint's host name against the pinned CA. Here is
	// the place to find out that it cannot succeed, not at the first boot.
	src.Check = func(m *certificates.Material) error {
		if err := b.verify(m, m.Bundle.Pool); err != nil {
			return fmt.Errorf("--bootstrap-tls-cert: agents could not verify it for --bootstrap-endpoint %s with the CA they pin (--%s): %w", b.Endpoint, src.CA.Flag, err)
		}
		return nil
	}
	return src
}

// isNothing tells whether a file is not there, or has nothing in it: some issuers
// put an empty ca.crt into a Secret.
func isNothing(path string) bool {
	info, err := os.Stat(path)
	return errors.Is(err, fs.ErrNotExist) || err == nil && info.Mode().IsRegular() && info.Size() == 0
}

// verify does what an agent does that pins roots.
func (b BootstrapConfig) verify(m *certificates.Material, roots *x509.CertPool) error {
	u, fault := endpoint.URL(b.Endpoint, "https")
	if fault != nil {
		return nil //nolint:nilerr // Validate reports it
	}
	_, err := m.Chain[0].Verify(x509.VerifyOptions{DNSName: u.Hostname(), Roots: roots, Intermediates: m.Intermediates()})
	return err
}

// openCertificates reads the channel's certificates. params is the user
// data that their CA must fit into whenever it is replaced.
func (b BootstrapConfig) openCertificates(params cloudinit.Params, log *slog.Logger) (*certificates.Live, error) {
	src := b.source()
	if b.CA != "" && src.CA == src.Cert {
		log.Warn("there is no CA file: new hosts pin the channel's certificate itself, which cannot be replaced while they exist; add the CA that signed it and restart", "bootstrap-ca", b.CA)
	}
	verifies := src.Check
	src.Check = func(m *certificates.Material) error {
		if err := verifies(m); err != nil {
			return err
		}
		p := params
		p.CAPEM = m.Bundle.PEM
		return cloudinit.Check(p)
	}
	src.Swapped = func(before, now *certificates.Material) {
		if err := b.verify(now, before.Bundle.Pool); err != nil {
			log.Error("hosts made before now pin a CA with which they cannot verify the channel's new certificate: they are locked out. "+
				"Serve a certificate of the former CA, and pin old and new together until the last such host is gone", "reason", err.Error())
		}
	}
	return certificates.Open(src)
}
