// Package certificates holds what the provider's TLS listeners show and trust:
// it reads certificate, key and CA files, judges them as a whole, follows them
// when they are replaced, and says when they end.
//
// A Source names the files of one listener. Open reads it once; the Live it
// returns hands out what is served now. A Keeper shows and announces the ends
// of all certificates and, if asked to, looks at the files again and again: a
// set that does not fit together is never served, the one before it stays.
package certificates

import (
	"bytes"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"bigfleet-providers/shared/pemfile"
)

// maxFileBytes bounds a file; the largest public CA bundles have a quarter of it.
const maxFileBytes = 1 << 20

// File is a PEM file that a flag names.
type File struct {
	Flag string // without dashes, for messages
	Path string // "" for none
}

func (f File) String() string { return "--" + f.Flag + " " + f.Path }

// Source is where the certificates of one listener come from.
type Source struct {
	// Name stands for the listener in logs and metrics, such as "grpc".
	Name string
	Cert File
	Key  File
	// CA is whom the listener trusts, or what its clients pin. It may be the same
	// file as Cert; then only the certificates in it are taken. Without a path
	// there is none.
	CA File
	// Pinned says that clients verify Cert with CA. Otherwise CA is for clients'
	// certificates, which are not known here.
	Pinned bool
	// Check judges a set beyond what the files say alone; nil for nothing more.
	Check func(*Material) error
	// Swapped is told after one set took the place of another; nil for nobody.
	Swapped func(before, now *Material)
}

// Material is one consistent set. It is not changed after it was made.
type Material struct {
	Pair   tls.Certificate // with its Leaf
	Chain  []*x509.Certificate
	Bundle *Bundle // nil without a CA

	digest [sha256.Size]byte // of the files
}

// Intermediates are the certificates between the listener's own and its CA.
func (m *Material) Intermediates() *x509.CertPool {
	pool := x509.NewCertPool()
	for _, c := range m.Chain[1:] {
		pool.AddCert(c)
	}
	return pool
}

// Bundle is a set of CA certificates.
type Bundle struct {
	Pool  *x509.CertPool
	Certs []*x509.Certificate
	// PEM holds the certificates again and nothing else of the file: it is given
	// away, and a file that holds a certificate may hold its key as well.
	PEM string
}

// contents are the files of a Source as they were at one look.
type contents struct {
	cert, key, ca []byte
	err           error
}

func (s Source) read() contents {
	var c contents
	var errs [3]error
	c.cert, errs[0] = s.Cert.read()
	c.key, errs[1] = s.Key.read()
	if s.CA.Path != "" && s.CA.Path != s.Cert.Path {
		c.ca, errs[2] = s.CA.read()
	} else if s.CA.Path != "" {
		c.ca = c.cert
	}
	c.err = errors.Join(errs[:]...)
	return c
}

func (f File) read() ([]byte, error) {
	in, err := os.Open(f.Path)
	if err != nil {
		return nil, fmt.Errorf("--%s: %w", f.Flag, err)
	}
	defer in.Close()
	content, err := io.ReadAll(io.LimitReader(in, maxFileBytes+1))
	if err != nil {
		return nil, fmt.Errorf("--%s: %w", f.Flag, err)
	}
	if len(content) > maxFileBytes {
		return nil, fmt.Errorf("%s: larger than %d bytes, which no certificate file is", f, maxFileBytes)
	}
	return content, nil
}

func (c contents) digest() [sha256.Size]byte {
	h := sha256.New()
	for _, part := range [][]byte{c.cert, c.key, c.ca} {
		fmt.Fprintf(h, "%d:", len(part))
		h.Write(part)
	}
	if c.err != nil {
		io.WriteString(h, c.err.Error()) //nolint:errcheck // a hash takes all
	}
	return [sha256.Size]byte(h.Sum(nil))
}

// parse makes the set of the files, or says everything that is wrong with them.
func (s Source) parse(c contents) (*Material, error) {
	if c.err != nil {
		return nil, c.err
	}
	m := &Material{digest: c.digest()}
	pair, err := pemfile.KeyPair(s.Cert.String(), s.Key.String(), c.cert, c.key)
	if err != nil {
		if s.CA.Path == s.Cert.Path {
			return nil, err // the bundle's faults would be the same ones
		}
	} else if m.Chain, err = x509.ParseCertificates(bytes.Join(pair.Certificate, nil)); err != nil {
		err = fmt.Errorf("%s: %w", s.Cert, err)
	}
	m.Pair = pair
	var caErr error
	if s.CA.Path != "" {
		m.Bundle, caErr = parseBundle(s.CA, c.ca, s.CA.Path == s.Cert.Path)
	}
	if err := errors.Join(err, caErr); err != nil {
		return nil, err
	}
	if err := m.fit(s); err != nil {
		return nil, err
	}
	if s.Check != nil {
		if err := s.Check(m); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// parseBundle reads a bundle's certificates. mixed says that it is a pair's file
// and may hold more.
func parseBundle(f File, content []byte, mixed bool) (*Bundle, error) {
	read := pemfile.Certificates
	if mixed {
		read = pemfile.CertificatesOfPair
	}
	certs, err := read(content)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", f, err)
	}
	b := &Bundle{Pool: x509.NewCertPool(), Certs: certs}
	var text strings.Builder
	for _, cert := range certs {
		b.Pool.AddCert(cert)
		text.Write(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert.Raw}))
	}
	b.PEM = text.String()
	return b, nil
}

// usable says whether a set can do its work at a time. A start does not ask
// this, since something is better than nothing; a running listener has better.
func (m *Material) usable(s Source, now time.Time) error {
	leaf := m.Chain[0]
	switch {
	case now.After(leaf.NotAfter):
		return fmt.Errorf("%s: ended on %s", s.Cert, leaf.NotAfter.UTC().Format(time.RFC3339))
	case now.Before(leaf.NotBefore):
		return fmt.Errorf("%s: is good only from %s on", s.Cert, leaf.NotBefore.UTC().Format(time.RFC3339))
	}
	if m.Bundle == nil {
		return nil
	}
	for _, c := range m.Bundle.Certs {
		if !now.After(c.NotAfter) {
			return nil
		}
	}
	return fmt.Errorf("%s: every certificate in it has ended", s.CA)
}
