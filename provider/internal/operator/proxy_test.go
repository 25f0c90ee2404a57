package operator

import (
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"bigfleet-providers/provider/internal/operator/doctor"
)

// TestProxyIsNamed: what a proxy does is not put on the provider.
func TestProxyIsNamed(t *testing.T) {
	t.Setenv("HTTPS_PROXY", "http://user:password@proxy.example:3128")
	t.Setenv("NO_PROXY", "direct.example,10.0.0.0/8")
	for text, proxied := range map[string]string{
		`connection error: desc = "transport: Error while dialing: dial tcp 192.0.2.1:3128: connect: connection refused"`: "The proxy http://proxy.example:3128 cannot be reached",
		`dial tcp: lookup proxy.example: no such host`:                                                                    "The proxy http://proxy.example:3128 cannot be reached",
		`name resolver error: produced zero addresses`:                                                                    "The proxy http://proxy.example:3128 cannot be reached",
		`dial tcp 192.0.2.1:3128: i/o timeout`:                                                                            "The proxy http://proxy.example:3128 cannot be reached",
		`failed to do connect handshake, status code: 403 Forbidden`:                                                      "The proxy http://proxy.example:3128, which HTTPS_PROXY names, does not connect to provider.example:9000",
		`reading server HTTP response: unexpected EOF`:                                                                    "does not connect to provider.example:9000",
		`error reading server preface: EOF`:                                                                               "goes through the proxy http://proxy.example:3128",
	} {
		for addr, want := range map[string]bool{"provider.example:9000": true, "direct.example:9000": false, "10.1.2.3:9000": false, "127.0.0.1:9000": false} {
			err := (&connection{addr: addr}).explain("list", status.Error(codes.Unavailable, text))
			if got := strings.Contains(err.Error(), proxied); got != want || strings.Contains(err.Error(), "password") || want && strings.Contains(err.Error(), "Nothing listens") {
				t.Errorf("%s: %s: %v", addr, text, err)
			}
		}
	}
	for _, insecure := range []bool{true, false} {
		err := (&connection{addr: "provider.example:9000", insecure: insecure}).explain("list", status.Error(codes.DeadlineExceeded, "late"))
		if !strings.Contains(err.Error(), "proxy.example:3128") {
			t.Error(err)
		}
	}
}

// TestDoctorGoesByTheProxy: what a client does not do is not looked at.
func TestDoctorGoesByTheProxy(t *testing.T) {
	t.Setenv("HTTPS_PROXY", "http://user:password@127.0.0.1:1")
	code, found := diagnose(t, "--insecure", "--addr=provider.invalid:9000", "--timeout=5s")
	if _, direct := found["grpc port"]; code != exitFailed || direct {
		t.Errorf("exit code %d: %v", code, found)
	}
	expect(t, found, "grpc proxy", doctor.Warn, "http://127.0.0.1:1,")
	expect(t, found, "grpc health", doctor.Fail, "The proxy http://127.0.0.1:1 cannot be reached")
}

// TestUnknownHost: a name without an address is not put on the provider.
func TestUnknownHost(t *testing.T) {
	t.Setenv("HTTPS_PROXY", "")
	t.Setenv("https_proxy", "")
	code, _, stderr := capacityctl("list", "--insecure", "--addr=provider.invalid:9000")
	if code != exitFailed || !strings.Contains(stderr, "No address is known for the host of provider.invalid:9000") {
		t.Errorf("exit code %d: %s", code, stderr)
	}
}
