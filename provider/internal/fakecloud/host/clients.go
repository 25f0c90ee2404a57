package host

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"sync"

	"bigfleet-providers/agent"
)

// dialer is the network of the hosts.
type dialer func(ctx context.Context, network, addr string) (net.Conn, error)

// clients holds one HTTP client for each provider, so that the agents of
// thousands of servers share a few HTTP/2 connections.
type clients struct {
	dial dialer // nil: this machine's network

	mu      sync.Mutex
	clients map[clientKey]*http.Client
	pools   []*pool
}

type clientKey struct{ endpoint, ca string }

func newClients(dial dialer) *clients {
	return &clients{dial: dial, clients: map[clientKey]*http.Client{}}
}

// get returns the client for a provider.
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
	transport, ok := client.Transport.(*http.Transport)
	if !ok {
		return nil, fmt.Errorf("the agent's transport is a %T", client.Transport)
	}
	u, err := url.Parse(endpoint)
	if err != nil {
		return nil, errors.New("the endpoint is not a URL") // it may hold a password
	}
	if c.dial != nil {
		transport.DialContext = c.dial
		transport.Proxy = nil // a network of its own has no way out through a proxy
	}
	addr := u.Host
	if u.Port() == "" {
		addr = net.JoinHostPort(u.Hostname(), "443")
	}
	p := &pool{connect: func(ctx context.Context) (*http.ClientConn, error) {
		return transport.NewClientConn(ctx, "https", addr)
	}}
	client.Transport = p
	c.clients[key] = client
	c.pools = append(c.pools, p)
	return client, nil
}

// close ends all connections.
func (c *clients) close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	var errs []error
	for _, p := range c.pools {
		errs = append(errs, p.close())
	}
	return errors.Join(errs...)
}
