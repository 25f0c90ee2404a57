// Package doctor looks at a provider from outside and says what is wrong: its
// ports, what TLS they speak and show, what the client certificate may do, the
// clock, and what the provider says of itself. It changes nothing and sends no
// secret.
package doctor

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	pb "bigfleet-providers/proto/bigfleet/v1alpha1"
)

// Level is how bad a finding is.
type Level string

// The levels: as it should be, worth a look, in the way of work.
const (
	OK   Level = "OK"
	Warn Level = "WARN"
	Fail Level = "FAIL"
)

// Finding is the result of one check.
type Finding struct {
	Check  string `json:"check"`
	Level  Level  `json:"level"`
	Detail string `json:"detail"`
	// Advice says what to do; "" when nothing is.
	Advice string `json:"advice,omitempty"`
}

// Target is what is looked at, and how.
type Target struct {
	// Addr is the gRPC port, host:port; it speaks plaintext if Insecure says so.
	Addr     string
	Insecure bool
	// Roots are who may sign the gRPC port's certificate, nil for the system's.
	// ServerName is the name in it, the host of Addr if empty.
	Roots      *x509.CertPool
	ServerName string
	// Certificate is what the client presents; nil for none.
	Certificate *tls.Certificate
	// Proxy is what Conn goes through, "" for nothing.
	Proxy string
	// Conn is a connection to Addr. Explain makes an error of a call readable, with
	// advice behind the first line.
	Conn    grpc.ClientConnInterface
	Explain func(what string, err error) error
	// Channel is the URL of the bootstrap channel, and ChannelRoots who may sign
	// its certificate; "" leaves it out.
	Channel      string
	ChannelRoots *x509.CertPool
	// Metrics is the URL of --metrics-addr, without a path; "" leaves it out.
	Metrics string
	// Timeout bounds each check.
	Timeout time.Duration
}

// examination is one run.
type examination struct {
	Target
	report func(Finding)
}

// Examine makes the checks one after another and reports each. What cannot be
// looked at because of an earlier fault is left out.
func Examine(ctx context.Context, t Target, report func(Finding)) {
	e := &examination{t, report}
	if e.reachable(ctx) && e.health(ctx) {
		e.calls(ctx)
	}
	if t.Channel != "" {
		e.channel(ctx)
	}
	if t.Metrics != "" {
		e.metrics(ctx)
	}
}

func (e *examination) say(check string, level Level, advice, format string, args ...any) {
	e.report(Finding{Check: check, Level: level, Detail: fmt.Sprintf(format, args...), Advice: advice})
}

// reachable looks at the way to the gRPC port. Through a proxy only Conn has one,
// and what is found without it says nothing.
func (e *examination) reachable(ctx context.Context) bool {
	if e.Proxy == "" {
		return e.port(ctx) && e.transport(ctx)
	}
	e.say("grpc proxy", Warn, "If no proxy is needed, name the provider's host in NO_PROXY.",
		"HTTPS_PROXY has calls to %s go through %s, so that its port and TLS are not looked at", e.Addr, e.Proxy)
	e.client(time.Now())
	return true
}

// port looks whether anybody listens.
func (e *examination) port(ctx context.Context) bool {
	began := time.Now()
	conn, err := e.dial(ctx, e.Addr)
	if err != nil {
		e.say("grpc port", Fail, "Is the provider running, is this its --addr, and does a firewall or NetworkPolicy let you through?", "%s: %v", e.Addr, err)
		return false
	}
	conn.Close()
	e.say("grpc port", OK, "", "%s accepts connections, after %s", e.Addr, time.Since(began).Round(100*time.Microsecond))
	return true
}

func (e *examination) dial(ctx context.Context, addr string) (net.Conn, error) {
	d := net.Dialer{Timeout: e.Timeout}
	return d.DialContext(ctx, "tcp", addr)
}

// transport looks at what the gRPC port speaks, and whether it is what was asked
// for.
func (e *examination) transport(ctx context.Context) bool {
	host, _, err := net.SplitHostPort(e.Addr)
	if err != nil {
		e.say("grpc tls", Fail, "", "%v", err)
		return false
	}
	name := host
	if e.ServerName != "" {
		name = e.ServerName
	}
	if !e.Insecure {
		ok := e.secured(ctx, "grpc", e.Addr, name, e.Roots, "--tls-ca")
		e.client(time.Now())
		return ok && e.welcome(ctx, name)
	}
	if state, err := e.handshake(ctx, e.Addr, name); err == nil {
		e.say("grpc tls", Fail, "Leave --insecure out, and give the CA with --tls-ca.", "%s speaks %s, and --insecure was given", e.Addr, tls.VersionName(state.Version))
		return false
	}
	if ip := net.ParseIP(host); ip != nil && ip.IsLoopback() || host == "localhost" {
		e.say("grpc tls", OK, "", "plaintext, on the loopback interface")
		return true
	}
	e.say("grpc tls", Warn, "Start the provider with --tls-cert and --tls-key, and --tls-ca for mutual TLS.", "plaintext: whoever reaches %s reads bootstrap blobs and commands the fleet", e.Addr)
	return true
}

// health asks whether the service serves.
func (e *examination) health(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, e.Timeout)
	defer cancel()
	resp, err := healthpb.NewHealthClient(e.Conn).Check(ctx, &healthpb.HealthCheckRequest{Service: pb.CapacityProvider_ServiceDesc.ServiceName})
	switch {
	case status.Code(err) == codes.NotFound || status.Code(err) == codes.Unimplemented:
		e.say("grpc health", Fail, "Give the provider's --addr, port 9000 unless it was changed.", "%s speaks gRPC, and is no capacity provider", e.Addr)
		return false
	case err != nil:
		e.explained("grpc health", e.Explain("health", err))
		return false
	case resp.GetStatus() != healthpb.HealthCheckResponse_SERVING:
		e.say("grpc health", Fail, "It is starting or stopping: look at its log and at /readyz.", "the service is %s", resp.GetStatus())
		return false
	}
	e.say("grpc health", OK, "", "the service is SERVING")
	return true
}

// calls asks for one machine: is the caller let in?
func (e *examination) calls(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, e.Timeout)
	defer cancel()
	began := time.Now()
	_, err := pb.NewCapacityProviderClient(e.Conn).List(ctx, &pb.ListFilter{MaxResults: 1})
	switch {
	case err != nil:
		e.explained("grpc calls", e.Explain("list", err))
	case !e.Insecure && e.Certificate == nil:
		e.say("grpc calls", Warn, "Start the provider with --tls-ca, so that only certificates of your CA get in.", "List is answered without a client certificate: whoever reaches %s commands the fleet", e.Addr)
	default:
		e.say("grpc calls", OK, "", "List is answered, after %s", time.Since(began).Round(100*time.Microsecond))
	}
}

// explained reports an error whose first line says what and whose others say
// what to do.
func (e *examination) explained(check string, err error) {
	what, advice := splitLine(err.Error())
	e.say(check, Fail, advice, "%s", what)
}
