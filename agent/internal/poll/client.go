// Package poll is the agent's side of the bootstrap channel: it asks for the
// machine's command and reports on it.
package poll

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"bigfleet-providers/shared/command"
	"bigfleet-providers/shared/pemfile"
)

const (
	// Slack is what a request may take beyond its wait: connecting, the
	// handshake, and a blob over a slow line.
	Slack = 15 * time.Second
	// maxDetail bounds what is read of an error answer.
	maxDetail = 256
	// maxRetryAfter bounds how long a provider can keep an agent away.
	maxRetryAfter = 5 * time.Minute
)

// NewHTTPClient returns a client that trusts the certificates in caPEM and
// nothing else, speaks TLS 1.3 only, and honours HTTPS_PROXY and NO_PROXY. Many
// agents of one provider may share it.
func NewHTTPClient(caPEM string) (*http.Client, error) {
	roots, err := pemfile.Pool([]byte(caPEM))
	if err != nil {
		return nil, fmt.Errorf("ca_pem: %w", err)
	}
	return &http.Client{
		Transport: &http.Transport{
			Proxy:                  http.ProxyFromEnvironment,
			DialContext:            (&net.Dialer{Timeout: 10 * time.Second, KeepAlive: 15 * time.Second}).DialContext,
			TLSClientConfig:        &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS13},
			TLSHandshakeTimeout:    10 * time.Second,
			MaxResponseHeaderBytes: 32 << 10,
			IdleConnTimeout:        90 * time.Second,
			DisableCompression:     true,
			ForceAttemptHTTP2:      true,
			// A parked poll sends nothing: without pings a connection that died
			// silently would be noticed only at the end of the wait.
			HTTP2: &http.HTTP2Config{SendPingTimeout: 20 * time.Second, PingTimeout: 10 * time.Second},
		},
		// A redirect would carry the token to another place.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}, nil
}

// Client speaks for one machine. Its fields must not change during a call; calls
// may be made from many goroutines.
type Client struct {
	HTTP      *http.Client
	Endpoint  *url.URL
	MachineID string
	Token     string
	Version   string // of the agent
	BootID    string // see command.HeaderBoot
	HostID    string // see command.HeaderHost
}

// Answer is what a poll brought.
type Answer struct {
	// Command is nil when nothing is pending.
	Command *command.Command
	// Invalid says why Command cannot be carried out.
	Invalid error
	// Date is the provider's clock, zero when it sent none.
	Date time.Time
	// Token is the one to use from now on, "" for the same.
	Token string
}

// StatusError is an answer that is neither a command nor an acceptance.
type StatusError struct {
	Code       int
	Detail     string        // the first line of the answer, shortened
	RetryAfter time.Duration // 0 when the provider named none
	Date       time.Time     // the provider's clock, zero when it sent none
	NotBefore  time.Time     // of the certificate it showed
	NotAfter   time.Time
}

func (e *StatusError) Error() string {
	text := fmt.Sprintf("the provider answered %d %s", e.Code, http.StatusText(e.Code))
	if e.Detail != "" {
		text += ": " + e.Detail
	}
	return text
}

// Poll asks for the machine's command and lets the provider hold the question
// for up to wait; with 0 it answers at once. have names the command in work, if
// any (command.HeaderHave).
func (c *Client) Poll(ctx context.Context, wait time.Duration, have string) (Answer, error) {
	ctx, cancel := context.WithTimeout(ctx, wait+Slack)
	defer cancel()
	params := url.Values{}
	if s := int(wait / time.Second); s > 0 {
		params.Set(command.ParamWait, strconv.Itoa(s))
	}
	req, err := c.request(ctx, http.MethodGet, command.PathCommand, params, nil)
	if err != nil {
		return Answer{}, err
	}
	if have != "" {
		req.Header.Set(command.HeaderHave, have)
	}
	resp, err := c.HTTP.Do(req)
	if err != nil {
		return Answer{}, err
	}
	defer resp.Body.Close()
	answer := Answer{Date: date(resp), Token: resp.Header.Get(command.HeaderToken)}
	switch resp.StatusCode {
	case http.StatusNoContent:
		return answer, nil
	case http.StatusOK:
		cmd, err := command.DecodeCommand(resp.Body)
		if cmd == nil {
			return Answer{}, err
		}
		answer.Command, answer.Invalid = cmd, err
		return answer, nil
	}
	return Answer{}, c.statusError(resp)
}

// Ack reports on a command. A *StatusError with code 409 says that the provider
// no longer waits for it.
func (c *Client) Ack(ctx context.Context, ack command.Ack) error {
	ctx, cancel := context.WithTimeout(ctx, Slack)
	defer cancel()
	body, err := json.Marshal(ack)
	if err != nil {
		return err
	}
	req, err := c.request(ctx, http.MethodPost, command.PathAck, url.Values{}, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", command.MediaType)
	resp, err := c.HTTP.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return c.statusError(resp)
	}
	return nil
}

func (c *Client) request(ctx context.Context, method, path string, params url.Values, body io.Reader) (*http.Request, error) {
	params.Set(command.ParamMachineID, c.MachineID)
	target := c.Endpoint.JoinPath(path)
	target.RawQuery = params.Encode()
	req, err := http.NewRequestWithContext(ctx, method, target.String(), body)
	if err != nil {
		return nil, err
	}
	kinds := make([]string, 0, 2)
	for _, k := range command.Kinds() {
		kinds = append(kinds, string(k))
	}
	req.Header.Set("Authorization", "Bearer "+c.Token)
	req.Header.Set("Accept", command.MediaType)
	req.Header.Set("User-Agent", "bigfleet-agent/"+c.Version)
	req.Header.Set(command.HeaderVersion, c.Version)
	req.Header.Set(command.HeaderKinds, strings.Join(kinds, ","))
	if c.BootID != "" {
		req.Header.Set(command.HeaderBoot, c.BootID)
	}
	if c.HostID != "" {
		req.Header.Set(command.HeaderHost, c.HostID)
	}
	return req, nil
}

func (c *Client) statusError(resp *http.Response) error {
	e := &StatusError{Code: resp.StatusCode, Date: date(resp), RetryAfter: retryAfter(resp.Header.Get("Retry-After"))}
	if resp.TLS != nil && len(resp.TLS.PeerCertificates) > 0 {
		e.NotBefore, e.NotAfter = resp.TLS.PeerCertificates[0].NotBefore, resp.TLS.PeerCertificates[0].NotAfter
	}
	// The detail helps a reader and decides nothing: what cannot be read of it
	// is left out.
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxDetail))
	if err == nil && !strings.Contains(resp.Header.Get("Content-Type"), "html") {
		line, _, _ := strings.Cut(strings.TrimSpace(strings.ToValidUTF8(string(body), "?")), "\n")
		// Some proxies answer with the request they were sent.
		e.Detail = strings.ReplaceAll(line, c.Token, "[redacted]")
		if c.HostID != "" {
			e.Detail = strings.ReplaceAll(e.Detail, c.HostID, "[redacted]")
		}
	}
	return e
}

// retryAfter reads the header's seconds. The form with a date is not used by
// the provider and would need a right clock here.
func retryAfter(text string) time.Duration {
	seconds, err := strconv.ParseUint(text, 10, 31)
	if err != nil {
		return 0
	}
	return min(max(time.Duration(seconds)*time.Second, time.Second), maxRetryAfter)
}

func date(resp *http.Response) time.Time {
	t, err := http.ParseTime(resp.Header.Get("Date"))
	if err != nil {
		return time.Time{}
	}
	return t
}
