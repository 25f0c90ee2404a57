package channel

import (
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
