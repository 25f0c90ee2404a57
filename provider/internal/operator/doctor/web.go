package doctor

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"bigfleet-providers/shared/endpoint"
)

// maxBody bounds what is read of an answer. /metrics of a provider has some
// hundred KiB at most.
const maxBody = 8 << 20

// Clocks that differ by more than this are worth a look, or in the way: of
// certificates that were just issued, and of deadlines.
const (
	skewWarning = 5 * time.Second
	skewFailure = time.Minute
)

// channel looks at the bootstrap channel as a new server would see it.
func (e *examination) channel(ctx context.Context) {
	u, err := endpoint.URL(e.Channel, "https") // as agents read it
	if err != nil {                            // the caller has judged it
		e.say("channel port", Fail, "", "%v", err)
		return
	}
	addr := u.Host
	if u.Port() == "" {
		addr = net.JoinHostPort(u.Hostname(), "443")
	}
	conn, err := e.dial(ctx, addr)
	if err != nil {
		e.say("channel port", Fail, "New servers cannot be reached either. Does the provider listen (--bootstrap-addr), and does --bootstrap-endpoint lead there?", "%s: %v", addr, err)
		return
	}
	conn.Close()
	e.say("channel port", OK, "", "%s accepts connections", addr)
	if !e.secured(ctx, "channel", addr, u.Hostname(), e.ChannelRoots, "--channel-ca") {
		e.clock(ctx, "channel", e.Channel, u.Hostname())
		return
	}
	answer, err := e.get(ctx, e.Channel, u.Hostname())
	if err != nil {
		e.say("channel answer", Fail, "Agents get no answer either: look at the provider's log.", "%v", err)
		return
	}
	// Without a token every question is refused; which refusal does not matter.
	if answer.code >= http.StatusInternalServerError {
		e.say("channel answer", Fail, "Something stands between: agents pin your CA, so nothing on the way may end the TLS.", "%s", answer.status)
	} else {
		e.say("channel answer", OK, "", "it speaks HTTP and wants a token (%s)", answer.status)
	}
	e.judgeClock("channel", answer)
}

// clock looks at the clock of a server whose answer is not trusted otherwise.
func (e *examination) clock(ctx context.Context, what, link, name string) {
	if answer, err := e.get(ctx, link, name); err == nil { // else said already
		e.judgeClock(what, answer)
	}
}

// answered is what a server said.
type answered struct {
	code   int
	status string
	body   string
	header http.Header
	asked  time.Time
	took   time.Duration
}

// get asks without any secret; name is what the certificate would have to be
// for, which is a check of its own.
func (e *examination) get(ctx context.Context, link, name string) (*answered, error) {
	ctx, cancel := context.WithTimeout(ctx, e.Timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, link, http.NoBody)
	if err != nil {
		return nil, err
	}
	cfg := lenient(name, nil)
	cfg.NextProtos = nil
	transport := &http.Transport{TLSClientConfig: cfg, DisableKeepAlives: true, TLSNextProto: map[string]func(string, *tls.Conn) http.RoundTripper{}}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	asked := time.Now()
	resp, err := client.Do(req)
	if err != nil {
		if op, ok := errors.AsType[*url.Error](err); ok {
			err = op.Err
		}
		return nil, fmt.Errorf("%s: %w", link, err)
	}
	defer resp.Body.Close()
	took := time.Since(asked)
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxBody))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", link, err)
	}
	return &answered{resp.StatusCode, resp.Status, string(body), resp.Header, asked, took}, nil
}

// judgeClock compares clocks by the Date header, which has whole seconds.
func (e *examination) judgeClock(what string, a *answered) {
	theirs, err := http.ParseTime(a.header.Get("Date"))
	if err != nil {
		e.say("clock", Warn, "Something between here and the provider takes the header away.", "the answer of %s has no Date to compare with", what)
		return
	}
	skew := theirs.Add(time.Second / 2).Sub(a.asked.Add(a.took / 2))
	level, advice := OK, ""
	switch size := skew.Abs(); {
	case size > skewFailure+a.took:
		level = Fail
	case size > skewWarning+a.took:
		level = Warn
	}
	if level != OK {
		advice = "Have both follow a time server (timedatectl shows whether a host does): certificates and deadlines are judged by the clock."
	}
	behind := "ahead of"
	if skew < 0 {
		behind = "behind"
	}
	e.say("clock", level, advice, "the clock of %s is %s %s this host's", what, skew.Abs().Round(time.Second), behind)
}

// metrics looks at what the provider says of itself.
func (e *examination) metrics(ctx context.Context) {
	base := strings.TrimRight(e.Metrics, "/")
	ready, err := e.get(ctx, base+"/readyz", "")
	if err != nil {
		e.say("ready", Fail, "Is this the provider's --metrics-addr, and does a firewall or NetworkPolicy let you through?", "%v", err)
		return
	}
	switch reasons := strings.Join(strings.Fields(ready.body), " "); ready.code {
	case http.StatusOK:
		e.say("ready", OK, "", "/readyz says %s", reasons)
	case http.StatusServiceUnavailable:
		e.say("ready", Fail, "The provider's log says more.", "/readyz: %s", reasons)
	default:
		e.say("ready", Fail, "Give the URL of --metrics-addr, such as http://127.0.0.1:9090.", "/readyz: %s: this is no provider's metrics port", ready.status)
		return
	}
	e.judgeClock("the metrics port", ready)
	page, err := e.get(ctx, base+"/metrics", "")
	if err == nil && page.code != http.StatusOK {
		err = errors.New(page.status)
	}
	if err != nil {
		e.say("metrics", Fail, "", "/metrics: %v", err)
		return
	}
	e.gauges(page.body, time.Now())
}
