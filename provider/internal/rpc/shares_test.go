package rpc

import (
	"net"
	"testing"

	"google.golang.org/grpc/peer"
	"pgregory.net/rapid"
)

// TestCallerIsAnAddress: without a certificate the address counts, not the port.
func TestCallerIsAnAddress(t *testing.T) {
	t.Parallel()
	key := func(addr net.Addr) string { return callerKey(peer.NewContext(t.Context(), &peer.Peer{Addr: addr})) }
	a, b := &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1), Port: 1}, &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1), Port: 2}
	other := &net.TCPAddr{IP: net.IPv6loopback, Port: 1}
	if key(a) != key(b) || key(a) == key(other) || key(other) != "::1" || callerKey(t.Context()) != "" {
		t.Errorf("callers %q, %q, %q", key(a), key(b), key(other))
	}
}

// TestShares: a connection without calls always gets one, a caller with less than
// its share too, and all of them together are bounded.
func TestShares(t *testing.T) {
	t.Parallel()
	const limit = 12
	rapid.Check(t, func(t *rapid.T) {
		s := shares{callers: map[string]*flowCaller{}}
		var conns []*flowConn
		var calls []*flowConn
		t.Repeat(map[string]func(*rapid.T){
			"join": func(t *rapid.T) {
				if len(conns) < limit {
					conns = append(conns, &flowConn{caller: s.join(rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "caller"))})
				}
			},
			"begin": func(t *rapid.T) {
				if len(conns) == 0 {
					t.Skip()
				}
				c := rapid.SampledFrom(conns).Draw(t, "conn")
				had, total := c.calls, s.calls
				began := s.begin(c, limit)
				if began {
					calls = append(calls, c)
				}
				if !began && (had == 0 || total < limit) {
					t.Fatalf("of %d calls a connection with %d got no more", total, had)
				}
			},
			"end": func(t *rapid.T) {
				if len(calls) == 0 {
					t.Skip()
				}
				i := rapid.IntRange(0, len(calls)-1).Draw(t, "call")
				s.end(calls[i])
				calls = append(calls[:i], calls[i+1:]...)
			},
			"": func(t *rapid.T) {
				if s.calls != len(calls) || s.calls > 3*limit {
					t.Fatalf("%d calls counted, there are %d, the limit is %d", s.calls, len(calls), limit)
				}
				active, callers := map[*flowConn]bool{}, map[*flowCaller]bool{}
				for _, c := range calls {
					active[c], callers[c.caller] = true, true
				}
				if s.activeConns != len(active) || s.activeCallers != len(callers) {
					t.Fatalf("%d connections and %d callers with calls, want %d and %d", s.activeConns, s.activeCallers, len(active), len(callers))
				}
			},
		})
	})
}
