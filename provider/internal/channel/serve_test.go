package channel

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"go.uber.org/goleak"

	"bigfleet-providers/provider/internal/telemetry"
	"bigfleet-providers/shared/command"
	"bigfleet-providers/shared/token"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// live is a harness that serves on a socket.
type live struct {
	*harness
	addr string
	pool *x509.CertPool
	stop func() error // stops serving and returns what Serve returned
}

func newLive(t *testing.T, change ...func(*Options)) *live {
	t.Helper()
	cert, pool := selfSigned(t)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := &live{harness: newHarness(t, change...), addr: ln.Addr().String(), pool: pool}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	var served error
	go func() {
		defer close(done)
		served = l.Serve(ctx, ln, &tls.Config{Certificates: []tls.Certificate{cert}})
	}()
	l.stop = func() error { cancel(); <-done; return served }
	t.Cleanup(func() { _ = l.stop() }) // a test that cares stopped it before
	return l
}

func selfSigned(t *testing.T) (tls.Certificate, *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(leaf)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, pool
}

// client offers HTTP/2, as agents do.
func (l *live) client() *http.Client {
	tr := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: l.pool}, ForceAttemptHTTP2: true}
	l.t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, Timeout: 30 * time.Second}
}

func (l *live) request(method, machineID, path, query string, body io.Reader) *http.Request {
	r, err := http.NewRequest(method, "https://"+l.addr+path+"?machine_id="+machineID+query, body)
	if err != nil {
		l.t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+token.Derive(l.secret, machineID, life))
	if body != nil {
		r.Header.Set("Content-Type", command.MediaType)
	}
	return r
}

// send returns the status and the body.
func (l *live) send(c *http.Client, r *http.Request) (*http.Response, string) {
	l.t.Helper()
	resp, err := c.Do(r)
	if err != nil {
		l.t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		l.t.Fatal(err)
	}
	return resp, string(body)
}

func eventually(t *testing.T, what string, cond func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); !cond(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not in time: %s", what)
		}
	}
}

func TestEveryAnswerIsDatedAndNotStored(t *testing.T) {
	l := newLive(t, func(o *Options) {
		o.Packages = fstest.MapFS{"agent.deb": {Data: []byte("deb")}}
		o.Limits.RequestBurst = 100
	})
	c := l.client()
	unauthorised := l.request("GET", "m-1", command.PathCommand, "", nil)
	unauthorised.Header.Del("Authorization")
	for _, r := range []struct {
		*http.Request
		status int
	}{
		{unauthorised, 401},
		{l.request("GET", "m-1", command.PathCommand, "", nil), 204},
		{l.request("GET", "m-1", command.PathCommand, "&wait=x", nil), 400},
		{l.request("PUT", "m-1", command.PathCommand, "", nil), 405},
		{l.request("POST", "m-1", command.PathAck, "", strings.NewReader(ackBody(t, okAck("op-1")))), 409},
		{l.request("POST", "m-1", command.PathAck, "", strings.NewReader("{}")), 400},
		{l.request("GET", "m-1", command.PathPackages+"/agent.deb", "", nil), 200},
		{l.request("GET", "m-1", command.PathPackages+"/none.deb", "", nil), 404},
		{l.request("GET", "m-1", "/", "", nil), 404},
	} {
		resp, body := l.send(c, r.Request)
		if resp.StatusCode != r.status || resp.Header.Get("Cache-Control") != "no-store" || resp.Header.Get("Date") == "" {
			t.Errorf("%s %s: %d %q, headers %v", r.Method, r.URL.Path, resp.StatusCode, body, resp.Header)
		}
		if resp.TLS.Version != tls.VersionTLS13 || resp.ProtoMajor != 1 {
			t.Errorf("spoke %s over TLS %x", resp.Proto, resp.TLS.Version)
		}
	}
}

func TestOldTLSIsRefused(t *testing.T) {
	l := newLive(t)
	conn, err := tls.Dial("tcp", l.addr, &tls.Config{RootCAs: l.pool, MaxVersion: tls.VersionTLS12})
	if err == nil {
		conn.Close()
		t.Fatal("TLS 1.2 was accepted")
	}
	if !strings.Contains(err.Error(), "protocol version") {
		t.Errorf("refused for another reason: %v", err)
	}
	eventually(t, "the failed handshake is logged", func() bool { return strings.Contains(l.log.String(), "a connection to the bootstrap channel failed") })
	resp, _ := l.send(l.client(), l.request("GET", "m-1", command.PathCommand, "", nil))
	if resp.StatusCode != http.StatusNoContent {
		t.Errorf("status %d after a failed handshake", resp.StatusCode)
	}
}

// A stop answers the parked polls of a fleet and lets a report through that is being recorded.
func TestStopReleasesParkedPolls(t *testing.T) {
	const fleet = 100
	l := newLive(t, everybody)
	c := l.client()
	l.send(c, l.request("GET", "m-0", command.PathCommand, "", nil)) // the connection is there before the crowd
	end := l.deliver(t.Context(), configure("m-ack", "op-1"))
	eventually(t, "the command is offered", func() bool { return l.pending("m-ack") })
	codes := make(chan int, fleet+1)
	send := func(r *http.Request) {
		resp, err := c.Do(r)
		if err != nil {
			t.Error(err)
			codes <- 0
			return
		}
		resp.Body.Close()
		if resp.StatusCode == http.StatusServiceUnavailable && resp.Header.Get("Retry-After") == "" {
			t.Error("no Retry-After")
		}
		codes <- resp.StatusCode
	}
	for i := range fleet {
		go send(l.request("GET", fmt.Sprintf("m-%d", i), command.PathCommand, "&wait=60", nil))
	}
	eventually(t, "all polls are parked", func() bool { return l.count(telemetry.MetricChannelParked.Name) == fleet })
	go send(l.request("POST", "m-ack", command.PathAck, "", strings.NewReader(ackBody(t, okAck("op-1")))))
	report := <-end

	begun := time.Now()
	stopped := make(chan error, 1)
	go func() { stopped <- l.stop() }()
	got := map[int]int{}
	for range fleet {
		got[<-codes]++
	}
	report.Confirm(nil)
	got[<-codes]++
	if err := <-stopped; err != nil {
		t.Error(err)
	}
	if got[503] != fleet || got[200] != 1 {
		t.Errorf("answers by status: %v, want %d of 503 and the report's 200", got, fleet)
	}
	if took := time.Since(begun); took > l.limits.ShutdownTimeout/2 {
		t.Errorf("the stop took %s", took)
	}
}

func (h *harness) pending(machineID string) bool {
	h.Server.mu.Lock()
	defer h.Server.mu.Unlock()
	b := h.mailboxes[machineID]
	return b != nil && b.offered != nil
}

func TestStopCutsOffWhatDoesNotEnd(t *testing.T) {
	l := newLive(t, func(o *Options) { o.Limits.ShutdownTimeout = 50 * time.Millisecond })
	end := l.deliver(t.Context(), configure("m-1", "op-1"))
	eventually(t, "the command is offered", func() bool { return l.pending("m-1") })
	hung := make(chan error, 1)
	c := l.client()
	go func() {
		resp, err := c.Do(l.request("POST", "m-1", command.PathAck, "", strings.NewReader(ackBody(t, okAck("op-1")))))
		if err == nil {
			resp.Body.Close()
		}
		hung <- err
	}()
	report := <-end // and never confirmed before the stop
	if err := l.stop(); err != nil {
		t.Errorf("a host that does not end its request made the stop a failure: %v", err)
	}
	if !strings.Contains(l.log.String(), "were cut off") {
		t.Error("nobody is told what was cut off")
	}
	if err := <-hung; err == nil {
		t.Error("the report was answered")
	}
	report.Confirm(nil)
}

func TestSlowSenderIsCutOff(t *testing.T) {
	l := newLive(t, func(o *Options) { o.Limits.BodyTimeout = 50 * time.Millisecond })
	body, w := io.Pipe()
	begun := time.Now()
	time.AfterFunc(10*time.Second, func() { w.Close() }) // lets a server that waits for ever fail the test
	slow := l.request("POST", "m-1", command.PathAck, "", body)
	slow.ContentLength = 100
	resp, err := l.client().Do(slow)
	if err == nil {
		resp.Body.Close()
		if resp.StatusCode != http.StatusRequestTimeout {
			t.Errorf("status %d, want 408", resp.StatusCode)
		}
	}
	if took := time.Since(begun); took > 5*time.Second {
		t.Errorf("a sender that sends nothing was held for %s", took)
	}
	w.Close()
	// Before it is authorised, too.
	conn, err := tls.Dial("tcp", l.addr, &tls.Config{RootCAs: l.pool})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n", command.PathAck)
	if err := conn.SetReadDeadline(time.Now().Add(5 * time.Second)); err != nil {
		t.Fatal(err)
	}
	rest, err := io.ReadAll(conn)
	if err != nil || !strings.Contains(string(rest), " 401 ") {
		t.Errorf("got %q, %v; want 401 and the end", rest, err)
	}
}

func TestSlowReaderIsCutOff(t *testing.T) {
	l := newLive(t, func(o *Options) { o.Limits.WriteTimeout = 50 * time.Millisecond })
	cmd := configure("m-1", "op-1")
	cmd.Blob = make([]byte, command.MaxBlobBytes)
	ctx, cancel := context.WithCancel(t.Context())
	end := l.deliver(ctx, cmd)
	eventually(t, "the command is offered", func() bool { return l.pending("m-1") })
	small := l.client()
	small.Transport.(*http.Transport).DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, network, addr)
		if err == nil {
			err = conn.(*net.TCPConn).SetReadBuffer(4096)
		}
		return conn, err
	}
	resp, err := small.Do(l.request("GET", "m-1", command.PathCommand, "", nil))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	eventually(t, "the writer gives up", func() bool { return strings.Contains(l.log.String(), "gave a host its command") })
	if _, err := io.ReadAll(resp.Body); err == nil {
		t.Error("a reader that stopped got the whole command")
	}
	cancel()
	<-end
}

// patience is what a call that is not slow does not need, not even on a machine
// that is busy.
const patience = 600 * time.Millisecond

// The write deadline of one answer must not hit the next one on the connection.
func TestLongPollOutlivesEarlierDeadlines(t *testing.T) {
	l := newLive(t, func(o *Options) {
		o.Limits.WriteTimeout = patience
		o.Limits.BodyTimeout = patience
	})
	c := l.client()
	l.send(c, l.request("POST", "m-1", command.PathAck, "", strings.NewReader(ackBody(t, okAck("op-1")))))
	resp, _ := l.send(c, l.request("GET", "m-1", command.PathCommand, "&wait=1", nil))
	if resp.StatusCode != http.StatusNoContent {
		t.Errorf("%s: status %d, want 204 at the end of the wait", resp.Proto, resp.StatusCode)
	}
}

// A record that takes longer than a body may take still answers the report.
func TestSlowRecordOutlivesTheBodyDeadline(t *testing.T) {
	l := newLive(t, func(o *Options) { o.Limits.BodyTimeout = patience })
	c := l.client()
	for i := range 2 { // the second one on a connection that was used
		id := fmt.Sprint("op-", i)
		end := l.deliver(t.Context(), drain("m-1", id))
		eventually(t, "the command is offered", func() bool { return l.pending("m-1") })
		timer := make(chan struct{})
		go func() {
			r := <-end
			time.AfterFunc(2*patience, func() { r.Confirm(nil); close(timer) })
		}()
		resp, body := l.send(c, l.request("POST", "m-1", command.PathAck, "", strings.NewReader(ackBody(t, okAck(id)))))
		if resp.StatusCode != http.StatusOK {
			t.Errorf("%s: status %d %s", resp.Proto, resp.StatusCode, body)
		}
		<-timer
	}
}

func TestServeErrors(t *testing.T) {
	h := newHarness(t)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := h.Serve(t.Context(), ln, &tls.Config{}); err == nil || !strings.Contains(err.Error(), "--bootstrap-tls-cert") {
		t.Errorf("got %v, want the flags that are missing", err)
	}
	if _, err := ln.Accept(); err == nil {
		t.Error("the listener stayed open")
	}
	if err := h.ListenAndServe(t.Context(), "127.0.0.1:-1", nil); err == nil {
		t.Error("an impossible address was accepted")
	}
	cert, _ := selfSigned(t)
	if err := h.Serve(t.Context(), ln, &tls.Config{Certificates: []tls.Certificate{cert}}); err == nil {
		t.Error("a closed listener served")
	}
}

func TestNewReportsEveryFault(t *testing.T) {
	_, err := New(Options{})
	for _, field := range []string{"Secret", "Life", "Settled", "Log"} {
		if err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("got %v, want %s named", err, field)
		}
	}
}

// Runs the whole of a delivery and its faults, then looks for what must not be
// in anything that we put out, at level debug.
func TestSecretsStayInside(t *testing.T) {
	l := newLive(t, func(o *Options) { o.Limits.RequestBurst = 100 })
	c := l.client()
	end := l.deliver(t.Context(), configure("m-1", "op-1"))
	eventually(t, "the command is offered", func() bool { return l.pending("m-1") })
	var out strings.Builder
	keep := func(r *http.Request) {
		resp, body := l.send(c, r)
		fmt.Fprintln(&out, resp.Header, body)
	}
	if _, body := l.send(c, l.request("GET", "m-1", command.PathCommand, "", nil)); !strings.Contains(body, base64.StdEncoding.EncodeToString([]byte(blobCanary))) {
		t.Fatal("the host did not get the blob; the rest of this test would prove nothing")
	}
	tok := token.Derive(l.secret, "m-1", life)
	wrongMachine := l.request("GET", "m-2", command.PathCommand, "", nil)
	wrongMachine.Header.Set("Authorization", "Bearer "+tok)
	keep(wrongMachine)
	keep(l.request("GET", "m-1", command.PathCommand, "&"+tok[:10]+"=1", nil))
	keep(l.request("POST", "m-1", command.PathAck, "", strings.NewReader(`{"command_id":"op-0","ok":true}`)))
	keep(l.request("GET", "m-1", "/"+tok[:10], "", nil))
	failed := okAck("op-1")
	failed.OK, failed.Error = false, blobCanary+tok
	words := make(chan string, 1)
	go func() { r := <-end; words <- r.Error; r.Confirm(errors.New("disk full")) }()
	resp, body := l.send(c, l.request("POST", "m-1", command.PathAck, "", strings.NewReader(ackBody(t, failed))))
	fmt.Fprintln(&out, resp.Header, body, <-words)
	raw, err := tls.Dial("tcp", l.addr, &tls.Config{RootCAs: l.pool})
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(raw, "GET / %s HTTP/9\r\nAuthorization: Bearer %s\r\n\r\n", tok, tok)
	if _, err := io.Copy(io.Discard, raw); err != nil {
		t.Logf("the malformed request ended with %v", err)
	}
	raw.Close()
	ctx, cancel := context.WithCancel(t.Context())
	end = l.deliver(ctx, configure("m-1", "op-2"))
	cancel()
	fmt.Fprintln(&out, (<-end).err)
	if err := l.stop(); err != nil {
		t.Error(err)
	}
	everything := out.String() + l.log.String() + l.metricsText()
	if !strings.Contains(everything, "disk full") || !strings.Contains(everything, telemetry.MetricChannelPolls.Name) {
		t.Error("the log or the metrics were not collected")
	}
	for name, canary := range map[string]string{
		"secret": secretCanary, "blob": blobCanary, "encoded blob": base64.StdEncoding.EncodeToString([]byte(blobCanary)),
		"token": tok, "start of the token": tok[:10],
	} {
		if strings.Contains(everything, canary) {
			t.Errorf("the %s got out", name)
		}
	}
}
