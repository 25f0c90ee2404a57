package host

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"sync"
)

// pool is an http.RoundTripper for one server. It makes one connection at a
// time, for all requests that wait for one, and a further one only when all are
// at the server's limit of streams.
//
// http.Transport dials for each request that finds no connection: a thousand
// hosts that boot together, or that lose their connection together, would make
// a thousand handshakes and throw nearly all of them away.
type pool struct {
	connect func(context.Context) (*http.ClientConn, error)

	mu      sync.Mutex // guards what follows
	conns   []*http.ClientConn
	attempt *attempt // to connect, nil when there is none
}

// attempt is over when done is closed; then err may be read.
type attempt struct {
	done chan struct{}
	err  error // nil also when only the request that made the attempt was given up
}

// RoundTrip implements http.RoundTripper.
func (p *pool) RoundTrip(req *http.Request) (*http.Response, error) {
	conn, err := p.reserve(req.Context())
	if err != nil {
		if req.Body != nil {
			err = errors.Join(err, req.Body.Close())
		}
		return nil, err
	}
	return conn.RoundTrip(req)
}

// reserve returns a connection with room for one request.
func (p *pool) reserve(ctx context.Context) (*http.ClientConn, error) {
	for {
		conn, a, ours := p.find()
		if conn != nil {
			return conn, nil
		}
		if ours {
			if err := p.extend(ctx, a); err != nil {
				return nil, err
			}
			continue
		}
		select {
		case <-a.done:
			if a.err != nil {
				return nil, a.err
			}
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// find returns a connection, or the attempt to wait for. When the attempt is
// ours the caller must carry it out.
func (p *pool) find() (conn *http.ClientConn, a *attempt, ours bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.conns = slices.DeleteFunc(p.conns, func(c *http.ClientConn) bool { return c.Err() != nil })
	for _, c := range p.conns {
		if c.Reserve() == nil {
			return c, nil, false
		}
	}
	if p.attempt == nil {
		p.attempt = &attempt{done: make(chan struct{})}
		return nil, p.attempt, true
	}
	return nil, p.attempt, false
}

// extend carries out an attempt.
func (p *pool) extend(ctx context.Context, a *attempt) error {
	conn, err := p.connect(ctx)
	p.mu.Lock()
	defer p.mu.Unlock()
	if err == nil {
		p.conns = append(p.conns, conn)
	} else if ctx.Err() == nil {
		a.err = err
	}
	p.attempt = nil
	close(a.done)
	return err
}

// close ends all connections. No request may be in flight.
func (p *pool) close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	var errs []error
	for _, c := range p.conns {
		if c.Err() == nil {
			errs = append(errs, c.Close())
		}
	}
	p.conns = nil
	return errors.Join(errs...)
}
