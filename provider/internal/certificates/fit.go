package certificates

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
)

// minRSABits is the shortest RSA key that is served or trusted: NIST SP 800-57
// allows no shorter one since 2014.
const minRSABits = 2048

// fit refuses a set that no TLS 1.3 client could verify, or whose keys can be
// broken: it would be served without a fault and lock everybody out, or let
// somebody in.
func (m *Material) fit(s Source) error {
	var errs []error
	for i, c := range m.Chain {
		if err := strong(c); err != nil {
			errs = append(errs, fmt.Errorf("%s: certificate %d: %w", s.Cert, i+1, err))
		}
	}
	leaf := m.Chain[0]
	if key, ok := leaf.PublicKey.(*ecdsa.PublicKey); ok && key.Curve == elliptic.P224() {
		errs = append(errs, fmt.Errorf("%s: TLS 1.3 has no curve P-224; use P-256", s.Cert))
	}
	uses := leaf.ExtKeyUsage
	if (len(uses) > 0 || len(leaf.UnknownExtKeyUsage) > 0) && !slices.Contains(uses, x509.ExtKeyUsageServerAuth) && !slices.Contains(uses, x509.ExtKeyUsageAny) {
		errs = append(errs, fmt.Errorf("%s: its extended key usage does not allow servers, so no client would take it; is it a client's?", s.Cert))
	}
	if m.Bundle != nil && s.CA.Path != s.Cert.Path {
		for i, c := range m.Bundle.Certs {
			if err := strong(c); err != nil {
				errs = append(errs, fmt.Errorf("%s: certificate %d: %w", s.CA, i+1, err))
			}
		}
	}
	return errors.Join(errs...)
}

func strong(c *x509.Certificate) error {
	switch key := c.PublicKey.(type) {
	case *rsa.PublicKey:
		if n := key.N.BitLen(); n < minRSABits {
			return fmt.Errorf("its RSA key has %d bits, at least %d are needed", n, minRSABits)
		}
	case *ecdsa.PublicKey, ed25519.PublicKey:
	default:
		return fmt.Errorf("its key is of a kind (%s) that TLS 1.3 does not have", c.PublicKeyAlgorithm)
	}
	return nil
}
