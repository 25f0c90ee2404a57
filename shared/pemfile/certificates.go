package pemfile

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"strings"
)

const certificate = "CERTIFICATE"

// Certificates reads a bundle: certificates and nothing else.
func Certificates(text []byte) ([]*x509.Certificate, error) {
	return certificates(text, func(kind string) error {
		return fmt.Errorf("is a %s; a bundle holds certificates and nothing else", kind)
	})
}

// CertificatesOfPair reads the certificates of a file that may hold their key,
// too.
func CertificatesOfPair(text []byte) ([]*x509.Certificate, error) {
	return certificates(text, func(kind string) error {
		// DH PARAMETERS are in files that other servers share.
		if strings.HasSuffix(kind, "PRIVATE KEY") || slices.Contains([]string{"EC PARAMETERS", "DH PARAMETERS"}, kind) {
			return nil
		}
		return fmt.Errorf("is a %s; want certificates, and perhaps their key", kind)
	})
}

// certificates asks other about blocks that hold none.
func certificates(text []byte, other func(kind string) error) ([]*x509.Certificate, error) {
	blocks, err := Blocks(text)
	if err != nil {
		return nil, err
	}
	var list []*x509.Certificate
	for i, b := range blocks {
		where := func(err error) error { return fmt.Errorf("block %d (line %d) %w", i+1, b.Line, err) }
		if b.Type != certificate {
			if err := other(b.Type); err != nil {
				return nil, where(err)
			}
			continue
		}
		cert, err := x509.ParseCertificate(b.Bytes)
		if err != nil {
			return nil, where(fmt.Errorf("is not a certificate: %w", err))
		}
		list = append(list, cert)
	}
	if len(list) == 0 {
		return nil, errors.New("holds no PEM certificate")
	}
	return list, nil
}

// Pool is the roots of a bundle.
func Pool(text []byte) (*x509.CertPool, error) {
	list, err := Certificates(text)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	for _, c := range list {
		pool.AddCert(c)
	}
	return pool, nil
}

// CheckKey says whether all of a key's file can be read. What the key is, and
// whether it fits, tls.X509KeyPair says.
func CheckKey(text []byte) error {
	blocks, err := Blocks(text)
	if err == nil && !slices.ContainsFunc(blocks, func(b Block) bool { return strings.HasSuffix(b.Type, "PRIVATE KEY") }) {
		err = errors.New("holds no PEM private key")
	}
	return err
}

// KeyPair is tls.X509KeyPair for files that are read whole. cert and key name
// the two in errors.
func KeyPair(cert, key string, certText, keyText []byte) (tls.Certificate, error) {
	_, certErr := CertificatesOfPair(certText)
	keyErr := CheckKey(keyText)
	if certErr != nil {
		certErr = fmt.Errorf("%s: %w", cert, certErr)
	}
	if keyErr != nil {
		keyErr = fmt.Errorf("%s: %w", key, keyErr)
	}
	if err := errors.Join(certErr, keyErr); err != nil {
		return tls.Certificate{}, err
	}
	pair, err := tls.X509KeyPair(certText, keyText)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("%s and %s: %w", cert, key, err)
	}
	return pair, nil
}
