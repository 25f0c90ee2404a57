package channel

import (
	"bufio"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"bigfleet-providers/provider/internal/telemetry"
	"bigfleet-providers/shared/command"
	"bigfleet-providers/shared/token"
)

// TestHTTP2IsNotOffered: a client that speaks nothing else is refused in the
// handshake, one that would like to gets HTTP/1.1.
func TestHTTP2IsNotOffered(t *testing.T) {
	l := newLive(t)
	if conn, err := tls.Dial("tcp", l.addr, &tls.Config{RootCAs: l.pool, NextProtos: []string{"h2"}}); err == nil {
		conn.Close()
		t.Errorf("spoke %q", conn.ConnectionState().NegotiatedProtocol)
	}
	conn, err := tls.Dial("tcp", l.addr, &tls.Config{RootCAs: l.pool, NextProtos: []string{"h2", "http/1.1"}})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if got := conn.ConnectionState().NegotiatedProtocol; got != "http/1.1" {
		t.Errorf("spoke %q", got)
	}
	// Its preface over HTTP/1.1 leads nowhere either.
	if _, err := io.WriteString(conn, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	if got := readAll(t, conn); !strings.HasPrefix(got, "HTTP/1.1 4") && !strings.HasPrefix(got, "HTTP/1.1 505") {
		t.Errorf("the preface got %q", got)
	}
}

func readAll(t *testing.T, conn net.Conn) string {
	t.Helper()
	if err := conn.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(conn)
	var timeout net.Error
	if errors.As(err, &timeout) && timeout.Timeout() {
		t.Errorf("the connection stays open after %q", got)
	}
	return string(got)
}

// TestUnprovenConnectionsGiveWay: whoever has no token cannot hold the places of
// those who have one, at no stage of a connection.
func TestUnprovenConnectionsGiveWay(t *testing.T) {
	l := newLive(t, func(o *Options) {
		o.Limits.Unproven, o.Limits.UnprovenTime, o.Limits.Connections = 8, 50*time.Millisecond, 64
	})
	conf := &tls.Config{RootCAs: l.pool, ServerName: "127.0.0.1"}
	// A host with a token parks its poll.
	host, err := tls.Dial("tcp", l.addr, conf)
	if err != nil {
		t.Fatal(err)
	}
	defer host.Close()
	r := l.pollRequest("m-1", "")
	fmt.Fprintf(host, "GET %s?machine_id=m-1&wait=60 HTTP/1.1\r\nHost: x\r\nAuthorization: %s\r\n\r\n", command.PathCommand, r.Header.Get("Authorization"))
	eventually(t, "the parked poll", func() bool { return l.count(telemetry.MetricChannelParked.Name) == 1 })

	// Others come and stay: before the handshake, in mid-handshake, after it, in
	// mid-request. Far more than there are places.
	var open []net.Conn
	defer func() {
		for _, c := range open {
			c.Close()
		}
	}()
	for i := range 200 {
		c, err := net.Dial("tcp", l.addr)
		if err != nil {
			t.Fatal(err)
		}
		open = append(open, c)
		switch i % 4 {
		case 1:
			_, _ = c.Write([]byte{22, 3, 1, 2, 0, 1}) // the beginning of a handshake; it may have been cut off
		case 2, 3:
			secure := tls.Client(c, conf)
			if err := secure.Handshake(); err == nil && i%4 == 3 { // else it was cut off, as it may be
				fmt.Fprintf(secure, "GET %s?machine_id=m-1 HTTP/1.1\r\nHost: x\r\nX-Slow: ", command.PathCommand)
			}
		}
	}
	// Another host comes in at once all the same, and the first one was not cut off.
	resp, _ := l.send(l.client(), l.request("GET", "m-2", command.PathCommand, "", nil))
	if resp.StatusCode != http.StatusNoContent {
		t.Errorf("another host got %d", resp.StatusCode)
	}
	l.deliver(t.Context(), drain("m-1", "op-1"))
	answer := make([]byte, 12)
	if _, err := io.ReadFull(host, answer); err != nil || string(answer) != "HTTP/1.1 200" {
		t.Errorf("the parked poll got %q, %v", answer, err)
	}
	l.Forget("m-1")
	// A refused request gives its place back.
	c, err := tls.Dial("tcp", l.addr, conf)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	fmt.Fprint(c, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
	if got := readAll(t, c); !strings.HasPrefix(got, "HTTP/1.1 401") {
		t.Errorf("without a token: %q", got)
	}
}

// TestConnectionOutlivesParkedPolls: what a parked poll's connection is taken out
// of, it is put back into.
func TestConnectionOutlivesParkedPolls(t *testing.T) {
	l := newLive(t)
	conn, err := tls.Dial("tcp", l.addr, &tls.Config{RootCAs: l.pool})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	in := bufio.NewReader(conn)
	send := func(method, path, query, body string) *http.Response {
		t.Helper()
		r := l.request(method, "m-1", path, query, strings.NewReader(body))
		r.Header.Set("Content-Type", command.MediaType)
		if err := r.Write(conn); err != nil {
			t.Fatal(err)
		}
		resp, err := http.ReadResponse(in, r)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, resp.Body); err != nil {
			t.Fatal(err)
		}
		return resp
	}
	for _, c := range []struct {
		method, path, query, body string
		want                      int
	}{
		{"GET", command.PathCommand, "&wait=1", "", 204},
		{"GET", command.PathCommand, "&wait=1", "", 204},
		{"POST", command.PathAck, "", ackBody(t, okAck("op-1")), 409},
		{"GET", command.PathCommand, "", "", 204},
		{"GET", command.PathCommand, "&wait=1", "", 204},
		{"GET", "/else", "", "", 404},
	} {
		resp := send(c.method, c.path, c.query, c.body)
		if resp.StatusCode != c.want || resp.Header.Get("Date") == "" || resp.Header.Get("Cache-Control") != "no-store" || resp.Close {
			t.Errorf("%s %s%s: %d, %v, want %d", c.method, c.path, c.query, resp.StatusCode, resp.Header, c.want)
		}
	}
	// Whoever sends on while its poll is parked has its answer, and the end.
	fmt.Fprintf(conn, "GET %s?machine_id=m-1&wait=30 HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n\r\n", command.PathCommand, token.Derive(l.secret, "m-1", life))
	eventually(t, "the parked poll", func() bool { return l.count(telemetry.MetricChannelParked.Name) == 1 })
	fmt.Fprint(conn, "GET / HTTP/1.1\r\n")
	rest, err := io.ReadAll(in)
	if got := string(rest); err != nil || strings.Count(got, "HTTP/1.1 ") != 1 || !strings.HasPrefix(got, "HTTP/1.1 204") || !strings.Contains(got, "Connection: close") {
		t.Errorf("%q, %v", got, err)
	}
	// A host that hangs up gives its parked poll back at once.
	gone, err := tls.Dial("tcp", l.addr, &tls.Config{RootCAs: l.pool})
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(gone, "GET %s?machine_id=m-2&wait=60 HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n\r\n", command.PathCommand, token.Derive(l.secret, "m-2", life))
	eventually(t, "the parked poll", func() bool { return l.count(telemetry.MetricChannelParked.Name) == 1 })
	gone.Close()
	eventually(t, "the end of it", func() bool { return l.count(telemetry.MetricChannelParked.Name) == 0 })
}

// TestProbesAreNoWarnings: load balancers connect and hang up, every few seconds
// and for ever. What says a byte and fails is warned of.
func TestProbesAreNoWarnings(t *testing.T) {
	l := newLive(t)
	dial := func() *net.TCPConn {
		t.Helper()
		c, err := net.Dial("tcp", l.addr)
		if err != nil {
			t.Fatal(err)
		}
		return c.(*net.TCPConn)
	}
	const closed, warned = "level=DEBUG msg=\"a connection to the bootstrap channel ended before its first byte\"", "level=WARN"
	for how, hangUp := range map[string]func(*net.TCPConn) error{
		"FIN":  (*net.TCPConn).Close,
		"half": (*net.TCPConn).CloseWrite,
		"RST":  func(c *net.TCPConn) error { return errors.Join(c.SetLinger(0), c.Close()) },
	} {
		before := strings.Count(l.log.String(), closed)
		c := dial()
		if err := hangUp(c); err != nil {
			t.Fatal(err)
		}
		eventually(t, how+" is seen", func() bool {
			return strings.Count(l.log.String(), closed) > before || strings.Contains(l.log.String(), warned)
		})
		_ = c.Close() // closed already, perhaps
	}
	if text := l.log.String(); strings.Contains(text, warned) {
		t.Errorf("a probe is warned of:\n%s", text)
	}
	c := dial()
	if _, err := c.Write([]byte{22, 3}); err != nil {
		t.Fatal(err)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "a handshake that is cut off is warned of", func() bool { return strings.Contains(l.log.String(), warned) })
}
