package poll

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"
)

// Explain adds to an error of Poll or Ack what an operator needs to find its
// cause: for a refused token and for TLS the clocks and the certificate's
// dates, since a wrong clock looks like a wrong key. now is the local clock,
// seen the last clock the provider showed (zero: none yet).
func Explain(err error, now, seen time.Time) error {
	if err == nil {
		return nil
	}
	if status, ok := errors.AsType[*StatusError](err); ok {
		if status.Code != http.StatusUnauthorized {
			return err
		}
		return fmt.Errorf("%w (the machine was deleted and this host is left over, the token is not this machine's, the provider does not know the machine, or its bootstrap secret changed; %s)",
			err, clocks(now, status.Date, status.NotBefore, status.NotAfter))
	}
	if _, ok := errors.AsType[*net.DNSError](err); ok {
		return fmt.Errorf("%w (no address for the endpoint yet: check the host's resolver)", err)
	}
	verify, ok := errors.AsType[*tls.CertificateVerificationError](err)
	if !ok {
		if errors.Is(err, http.ErrSchemeMismatch) {
			return fmt.Errorf("%w (the endpoint does not speak TLS: check its port, or a proxy between)", err)
		}
		return err
	}
	var from, to time.Time
	if len(verify.UnverifiedCertificates) > 0 {
		from, to = verify.UnverifiedCertificates[0].NotBefore, verify.UnverifiedCertificates[0].NotAfter
	}
	return fmt.Errorf("%w (%s; %s)", err, advice(verify.Err), clocks(now, seen, from, to))
}

// Class names the kind of failure, in words that stay the same while the
// failure repeats.
func Class(err error) string {
	var status *StatusError
	var dns *net.DNSError
	var verify *tls.CertificateVerificationError
	switch {
	case errors.As(err, &status):
		return fmt.Sprintf("status %d", status.Code)
	case errors.As(err, &dns):
		return "dns"
	case errors.As(err, &verify), errors.Is(err, http.ErrSchemeMismatch):
		return "tls"
	}
	return "network"
}

func advice(err error) string {
	var invalid x509.CertificateInvalidError
	var authority x509.UnknownAuthorityError
	var host x509.HostnameError
	switch {
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return "the certificate is not valid at the local time: set the clock, or renew the provider's certificate"
	case errors.As(err, &authority):
		return "the certificate is not signed by ca_pem: a rotated CA, or something between that ends TLS"
	case errors.As(err, &host):
		return "the certificate does not name the endpoint's host"
	}
	return "the provider's certificate is refused"
}

func clocks(now, server, from, to time.Time) string {
	parts := []string{"local clock " + stamp(now)}
	if !from.IsZero() {
		parts = append(parts, fmt.Sprintf("certificate valid from %s to %s", stamp(from), stamp(to)))
	}
	if server.IsZero() {
		parts = append(parts, "the provider's clock was not seen yet")
	} else {
		parts = append(parts, fmt.Sprintf("the provider's clock (Date) %s, difference %s", stamp(server), now.Sub(server).Round(time.Second)))
	}
	return strings.Join(parts, ", ")
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }
