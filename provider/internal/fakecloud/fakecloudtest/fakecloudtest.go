// Package fakecloudtest has the vendor's SDK talk to a fake cloud over HTTP, set
// up as the provider sets it up, for tests of what is built on it. The connections
// are in memory, so that cloud, client and test can be in one synctest bubble: no
// test then waits, and no result depends on how fast the machine is.
package fakecloudtest

import (
	"context"
	"errors"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/scaleway/scaleway-sdk-go/scw"

	"bigfleet-providers/provider/internal/cloud/scaleway"
	"bigfleet-providers/provider/internal/fakecloud"
)

// Server serves a cloud over connections in memory.
type Server struct {
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

// Serve serves the cloud's handler, or what stands before it, until the test ends.
func Serve(t *testing.T, h http.Handler) *Server {
	t.Helper()
	s := &Server{conns: make(chan net.Conn), done: make(chan struct{})}
	srv := &http.Server{Handler: h, ReadHeaderTimeout: time.Minute}
	ended := make(chan error, 1)
	go func() { ended <- srv.Serve(s) }()
	t.Cleanup(func() {
		if err := srv.Close(); err != nil {
			t.Error(err)
		}
		if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
	return s
}

// Accept implements net.Listener.
func (s *Server) Accept() (net.Conn, error) {
	select {
	case conn := <-s.conns:
		return conn, nil
	case <-s.done:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (s *Server) Close() error {
	s.once.Do(func() { close(s.done) })
	return nil
}

// Addr implements net.Listener.
func (s *Server) Addr() net.Addr { return &net.UnixAddr{Name: "memory", Net: "unix"} }

func (s *Server) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	near, far := net.Pipe()
	select {
	case s.conns <- far:
		return near, nil
	case <-s.done:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Client returns a client with the key of the fake's own account. wrap, if not
// nil, returns a transport around the one it is given.
func (s *Server) Client(t *testing.T, zone string, wrap func(http.RoundTripper) http.RoundTripper) *scw.Client {
	t.Helper()
	direct := &http.Transport{DialContext: s.dial}
	t.Cleanup(direct.CloseIdleConnections)
	var transport http.RoundTripper = direct
	if wrap != nil {
		transport = wrap(direct)
	}
	client, err := scaleway.NewClient(scaleway.ClientConfig{
		AccessKey: fakecloud.DefaultAccessKey,
		SecretKey: fakecloud.DefaultSecretKey,
		ProjectID: fakecloud.DefaultProjectID,
		Zone:      zone,
		APIURL:    "http://api.example",
		Version:   "test",
		HTTP:      &http.Client{Transport: transport, Timeout: 5 * time.Second},
	})
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// LoseAnswer has the cloud carry out the call that changes something after n
// others, and hang up instead of answering. The result says whether it came to
// that.
func LoseAnswer(c *fakecloud.Cloud, n int) (lost func() bool) {
	var calls atomic.Int64
	c.Inject(fakecloud.Fault{
		Match: func(r fakecloud.Request) bool {
			if strings.HasPrefix(r.Route, http.MethodGet) {
				return false
			}
			calls.Add(1)
			return true
		},
		Skip: n, Commit: true, Hangup: true,
	})
	return func() bool { return calls.Load() > int64(n) }
}
