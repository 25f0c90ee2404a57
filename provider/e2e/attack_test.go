package e2e

import (
	"bytes"
	"crypto/tls"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"
)

const attackSecret = "canary-attack-secret-0123456789abcdef"

// target is a provider whose channel the test attacks, without agents of its
// own.
type target struct {
	*provider
	t    *testing.T
	ca   *authority
	addr string // of the channel
	ids  []string
	// lives are the operation ids of the machines' Creates.
	lives map[string]string
}

// channelArgs are the flags of a provider that serves the channel with a
// certificate of the authority.
func channelArgs(ca *authority, more ...string) []string {
	cert, key := ca.pair("channel", nil)
	return append([]string{
		"--use-fake-backend", "--fake-hosts=none", "--provider=attacked", "--seed-count=16",
		"--bootstrap-addr=127.0.0.1:0", "--bootstrap-endpoint=https://localhost:9443", "--bootstrap-tls-cert=" + cert,
		"--bootstrap-tls-key=" + key, "--bootstrap-ca=" + ca.pem, "--agent-install=image",
	}, more...)
}

func newTarget(t *testing.T, ca *authority, secrets []string, args ...string) *target {
	t.Helper()
	a := &target{provider: startProvider(t, environment(secrets...), nil, args...), t: t, ca: ca, lives: map[string]string{}}
	a.addr = strings.Replace(a.line(`bootstrap channel.*listen=(\S+)`)[1], "127.0.0.1", "localhost", 1)
	for _, m := range a.list().GetMachines() {
		a.ids = append(a.ids, m.GetId())
	}
	if len(a.ids) != 16 {
		t.Fatalf("%d machines, want 16", len(a.ids))
	}
	return a
}

func (a *target) conn(t *testing.T) *tls.Conn {
	t.Helper()
	conf := a.ca.client()
	conf.ServerName = "localhost"
	c, err := tls.Dial("tcp", a.addr, conf)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// raw sends bytes on a connection of their own and returns all that comes back
// until the provider closes it.
func (a *target) raw(t *testing.T, request string) string {
	t.Helper()
	c := a.conn(t)
	if err := c.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(c, request); err != nil {
		t.Logf("not all of it was taken: %v", err)
	}
	answer, err := io.ReadAll(c)
	if timeout, ok := err.(net.Error); ok && timeout.Timeout() { //nolint:errorlint // it comes as it is
		t.Errorf("the connection stays open after %q", answer)
	}
	return string(answer)
}

// ask sends one request with headers and returns status, headers and body.
func (a *target) ask(t *testing.T, method, path, id string, header http.Header, body []byte) (int, http.Header, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, "https://"+a.addr+path+"?machine_id="+url.QueryEscape(id), bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header = header.Clone()
	client := a.ca.trusting(0)
	defer client.CloseIdleConnections()
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	content, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, resp.Header, string(content)
}

// token is the machine's in its present life.
func (a *target) token(secret, id string) string { return channelToken(secret, id, a.lives[id]) }

func (a *target) bearer(secret, id string) http.Header {
	return http.Header{"Authorization": {"Bearer " + a.token(secret, id)}}
}

// begin has a machine created, as far as that goes without a host.
func (a *target) begin(t *testing.T, secret, id string) {
	t.Helper()
	a.lives[id] = a.must("Create", id, token{}, unspecified)
	await(t, "the life of "+id, func() bool {
		code, _, _ := a.ask(t, http.MethodPut, "/v1/command", id, a.bearer(secret, id), nil) // no contact
		return code == http.StatusMethodNotAllowed
	})
}

// TestChannelUnderAttack sends the built provider what no agent would.
func TestChannelUnderAttack(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t)
	a := newTarget(t, ca, []string{"BIGFLEET_BOOTSTRAP_SECRET=" + attackSecret}, channelArgs(ca)...)
	for _, id := range a.ids[:6] {
		a.begin(t, attackSecret, id)
	}
	good := a.token(attackSecret, a.ids[0])
	auth := "Host: localhost\r\nAuthorization: Bearer " + good + "\r\n"
	poll := "GET /v1/command?machine_id=" + a.ids[0] + " HTTP/1.1\r\n"
	ack := "POST /v1/ack?machine_id=" + a.ids[0] + " HTTP/1.1\r\n"

	t.Run("every refusal is the same", func(t *testing.T) {
		var first string
		for name, c := range map[string]struct {
			id     string
			values []string
		}{
			"no token":          {a.ids[0], nil},
			"empty":             {a.ids[0], []string{"Bearer "}},
			"another scheme":    {a.ids[0], []string{"Basic " + good}},
			"twice":             {a.ids[0], []string{"Bearer " + good, "Bearer " + good}},
			"another machine's": {a.ids[0], []string{"Bearer " + a.token(attackSecret, a.ids[1])}},
			"another secret's":  {a.ids[0], []string{"Bearer " + a.token("another secret of enough bytes to do", a.ids[0])}},
			"truncated":         {a.ids[0], []string{"Bearer " + good[:40]}},
			"with more":         {a.ids[0], []string{"Bearer " + good + "AAAA"}},
			"oversized":         {a.ids[0], []string{"Bearer " + strings.Repeat("A", 8000)}},
			"no base64":         {a.ids[0], []string{"Bearer " + strings.Repeat("!", 44)}},
			"another life's":    {a.ids[0], []string{"Bearer " + channelToken(attackSecret, a.ids[0], a.lives[a.ids[1]])}},
			"no host":           {a.ids[9], []string{"Bearer " + a.token(attackSecret, a.ids[9])}},
			"no host, plain":    {a.ids[9], []string{"Bearer " + plainToken(attackSecret, a.ids[9])}},
			"unknown machine":   {"nobody", []string{"Bearer " + a.token(attackSecret, "nobody")}},
			"no machine":        {"", []string{"Bearer " + a.token(attackSecret, "")}},
			"long machine":      {strings.Repeat("m", 300), []string{"Bearer " + good}},
		} {
			for _, path := range []string{"/v1/command", "/v1/ack", "/v1/packages/x", "/metrics", "/"} {
				header := http.Header{}
				if c.values != nil {
					header["Authorization"] = c.values
				}
				code, headers, body := a.ask(t, http.MethodGet, path, c.id, header, nil)
				headers.Del("Date")
				got := fmt.Sprint(code, headers, body)
				if first == "" {
					first = got
				}
				if code != http.StatusUnauthorized || got != first {
					t.Errorf("%s at %s: %s; another refusal was %s", name, path, got, first)
				}
			}
		}
	})

	t.Run("any alphabet of base64", func(t *testing.T) {
		sum, err := base64.StdEncoding.DecodeString(a.token(attackSecret, a.ids[1]))
		if err != nil {
			t.Fatal(err)
		}
		for name, enc := range map[string]*base64.Encoding{"standard": base64.StdEncoding, "raw": base64.RawStdEncoding, "URL": base64.URLEncoding, "raw URL": base64.RawURLEncoding} {
			code, _, body := a.ask(t, http.MethodGet, "/v1/command", a.ids[1], http.Header{"Authorization": {"bearer " + enc.EncodeToString(sum)}}, nil)
			if code != http.StatusNoContent {
				t.Errorf("%s: %d %s", name, code, body)
			}
		}
	})

	t.Run("one request is one request", func(t *testing.T) {
		// What is smuggled is a poll with a right token: it must not be answered.
		inner := "GET /v1/command?machine_id=" + a.ids[2] + " HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer " + a.token(attackSecret, a.ids[2]) + "\r\n\r\n"
		length := fmt.Sprintf("Content-Length: %d\r\n", len(inner))
		json := "Content-Type: application/json\r\n"
		for name, request := range map[string]string{
			"two lengths":                    ack + auth + json + "Content-Length: 0\r\n" + length + "\r\n" + inner,
			"two lengths, the other way":     ack + auth + json + length + "Content-Length: 0\r\n\r\n" + inner,
			"a list of lengths":              ack + auth + json + fmt.Sprintf("Content-Length: 0, %d\r\n\r\n", len(inner)) + inner,
			"length with a sign":             ack + auth + json + "Content-Length: +0\r\n\r\n" + inner,
			"negative length":                ack + auth + json + "Content-Length: -1\r\n\r\n" + inner,
			"length in hex":                  ack + auth + json + "Content-Length: 0x0\r\n\r\n" + inner,
			"chunked and a length":           ack + auth + json + "Transfer-Encoding: chunked\r\n" + length + "\r\n0\r\n\r\n" + inner,
			"a length and chunked":           ack + auth + json + length + "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + inner,
			"chunked":                        ack + auth + json + "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + inner,
			"chunked poll":                   poll + auth + "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + inner,
			"chunked twice":                  ack + auth + json + "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + inner,
			"chunked and identity":           ack + auth + json + "Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n" + inner,
			"another coding":                 ack + auth + json + "Transfer-Encoding: xchunked\r\n" + length + "\r\n" + inner,
			"a space before the colon":       ack + auth + json + "Transfer-Encoding : chunked\r\n" + length + "\r\n" + inner,
			"a tab before the colon":         ack + auth + json + "Content-Length\t: 0\r\n\r\n" + inner,
			"a bare CR in a header":          ack + auth + json + "X: a\rContent-Length: 0\r\n\r\n" + inner,
			"a bare CR for the end":          ack + auth + json + "Content-Length: 0\r\r" + inner,
			"a folded header":                ack + auth + json + "X: a\r\n Content-Length: 0\r\n" + "Content-Length\r\n : 0\r\n\r\n" + inner,
			"a header without a colon":       ack + auth + json + "Content-Length\r\n\r\n" + inner,
			"a NUL in a header":              poll + auth + "X: a\x00b\r\n\r\n" + inner,
			"a NUL in a name":                poll + auth + "X\x00: a\r\n\r\n" + inner,
			"no host":                        poll + "Authorization: Bearer " + good + "\r\n\r\n" + inner,
			"two hosts":                      poll + auth + "Host: other\r\n\r\n" + inner,
			"a space in the target":          "GET /v1/command?machine_id= " + a.ids[0] + " HTTP/1.1\r\n" + auth + "\r\n" + inner,
			"no version":                     "GET /v1/command?machine_id=" + a.ids[0] + "\r\n" + auth + "\r\n" + inner,
			"version 1.2":                    "GET /v1/command HTTP/1.2x\r\n" + auth + "\r\n" + inner,
			"HTTP/2 in clear":                "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + inner,
			"an upgrade to HTTP/2":           poll + "Host: localhost\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQCAAAAAAIAAAAA\r\nConnection: close\r\n\r\n",
			"a large header":                 poll + auth + "X: " + strings.Repeat("x", 64<<10) + "\r\n\r\n" + inner,
			"many headers":                   poll + auth + strings.Repeat("X: x\r\n", 10_000) + "\r\n" + inner,
			"a long target":                  "GET /" + strings.Repeat("x", 64<<10) + " HTTP/1.1\r\n" + auth + "\r\n" + inner,
			"a body over the limit":          ack + auth + json + "Content-Length: 65537\r\n\r\n" + strings.Repeat(" ", 65_537) + inner,
			"a length that never comes":      ack + auth + json + "Content-Length: 9999999999\r\n\r\n" + inner,
			"a length of no number at all":   ack + auth + json + "Content-Length: 99999999999999999999999\r\n\r\n" + inner,
			"not HTTP":                       "\x16\x03\x01\x00\xff" + inner,
			"an unauthorised chunked report": ack + "Host: localhost\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + inner,
		} {
			answer := a.raw(t, request)
			if got := strings.Count(answer, "HTTP/1.1 "); got != 1 || !strings.HasPrefix(answer, "HTTP/1.1 4") && !strings.HasPrefix(answer, "HTTP/1.1 5") {
				t.Errorf("%s: %d answers, want one refusal and the end: %.300q", name, got, answer)
			}
		}
	})

	t.Run("paths and methods", func(t *testing.T) {
		for _, c := range []struct {
			method, path string
			want         int
		}{
			{http.MethodGet, "/", 404}, {http.MethodGet, "//v1/command", 404}, {http.MethodGet, "/v1/command/", 404},
			{http.MethodGet, "/v1/../v1/command", 404}, {http.MethodGet, "/v1/%63ommand/x", 404}, {http.MethodGet, "/debug/pprof/", 404},
			{http.MethodGet, "/v1/packages/", 404}, {http.MethodGet, "/v1/packages/..%2f..%2fetc%2fpasswd", 404},
			{http.MethodPost, "/v1/command", 405}, {http.MethodHead, "/v1/command", 405}, {http.MethodOptions, "/v1/command", 405},
			{http.MethodTrace, "/v1/command", 405}, {http.MethodDelete, "/v1/ack", 405}, {"BREW", "/v1/ack", 405}, {http.MethodGet, "/v1/ack", 405},
		} {
			time.Sleep(200 * time.Millisecond) // the machine's own rate
			answer := a.raw(t, c.method+" "+c.path+"?machine_id="+a.ids[3]+" HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nAuthorization: Bearer "+a.token(attackSecret, a.ids[3])+"\r\n\r\n")
			if !strings.HasPrefix(answer, fmt.Sprint("HTTP/1.1 ", c.want)) || !strings.Contains(answer, "no-store") {
				t.Errorf("%s %s: %.200q, want %d", c.method, c.path, answer, c.want)
			}
		}
	})

	t.Run("who dawdles is cut off", func(t *testing.T) {
		var wg sync.WaitGroup
		for name, c := range map[string]struct {
			secure bool
			begin  string
			then   string // a byte at a time, again and again
		}{
			"no handshake":         {},
			"half a handshake":     {begin: "\x16\x03\x01\x02\x00\x01"},
			"no request":           {secure: true},
			"a header by the byte": {secure: true, begin: poll + auth + "X: ", then: "x"},
			"a body by the byte":   {secure: true, begin: ack + auth + "Content-Type: application/json\r\nContent-Length: 60000\r\n\r\n", then: " "},
		} {
			wg.Go(func() {
				raw, err := net.Dial("tcp", strings.Replace(a.addr, "localhost", "127.0.0.1", 1))
				if err != nil {
					t.Error(err)
					return
				}
				defer raw.Close()
				conn := raw
				if c.secure {
					conf := ca.client()
					conf.ServerName = "localhost"
					conn = tls.Client(raw, conf)
				}
				began := time.Now()
				ended := make(chan struct{})
				go func() {
					defer close(ended)
					_, _ = io.Copy(io.Discard, conn) // to the end, whatever it is
				}()
				if c.begin != "" {
					_, _ = io.WriteString(conn, c.begin) // it may be cut off already
				} else if secure, ok := conn.(*tls.Conn); ok {
					_ = secure.Handshake() // the same
				}
				for {
					select {
					case <-ended:
						if took := time.Since(began); took > 30*time.Second {
							t.Errorf("%s: held for %s", name, took)
						}
						return
					case <-time.After(500 * time.Millisecond):
						if time.Since(began) > time.Minute {
							t.Errorf("%s: held for a minute", name)
							return
						}
						if c.then != "" {
							_, _ = io.WriteString(conn, c.then)
						}
					}
				}
			})
		}
		wg.Wait()
	})

	t.Run("a flood does not reach the neighbours", func(t *testing.T) { a.flood(t) })
	t.Run("refusals take the same time", func(t *testing.T) { a.timing(t) })

	if log := a.text(); strings.Contains(log, good) || strings.Contains(log, attackSecret) || strings.Contains(log, "panic") {
		t.Error("the log holds a secret, or a panic")
	}
}
