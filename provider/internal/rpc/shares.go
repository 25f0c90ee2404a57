package rpc

import (
	"context"
	"net"

	"golang.org/x/sync/semaphore"
	"google.golang.org/grpc/peer"

	"bigfleet-providers/provider/internal/identity"
)

// shares counts calls by who sends them, to share out what there is. It is guarded
// by the flow's lock.
type shares struct {
	callers                    map[string]*flowCaller // with connections
	calls                      int
	activeCallers, activeConns int // with calls
}

// flowCaller is everything that one caller has.
type flowCaller struct {
	key   string
	conns int
	calls int
	wants int                 // requests that have a place, or wait for one
	first *semaphore.Weighted // of the connections that wait for a place
}

// callerKey names the caller behind a connection: the identity in its certificate
// or, without one, the address that it comes from.
func callerKey(ctx context.Context) string {
	if id, err := caller(ctx); err == nil && id.Role != identity.None {
		return id.URI
	}
	p, ok := peer.FromContext(ctx)
	if !ok || p.Addr == nil {
		return ""
	}
	host, _, err := net.SplitHostPort(p.Addr.String())
	if err != nil {
		return p.Addr.String() // no port, no host: a socket of this machine
	}
	return host
}

// join finds the caller of a new connection.
func (s *shares) join(key string) *flowCaller {
	c := s.callers[key]
	if c == nil {
		c = &flowCaller{key: key, first: semaphore.NewWeighted(1)}
		s.callers[key] = c
	}
	c.conns++
	return c
}

// leave forgets a caller with its last connection.
func (s *shares) leave(c *flowCaller) {
	if c.conns--; c.conns == 0 {
		delete(s.callers, c.key)
	}
}

// begin counts a call. When there are limit already, it counts one only where the
// caller, or at least the connection, has less than its share: whoever has few is
// let in, and there are three times the limit at most.
func (s *shares) begin(from *flowConn, limit int) bool {
	callers, conns := s.activeCallers, s.activeConns
	if from.caller.calls == 0 {
		callers++
	}
	if from.calls == 0 {
		conns++
	}
	if s.calls >= limit && from.caller.calls >= share(limit, callers) && from.calls >= share(limit, conns) {
		return false
	}
	s.activeCallers, s.activeConns = callers, conns
	s.calls++
	from.caller.calls++
	from.calls++
	return true
}

func (s *shares) end(from *flowConn) {
	s.calls--
	if from.caller.calls--; from.caller.calls == 0 {
		s.activeCallers--
	}
	if from.calls--; from.calls == 0 {
		s.activeConns--
	}
}

// share is what each of n gets.
func share(of, n int) int { return max(1, of/max(1, n)) }
