package certificates

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"sync/atomic"
	"time"
)

// Live is the set that a listener serves now. Any goroutine may ask it; a Keeper
// alone replaces the set.
type Live struct {
	src     Source
	current atomic.Pointer[Material]

	// The Keeper's own.
	seen     [sha256.Size]byte // the files at the last look
	reported string            // the last failure that was told
}

// Open reads a source. Everything that is wrong with it is in the error.
func Open(src Source) (*Live, error) {
	m, err := src.parse(src.read())
	if err != nil {
		return nil, err
	}
	l := &Live{src: src, seen: m.digest}
	l.current.Store(m)
	return l, nil
}

// Fixed is a Live of a pair that comes from no file. bundle may be nil.
func Fixed(name string, pair tls.Certificate, bundle *Bundle) *Live {
	l := &Live{src: Source{Name: name}}
	l.current.Store(&Material{Pair: pair, Chain: []*x509.Certificate{pair.Leaf}, Bundle: bundle})
	return l
}

// Current is the set that is served now.
func (l *Live) Current() *Material { return l.current.Load() }

// Certificate is tls.Config's GetCertificate.
func (l *Live) Certificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	return &l.Current().Pair, nil
}

// outcome is what one look at the files came to.
type outcome int

const (
	unchanged outcome = iota // also: changed, but perhaps still being written
	swapped
	failed // and not yet told
)

// look reads the files and takes them over if they are a good set. Files are
// believed when two looks in a row find them the same: a writer may have them
// half done, and a cut bundle may look whole.
func (l *Live) look(now time.Time) (outcome, error) {
	c := l.src.read()
	digest := c.digest()
	before := l.Current()
	if digest == before.digest {
		l.seen, l.reported = digest, ""
		return unchanged, nil
	}
	if digest != l.seen {
		l.seen = digest
		return unchanged, nil
	}
	m, err := l.src.parse(c)
	if err == nil {
		err = m.usable(l.src, now)
	}
	if err != nil {
		// Judged again at each look, since time makes some sets good; told once.
		told := string(digest[:]) + err.Error()
		if told == l.reported {
			return unchanged, nil
		}
		l.reported = told
		return failed, err
	}
	l.reported = ""
	l.current.Store(m)
	if l.src.Swapped != nil {
		l.src.Swapped(before, m)
	}
	return swapped, nil
}
