package provider

import (
	"net"
	"sync"
)

// listener hangs up on connections that have not said a word when it is closed.
// A graceful stop of gRPC or net/http closes its listener first and then waits
// for every connection to come through its handshake: without this, a load
// balancer's spare connection would hold the stop up until the handshake's time
// is over.
type listener struct {
	net.Listener

	mu     sync.Mutex
	closed bool
	silent map[*conn]struct{}
}

func newListener(ln net.Listener) *listener {
	return &listener{Listener: ln, silent: map[*conn]struct{}{}}
}

// Accept implements net.Listener.
func (l *listener) Accept() (net.Conn, error) {
	accepted, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c := &conn{Conn: accepted, from: l}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		_ = accepted.Close() // whoever reads from it learns of it
	}
	l.silent[c] = struct{}{}
	return c, nil
}

// Close implements net.Listener.
func (l *listener) Close() error {
	err := l.Listener.Close()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	for c := range l.silent {
		_ = c.Conn.Close() // nothing was said that an error could be about
	}
	return err
}

func (l *listener) forget(c *conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.silent, c)
}

// conn is a connection of a listener.
type conn struct {
	net.Conn
	from  *listener
	spoke sync.Once
}

// Read implements net.Conn.
func (c *conn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.spoke.Do(func() { c.from.forget(c) })
	return n, err
}

// Close implements net.Conn.
func (c *conn) Close() error {
	c.spoke.Do(func() { c.from.forget(c) })
	return c.Conn.Close()
}
