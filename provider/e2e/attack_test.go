package e2e

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/base64"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	pb "bigfleet-providers/proto/bigfleet/v1alpha1"
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

// flood measures a host's polls while another one, and strangers, send all that
// they can.
func (a *target) flood(t *testing.T) {
	victim, attacker := a.ids[4], a.ids[5]
	client := a.ca.trusting(0)
	defer client.CloseIdleConnections()
	polls := func(n int) (took []time.Duration) {
		for range n {
			time.Sleep(250 * time.Millisecond) // within its rate
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+a.addr+"/v1/command?machine_id="+victim, nil)
			if err != nil {
				t.Fatal(err)
			}
			req.Header = a.bearer(attackSecret, victim)
			began := time.Now()
			resp, err := client.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			took = append(took, time.Since(began))
			if resp.StatusCode != http.StatusNoContent {
				t.Errorf("the neighbour's poll got %d", resp.StatusCode)
			}
		}
		slices.Sort(took)
		return took
	}
	quiet := polls(12)
	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	counts := make([]map[int]int, 8)
	for i := range counts {
		counts[i] = map[int]int{}
		wg.Go(func() {
			own := a.ca.trusting(0)
			defer own.CloseIdleConnections()
			for ctx.Err() == nil {
				req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+a.addr+"/v1/command?machine_id="+attacker+"&wait=60", nil)
				if err != nil {
					return
				}
				if i%4 != 0 { // the others have no token: a handshake for each request
					req.Header = a.bearer(attackSecret, attacker)
				}
				short, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
				resp, err := own.Do(req.WithContext(short))
				if err == nil {
					resp.Body.Close()
					counts[i][resp.StatusCode]++
				}
				cancel()
			}
		})
	}
	flooded := polls(12)
	stop()
	wg.Wait()
	all := map[int]int{}
	for _, c := range counts {
		for code, n := range c {
			all[code] += n
		}
	}
	t.Logf("the neighbour's polls took %s (median) and %s (longest), in the flood %s and %s; the flood got %v",
		quiet[len(quiet)/2], quiet[len(quiet)-1], flooded[len(flooded)/2], flooded[len(flooded)-1], all)
	if all[http.StatusTooManyRequests] < 10 || all[http.StatusUnauthorized] < 10 {
		t.Errorf("the flood got %v: it was none", all)
	}
	// The flood costs processor, which both ends of this test share; what must not
	// be is a queue behind it.
	if longest := flooded[len(flooded)-1]; longest > 5*time.Second {
		t.Errorf("a neighbour's poll took %s during the flood", longest)
	}
}

// timing compares how long the refusals of an unknown machine, of one without a host
// and of a wrong token take.
func (a *target) timing(t *testing.T) {
	sample := func(id, bearer string) time.Duration {
		c := a.conn(t) // with its handshake done: a refusal ends the connection
		defer c.Close()
		request := "GET /v1/command?machine_id=" + id + " HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer " + bearer + "\r\n\r\n"
		began := time.Now()
		if _, err := io.WriteString(c, request); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Read(make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
		return time.Since(began)
	}
	wrong := a.token("another secret of enough bytes to do", a.ids[0])
	unknown := strings.Repeat("x", len(a.ids[0]))
	classes := []struct{ id, bearer string }{{unknown, a.token(attackSecret, unknown)}, {a.ids[0], wrong}, {a.ids[9], plainToken(attackSecret, a.ids[9])}}
	took := make([][]time.Duration, len(classes))
	for range 400 {
		// Interleaved, in random order: what else the machine does meets both alike.
		for _, i := range rand.Perm(len(classes)) {
			took[i] = append(took[i], sample(classes[i].id, classes[i].bearer))
		}
	}
	for i, what := range []string{"an unknown machine", "", "one without a host"} {
		share := longer(took[i], took[1])
		t.Logf("%s takes longer than a wrong token in %.1f %% of pairs", what, 100*share)
		if what != "" && !alike(share) {
			t.Errorf("%s takes longer than a wrong token in %.1f %% of pairs: the two can be told apart", what, 100*share)
		}
	}
	// The same samples, one of them slower by a quarter of its time, are not alike:
	// the test would have seen it.
	slower := slices.Clone(took[1])
	for i := range slower {
		slower[i] += slower[i] / 4
	}
	if control := longer(slower, took[0]); alike(control) {
		t.Logf("this machine is too busy to tell a quarter more: %.1f %%", 100*control)
	}
}

// longer is the share of pairs in which one of a is longer than one of b, the
// statistic of Mann and Whitney: half of them when both have one distribution,
// whatever its shape and its outliers.
func longer(a, b []time.Duration) float64 {
	b = slices.Sorted(slices.Values(b))
	sum := 0.0
	for _, x := range a {
		below, _ := slices.BinarySearch(b, x)
		upto, _ := slices.BinarySearch(b, x+1)
		sum += float64(below) + float64(upto-below)/2
	}
	return sum / float64(len(a)*len(b))
}

// alike allows five standard deviations of the share for 400 samples each.
func alike(share float64) bool { return share > 0.4 && share < 0.6 }

// TestTimingComparison: the comparison tells what differs from what does not.
func TestTimingComparison(t *testing.T) {
	t.Parallel()
	draw := func(shift time.Duration) []time.Duration {
		took := make([]time.Duration, 400)
		for i := range took {
			took[i] = shift + 100*time.Microsecond + time.Duration(rand.ExpFloat64()*float64(50*time.Microsecond))
			if rand.IntN(20) == 0 {
				took[i] += time.Duration(rand.IntN(20)) * time.Millisecond // the machine was busy
			}
		}
		return took
	}
	if share := longer(draw(0), draw(0)); !alike(share) {
		t.Errorf("of the same distribution: %.3f", share)
	}
	if share := longer(draw(25*time.Microsecond), draw(0)); alike(share) {
		t.Errorf("slower by a quarter: %.3f", share)
	}
}

// TestTokenIsTiedToItsHost: over restarts of the provider, until an operator or a
// new server says otherwise; and through a change of the bootstrap secret.
func TestTokenIsTiedToItsHost(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t)
	dir := t.TempDir()
	socket := filepath.Join(dir, "admin.sock")
	args := channelArgs(ca, "--state="+filepath.Join(dir, "state.db"), "--admin-socket="+socket, "--log-level=debug")
	secret := func(s string) string { return "BIGFLEET_BOOTSTRAP_SECRET=" + s }
	a := newTarget(t, ca, []string{secret(attackSecret)}, args...)
	id, life := a.ids[0], ""
	pollFrom := func(host, secret string) (int, http.Header) {
		t.Helper()
		time.Sleep(250 * time.Millisecond) // the machine's rate
		header := http.Header{"Authorization": {"Bearer " + channelToken(secret, id, life)}}
		if host != "" {
			header.Set("Bigfleet-Agent-Host", host)
		}
		code, headers, _ := a.ask(t, http.MethodGet, "/v1/command", id, header, nil)
		return code, headers
	}
	want := func(what string, code, want int) {
		t.Helper()
		if code != want {
			t.Errorf("%s: %d, want %d", what, code, want)
		}
	}
	create := func(host string) {
		t.Helper()
		life = a.must("Create", id, token{}, unspecified)
		await(t, "IDLE", func() bool {
			pollFrom(host, attackSecret)
			return a.get(id).GetState() == idle
		})
	}
	create("canary-host-one")
	if err := a.send(&pb.ConfigureRequest{MachineId: id, ClusterId: "c", BootstrapBlob: []byte("canary-blob")}); err != nil {
		t.Fatal(err)
	}
	for name, host := range map[string]string{"a second host": "canary-host-two", "one without an id": ""} {
		code, _ := pollFrom(host, attackSecret)
		want(name, code, http.StatusForbidden)
	}
	a.line(`level=WARN msg="refused a second host`)
	if got := a.counter(t, "bigfleet_scaleway_channel_contested_machines"); got != 1 {
		t.Errorf("%v contested machines, want 1", got)
	}
	if out := mustCtl(t, "1 contested", "host", "list", "--socket", socket, "--contested"); !strings.Contains(out, id) {
		t.Errorf("host list: %s", out)
	}
	a.kill()
	a = newTarget(t, ca, []string{secret(attackSecret)}, args...)
	code, _ := pollFrom("canary-host-two", attackSecret) // faster than the machine's own
	want("a second host after a restart", code, http.StatusForbidden)
	await(t, "the command", func() bool { code, _ := pollFrom("canary-host-one", attackSecret); return code == http.StatusOK })

	mustCtl(t, "the next host that polls", "host", "unlock", "--socket", socket, id)
	code, _ = pollFrom("canary-host-two", attackSecret)
	want("another host after the unlock, about a command that the first one took", code, http.StatusNoContent)
	code, _ = pollFrom("canary-host-one", attackSecret)
	want("the first host after the unlock", code, http.StatusForbidden)
	refusedCtl(t, []string{"no such machine"}, "host", "unlock", "--socket", socket, "nobody")

	// A new bootstrap secret. The host keeps its old token until it is handed the
	// new one.
	const next = "canary-another-secret-0123456789abcdef"
	a.kill()
	a = newTarget(t, ca, []string{secret(next), "BIGFLEET_BOOTSTRAP_SECRET_PREVIOUS=" + attackSecret}, args...)
	code, headers := pollFrom("canary-host-one", attackSecret)
	want("the old token from a second host", code, http.StatusForbidden)
	if headers.Get("Bigfleet-Agent-Token") != "" {
		t.Error("a second host is handed the new token")
	}
	await(t, "the sealed blob of the old secret", func() bool {
		code, headers = pollFrom("canary-host-two", attackSecret)
		return code == http.StatusOK
	})
	if got := headers.Get("Bigfleet-Agent-Token"); got != channelToken(next, id, life) {
		t.Errorf("the host is handed %q, want its new token", got)
	}
	mustCtl(t, "1 with the previous secret", "host", "list", "--socket", socket, "--previous")
	code, _ = pollFrom("canary-host-two", next)
	want("the new token", code, http.StatusOK)
	mustCtl(t, "0 with the previous secret", "host", "list", "--socket", socket)
	log := a.text()
	a.kill()
	a = newTarget(t, ca, []string{secret(next)}, args...)
	code, _ = pollFrom("canary-host-two", attackSecret)
	want("the old token after the rollout", code, http.StatusUnauthorized)
	// The command waits for the lifecycle, the token does not.
	if code, _ = pollFrom("canary-host-two", next); code != http.StatusOK && code != http.StatusNoContent {
		t.Errorf("the new token after the rollout: %d", code)
	}
	hidden := canaries{"host id": "canary-host-two", "secret": attackSecret, "next secret": next, "token": channelToken(next, id, life), "blob": "canary-blob"}
	hidden.in(t, "the log", []byte(log+a.text()))
	hidden.inFiles(t, dir, filepath.Join(dir, "state.db.fake"))
}
