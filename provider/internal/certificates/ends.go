package certificates

import (
	"cmp"
	"crypto/x509"
	"slices"
	"time"
)

// End says when a certificate, or a bundle of CAs, stops doing its work.
type End struct {
	Name    string // of the metric's label: the listener's, with -ca for its bundle
	Subject string // of the certificate whose end it is
	At      time.Time
}

// Ends are those of a listener's certificates. A chain ends with the first of its
// certificates, a bundle with the last CA that is still needed: one that has ended
// beside a later one, as after a rotation, takes nothing away.
func (l *Live) Ends() []End {
	m := l.Current()
	first := slices.MinFunc(m.Chain, byEnd)
	ends := []End{{l.src.Name, first.Subject.String(), first.NotAfter}}
	if m.Bundle != nil {
		last := slices.MaxFunc(m.needed(l.src), byEnd)
		ends = append(ends, End{l.src.Name + "-ca", last.Subject.String(), last.NotAfter})
	}
	return ends
}

func byEnd(a, b *x509.Certificate) int {
	return cmp.Or(a.NotAfter.Compare(b.NotAfter), cmp.Compare(a.Subject.String(), b.Subject.String()))
}

// needed are the CAs that clients verify the listener's certificate with. Where
// clients show certificates of their own, each CA may be some client's.
func (m *Material) needed(s Source) []*x509.Certificate {
	if !s.Pinned {
		return m.Bundle.Certs
	}
	between := m.Intermediates()
	var list []*x509.Certificate
	for _, ca := range m.Bundle.Certs {
		roots := x509.NewCertPool()
		roots.AddCert(ca)
		// While the last of them lives, whatever the day is now.
		day := slices.MinFunc(append([]*x509.Certificate{ca}, m.Chain...), byEnd).NotAfter
		if _, err := m.Chain[0].Verify(x509.VerifyOptions{Roots: roots, Intermediates: between, CurrentTime: day}); err == nil {
			list = append(list, ca)
		}
	}
	if len(list) == 0 {
		return m.Bundle.Certs
	}
	return list
}

// ending are the other CAs of a listener's bundle that end within Ahead of now. Clients
// with certificates of theirs are refused then, and the others are not.
func (l *Live) ending(now time.Time) []End {
	m := l.Current()
	if m.Bundle == nil || l.src.Pinned {
		return nil
	}
	last := slices.MaxFunc(m.Bundle.Certs, byEnd)
	var ends []End
	for _, ca := range m.Bundle.Certs {
		if left := ca.NotAfter.Sub(now); ca != last && left > 0 && left < Ahead {
			ends = append(ends, End{l.src.Name + "-ca", ca.Subject.String(), ca.NotAfter})
		}
	}
	return ends
}
