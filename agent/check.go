package agent

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"bigfleet-providers/agent/internal/hook"
	"bigfleet-providers/agent/internal/identity"
	"bigfleet-providers/agent/internal/poll"
	"bigfleet-providers/agent/internal/statedir"
)

const (
	checkTimeout = 10 * time.Second
	// maxSkew is how wrong a clock may be before certificates and deadlines
	// begin to suffer.
	maxSkew = 30 * time.Second
)

// Finding is the result of one check.
type Finding struct {
	Name   string
	Detail string // when all is well
	Err    error  // what is wrong and what to do about it
}

// Check tests what an agent with the configuration at path needs, from the file
// to the provider's answer to its token. A check that cannot be made because
// one before it failed is left out. It runs no command.
func Check(ctx context.Context, path, version string) []Finding {
	cfg, err := LoadConfig(path)
	if err != nil {
		return []Finding{{Name: "config", Err: err}}
	}
	findings := []Finding{
		{Name: "config", Detail: path},
		checkStateDir(cfg.StateDir),
		checkRuntimeDir(cfg.RuntimeDir),
		checkHook(cfg),
	}
	return append(findings, checkProvider(ctx, cfg, version)...)
}

func checkStateDir(dir string) Finding {
	f := Finding{Name: "state", Detail: dir + " can be written"}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		f.Err = fmt.Errorf("%w: every command would be refused; make the directory writable", err)
		return f
	}
	probe, err := os.CreateTemp(dir, ".check-")
	if err != nil {
		f.Err = fmt.Errorf("%w: every command would be refused; make the directory writable", err)
		return f
	}
	err = os.Remove(probe.Name()) // at once: a check that is killed leaves nothing
	_, writeErr := probe.WriteString("check")
	if err = errors.Join(err, writeErr, probe.Sync(), probe.Close()); err != nil {
		f.Err = fmt.Errorf("%w: every command would be refused; free space there", err)
	}
	return f
}

func checkRuntimeDir(dir string) Finding {
	f := Finding{Name: "runtime", Detail: dir + " is in memory"}
	ok, err := hook.OnTmpfs(dir)
	if err != nil {
		f.Err = err
	} else if !ok {
		f.Err = fmt.Errorf("%s is not on tmpfs: bootstrap blobs would touch a disk; set runtime_dir to a place below /run", dir)
	}
	return f
}

func checkHook(cfg Config) Finding {
	path, err := (&hook.Host{Path: cfg.Hook}).Find()
	return Finding{Name: "hook", Detail: path, Err: err}
}

// checkProvider goes the way of a poll, step by step.
func checkProvider(ctx context.Context, cfg Config, version string) []Finding {
	endpoint, err := cfg.endpoint()
	if err != nil {
		return []Finding{{Name: "endpoint", Err: err}}
	}
	client, err := NewHTTPClient(cfg.CAPEM)
	if err != nil {
		return []Finding{{Name: "tls", Err: err}}
	}
	defer client.CloseIdleConnections()
	var findings []Finding
	proxy, err := http.ProxyFromEnvironment(&http.Request{URL: endpoint})
	switch {
	case err != nil:
		return []Finding{{Name: "proxy", Err: fmt.Errorf("HTTPS_PROXY is not usable: %w", err)}}
	case proxy != nil:
		// What lies behind the proxy is its business: only the poll can tell.
		findings = append(findings, Finding{Name: "proxy", Detail: "by " + proxy.Host})
	default:
		direct := checkDirect(ctx, endpoint, client)
		findings = append(findings, direct...)
		if direct[len(direct)-1].Err != nil {
			return findings
		}
	}
	var opt Options
	opt.setDefaults()
	bearer, hostID := "", ""
	// Another machine's is what the agent sets aside when it starts.
	if !statedir.Foreign(cfg.StateDir, statedir.ThisHost(cfg.MachineID, "/")) {
		hostID = identity.FindHostID(cfg.StateDir)
		if bearer, err = identity.FindToken(cfg.StateDir, string(cfg.Token)); err != nil {
			findings = append(findings, Finding{Name: "renewed token", Err: fmt.Errorf("%w: the configured one is used", err)})
		}
	}
	channel := poll.Client{
		HTTP: client, Endpoint: endpoint, MachineID: cfg.MachineID, Token: cmp.Or(bearer, string(cfg.Token)), Version: version,
		BootID: opt.BootID, HostID: hostID,
	}
	answer, err := channel.Poll(ctx, 0, "")
	token := Finding{Name: "token", Detail: "accepted, nothing pending", Err: poll.Explain(err, time.Now(), time.Time{})}
	if answer.Command != nil {
		token.Detail = fmt.Sprintf("accepted, a %s command is pending", answer.Command.Kind)
	}
	date := answer.Date
	if status, ok := errors.AsType[*poll.StatusError](err); ok {
		date = status.Date
	}
	if !date.IsZero() {
		findings = append(findings, checkClock(time.Now(), date))
	}
	return append(findings, token)
}

// checkDirect tests DNS, TCP and TLS, and stops at the first that fails.
func checkDirect(ctx context.Context, endpoint *url.URL, client *http.Client) []Finding {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	host, port := endpoint.Hostname(), cmp.Or(endpoint.Port(), "443")
	addrs, err := net.DefaultResolver.LookupHost(ctx, host)
	if err != nil {
		return []Finding{{Name: "dns", Err: fmt.Errorf("%w: check the host's resolver and the endpoint's name", err)}}
	}
	findings := []Finding{{Name: "dns", Detail: host + " is " + strings.Join(addrs, ", ")}}
	address := net.JoinHostPort(host, port)
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
	if err != nil {
		return append(findings, Finding{Name: "tcp", Err: fmt.Errorf("%w: check routes, firewalls and that the provider listens on --bootstrap-addr", err)})
	}
	defer conn.Close()
	findings = append(findings, Finding{Name: "tcp", Detail: "connected to " + conn.RemoteAddr().String()})
	settings := client.Transport.(*http.Transport).TLSClientConfig.Clone()
	settings.ServerName = host
	secure := tls.Client(conn, settings)
	if err := secure.HandshakeContext(ctx); err != nil {
		return append(findings, Finding{Name: "tls", Err: poll.Explain(err, time.Now(), time.Time{})})
	}
	leaf := secure.ConnectionState().PeerCertificates[0]
	return append(findings, Finding{Name: "tls", Detail: fmt.Sprintf("certificate valid from %s to %s, signed by ca_pem", stamp(leaf.NotBefore), stamp(leaf.NotAfter))})
}

func checkClock(now, date time.Time) Finding {
	skew := now.Sub(date).Round(time.Second)
	f := Finding{Name: "clock", Detail: fmt.Sprintf("%s from the provider's", skew)}
	if skew.Abs() > maxSkew {
		f.Err = fmt.Errorf("local clock %s, the provider's %s, difference %s: set the local clock (timedatectl)", stamp(now), stamp(date), skew)
	}
	return f
}
