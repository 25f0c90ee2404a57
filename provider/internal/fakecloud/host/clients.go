package host

import (
	"context"
	"net"
	"net/http"
	"net/http/httptrace"
	"sync"

	"bigfleet-providers/agent"
)

// clients holds one HTTP client for each provider, so that the agents of
// thousands of servers share a few HTTP/2 connections.
type clients struct {
	dial    func(ctx context.Context, network, addr string) (net.Conn, error) // nil: the default
	mu      sync.Mutex
	clients map[clientKey]*http.Client
}

type clientKey struct{ endpoint, ca string }

func newClients(dial func(ctx context.Context, network, addr string) (net.Conn, error)) *clients {
	return &clients{dial: dial, clients: map[clientKey]*http.Client{}}
}

func (c *clients) get(endpoint, ca string) (*http.Client, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	key := clientKey{endpoint, ca}
	if client := c.clients[key]; client != nil {
		return client, nil
	}
	client, err := agent.NewHTTPClient(ca)
	if err != nil {
		return nil, err
	}
	if t, ok := client.Transport.(*http.Transport); ok && c.dial != nil {
		t.DialContext = c.dial
		t.Proxy = nil // a network of its own has no way out through a proxy
	}
	client.Transport = &oneDialer{next: client.Transport, dialing: make(chan struct{}, 1)}
	c.clients[key] = client
	return client, nil
}

func (c *clients) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, client := range c.clients {
		client.CloseIdleConnections()
	}
}

// oneDialer lets one request at a time through until there is a connection.
// Without it every request that finds none would dial for itself, and a
// thousand servers that boot together would make a thousand handshakes only to
// throw all but one away.
type oneDialer struct {
	next http.RoundTripper

	dialing chan struct{} // holds one entry while a request is let through
	mu      sync.Mutex
	warm    bool // a connection was there a moment ago
}

// RoundTrip implements http.RoundTripper.
func (d *oneDialer) RoundTrip(req *http.Request) (*http.Response, error) {
	if !d.isWarm() {
		select {
		case d.dialing <- struct{}{}:
		case <-req.Context().Done():
			return nil, req.Context().Err()
		}
		release := sync.OnceFunc(func() { <-d.dialing })
		defer release()
		trace := &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) {
			d.setWarm(true)
			release()
		}}
		req = req.WithContext(httptrace.WithClientTrace(req.Context(), trace))
	}
	resp, err := d.next.RoundTrip(req)
	if err != nil && req.Context().Err() == nil {
		d.setWarm(false)
	}
	return resp, err
}

// CloseIdleConnections is found by http.Client.CloseIdleConnections.
func (d *oneDialer) CloseIdleConnections() {
	if c, ok := d.next.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

func (d *oneDialer) isWarm() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.warm
}

func (d *oneDialer) setWarm(warm bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.warm = warm
}
