package operator

import (
	"errors"
	"fmt"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// callError is a call that failed, explained.
type callError struct {
	code codes.Code
	text string
}

func (e *callError) Error() string { return e.text }

// codeOf is the code of an explained call's error; codes.Unknown for any other.
func codeOf(err error) codes.Code {
	if e, ok := errors.AsType[*callError](err); ok {
		return e.code
	}
	return codes.Unknown
}

// explain makes an error of a call out of its status: what was asked, what came
// back, and what the operator can do. nil stays nil.
func (c *connection) explain(what string, err error) error {
	if err == nil {
		return nil
	}
	s, ok := status.FromError(err)
	if !ok {
		return fmt.Errorf("%s: %w", what, err)
	}
	text := s.Message()
	if s.Code() == codes.Unavailable {
		text = withoutWrapping(text)
	}
	text = fmt.Sprintf("%s: %s: %s", what, codeName(s.Code()), text)
	if advice := c.advice(s.Code(), text); advice != "" {
		text += "\n" + advice
	}
	return &callError{s.Code(), text}
}

// codeName is a code as the protocol's documents write it.
func codeName(c codes.Code) string {
	var b strings.Builder
	for i, r := range c.String() {
		if i > 0 && r >= 'A' && r <= 'Z' && c != codes.OK {
			b.WriteByte('_')
		}
		b.WriteRune(r)
	}
	return strings.ToUpper(b.String())
}

// withoutWrapping drops the layers that gRPC puts around a failed connection.
func withoutWrapping(text string) string {
	for _, layer := range []string{"connection error: desc = ", "transport: ", "Error while dialing: "} {
		text = strings.TrimPrefix(strings.Trim(text, `"`), layer)
	}
	return strings.Trim(text, `"`)
}

// advice says what an operator can do about a failed call; "" when the message
// says it all.
func (c *connection) advice(code codes.Code, text string) string {
	switch code {
	case codes.FailedPrecondition:
		return "The provider has accepted a newer fencing token for this shard and machine, and changed nothing. " +
			"If it came from an earlier run of yours, give a greater --epoch; if it came from a shard of BigFleet, give a --shard of your own. " +
			"If you expected neither, two processes act as one shard: find the other one."
	case codes.Aborted:
		return "Another transition is under way. Watch it with capacityctl watch, and try again when it has settled."
	case codes.NotFound:
		return "capacityctl list shows the ids. The id of a failed machine disappears once it was cleaned up."
	case codes.PermissionDenied:
		return "The client certificate does not allow this call. A bigfleet://shard/ID certificate may drive machines as --shard ID; bigfleet://readonly and bigfleet://admin may only read."
	case codes.Unimplemented:
		return "Either this substrate cannot do it, or --addr " + c.addr + " is no capacity provider."
	case codes.DeadlineExceeded:
		return c.viaProxy("The provider did not answer in time.") + " A call that changes something may have been accepted all the same: capacityctl get shows it, and the same call again is a replay."
	case codes.Unavailable:
		return c.unreachable(text)
	default:
		return ""
	}
}

// zeroAddresses is gRPC's word for a name that no resolver knows.
const zeroAddresses = "produced zero addresses"

// unreachable tells the usual reasons for a connection that does not come about
// from the words of the TLS and network code, which has no codes for them.
func (c *connection) unreachable(text string) string {
	has := func(parts ...string) bool {
		for _, p := range parts {
			if strings.Contains(text, p) {
				return true
			}
		}
		return false
	}
	proxy := c.proxy()
	switch {
	case proxy != "" && has("connection refused", "no such host", zeroAddresses, "i/o timeout", "no route to host", "network is unreachable"):
		return "The proxy " + proxy + " cannot be reached, and HTTPS_PROXY has connections to " + c.addr + " go through it. Check it, or name the provider's host in NO_PROXY."
	case proxy != "" && has("connect handshake", "HTTP response", "HTTP request"):
		return "The proxy " + proxy + ", which HTTPS_PROXY names, does not connect to " + c.addr + ". Have it let this host and port through, or name the provider's host in NO_PROXY."
	case has("connection refused", "connect: no such file"):
		return "Nothing listens on " + c.addr + ". Is the provider running, and is this its --addr?"
	case has("no such host", zeroAddresses):
		return "No address is known for the host of " + c.addr + ". Check --addr and this host's resolver."
	case has("i/o timeout", "no route to host", "network is unreachable"):
		return "The host of " + c.addr + " cannot be reached. Check --addr and the network."
	case has("HTTP/1.1 header"):
		return c.addr + " speaks HTTP/1, not gRPC: most likely it is the provider's --metrics-addr. Give its --addr, port 9000 unless it was changed."
	case has("first record does not look like a TLS handshake"):
		return "The provider speaks plaintext on " + c.addr + ". Give --insecure, or start it with --tls-cert and --tls-key. Or this is its --metrics-addr: give its --addr, port 9000 unless it was changed."
	case has("signed by unknown authority", "not trusted", "certificate is not standards compliant"):
		return "The provider's certificate does not chain to a CA that is trusted here. Give its CA with --tls-ca."
	case has("certificate is valid for", "doesn't contain any IP SANs", "not valid for any names"):
		return "The provider's certificate is for another name. Use that name in --addr, or give it with --tls-server-name."
	case has("expired or is not yet valid"):
		return "A certificate is out of date, or this host's clock is wrong."
	case has("certificate required", "bad certificate", "unknown certificate authority", "unknown certificate"):
		return c.refusedCertificate("The provider refuses the connection")
	case has("server preface", "EOF", "connection reset", "broken pipe"):
		// In TLS 1.3 a client may learn that its certificate is refused only from
		// the connection being closed.
		if c.insecure {
			return c.viaProxy("The connection was closed at once: the provider most likely speaks TLS. Leave --insecure out, and give its CA with --tls-ca.")
		}
		return c.refusedCertificate(c.viaProxy("The connection was closed: if it happens again, it is most likely for the client certificate"))
	default:
		return "The provider is starting or stopping, or cannot write its state: look at its log and at /readyz. Try again; what was accepted before the connection broke is a replay then."
	}
}

func (c *connection) refusedCertificate(what string) string {
	if c.cert == "" {
		return what + ". It wants a client certificate: give one with --tls-cert and --tls-key."
	}
	return what + ". It does not accept the client certificate, which must chain to the provider's --tls-ca."
}
