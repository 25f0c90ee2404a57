package operator

import (
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "bigfleet-providers/proto/bigfleet/v1alpha1"
)

// freePort is an address that nothing listens on.
func freePort(t *testing.T) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	return ln.Addr().String()
}

// TestConnections meets real ports in every way in which the two sides can
// misunderstand each other: the message must say which it is.
func TestConnections(t *testing.T) {
	s := &scripted{machines: []*pb.Machine{{Id: "m-1"}}}
	pair, cert, key := certificate(t, "provider.example")
	_, otherCert, otherKey := certificate(t, "provider.example")
	pool := x509.NewCertPool()
	pool.AddCert(pair.Leaf)
	plain := serve(t, s, nil)
	secure := serve(t, s, &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{pair}})
	mutual := serve(t, s, &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{pair}, ClientCAs: pool, ClientAuth: tls.RequireAndVerifyClientCert})
	metrics := httptest.NewServer(http.NotFoundHandler())
	defer metrics.Close()
	httpAddr := metrics.Listener.Addr().String()
	noPEM := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(noPEM, []byte("no certificate"), 0o600); err != nil {
		t.Fatal(err)
	}
	good, err := os.ReadFile(cert)
	if err != nil {
		t.Fatal(err)
	}
	half := filepath.Join(t.TempDir(), "half.pem")
	if err := os.WriteFile(half, append([]byte(" "+string(good)), good...), 0o600); err != nil {
		t.Fatal(err)
	}
	name := "--tls-server-name=provider.example"
	for what, tt := range map[string]struct {
		args []string
		want string // "" for success
	}{
		"plaintext":             {[]string{"--addr=" + plain, "--insecure"}, ""},
		"TLS":                   {[]string{"--addr=" + secure, "--tls-ca=" + cert, name}, ""},
		"mutual TLS":            {[]string{"--addr=" + mutual, "--tls-ca=" + cert, name, "--tls-cert=" + cert, "--tls-key=" + key}, ""},
		"nobody listens":        {[]string{"--addr=" + freePort(t), "--insecure"}, "Is the provider running"},
		"TLS to plaintext":      {[]string{"--addr=" + plain, "--tls-ca=" + cert}, "Give --insecure"},
		"plaintext to TLS":      {[]string{"--addr=" + secure, "--insecure"}, "Leave --insecure out"},
		"plaintext to metrics":  {[]string{"--addr=" + httpAddr, "--insecure"}, "--metrics-addr"},
		"TLS to metrics":        {[]string{"--addr=" + httpAddr}, "--metrics-addr"},
		"another CA":            {[]string{"--addr=" + secure, "--tls-ca=" + otherCert, name}, "with --tls-ca"},
		"the system's CAs":      {[]string{"--addr=" + secure, name}, "with --tls-ca"},
		"another name":          {[]string{"--addr=" + secure, "--tls-ca=" + cert}, "--tls-server-name"},
		"no certificate":        {[]string{"--addr=" + mutual, "--tls-ca=" + cert, name}, "wants a client certificate"},
		"a strange certificate": {[]string{"--addr=" + mutual, "--tls-ca=" + cert, name, "--tls-cert=" + otherCert, "--tls-key=" + otherKey}, "does not accept the client certificate"},
		"a CA without PEM":      {[]string{"--addr=" + secure, "--tls-ca=" + noPEM}, "holds no PEM certificate"},
		"half a bundle of CAs":  {[]string{"--addr=" + secure, name, "--tls-ca=" + half}, "--tls-ca " + half + ": block 1 (line 1)"},
		"half a chain":          {[]string{"--addr=" + secure, name, "--tls-ca=" + cert, "--tls-cert=" + half, "--tls-key=" + key}, "--tls-cert " + half + ": block 1 (line 1)"},
		"a missing file":        {[]string{"--addr=" + secure, "--tls-ca=" + noPEM + "x"}, "no such file"},
		"a pair that is none":   {[]string{"--addr=" + secure, "--tls-cert=" + cert, "--tls-key=" + otherKey}, "private key does not match"},
	} {
		t.Run(what, func(t *testing.T) {
			code, stdout, stderr := capacityctl(append([]string{"list"}, tt.args...)...)
			if tt.want == "" {
				if code != exitOK || !strings.Contains(stdout, "m-1") {
					t.Errorf("exit code %d: %s", code, stderr)
				}
				return
			}
			if code != exitFailed || !strings.Contains(stderr, tt.want) {
				t.Errorf("exit code %d, want %q in:\n%s", code, tt.want, stderr)
			}
			t.Log(stderr)
		})
	}
}

// The environment stands for flags that were not given, and gives way to those
// that were.
func TestConnectionFromTheEnvironment(t *testing.T) {
	s := &scripted{machines: []*pb.Machine{{Id: "m-1"}}}
	pair, cert, _ := certificate(t, "provider.example")
	plain := serve(t, s, nil)
	secure := serve(t, s, &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{pair}})
	toPlain := map[string]string{"CAPACITYCTL_ADDR": plain, "CAPACITYCTL_INSECURE": "true"}
	toSecure := map[string]string{"CAPACITYCTL_ADDR": secure, "CAPACITYCTL_TLS_CA": cert, "CAPACITYCTL_TLS_SERVER_NAME": "provider.example"}
	for what, tt := range map[string]struct {
		vars map[string]string
		args []string
		code int
		want string
	}{
		"plaintext":               {toPlain, nil, exitOK, "m-1"},
		"TLS":                     {toSecure, nil, exitOK, "m-1"},
		"plaintext despite TLS":   {toSecure, []string{"--addr=" + plain, "--insecure"}, exitOK, "m-1"},
		"TLS despite plaintext":   {toPlain, []string{"--addr=" + secure, "--tls-ca=" + cert, "--tls-server-name=provider.example"}, exitOK, "m-1"},
		"faults name a variable":  {map[string]string{"CAPACITYCTL_INSECURE": "perhaps"}, nil, exitUsage, `CAPACITYCTL_INSECURE: "perhaps", want true or false`},
		"an empty variable":       {map[string]string{"CAPACITYCTL_ADDR": secure, "CAPACITYCTL_TLS_CA": ""}, nil, exitUsage, "--tls-ca: CAPACITYCTL_TLS_CA is set, but empty"},
		"an empty address":        {map[string]string{"CAPACITYCTL_ADDR": ""}, []string{"--insecure"}, exitUsage, "--addr: CAPACITYCTL_ADDR is set, but empty"},
		"contradicting variables": {map[string]string{"CAPACITYCTL_INSECURE": "true", "CAPACITYCTL_TLS_CA": cert}, nil, exitUsage, "--insecure: contradicts"},
	} {
		t.Run(what, func(t *testing.T) {
			for name, value := range tt.vars {
				t.Setenv(name, value)
			}
			code, stdout, stderr := capacityctl(append([]string{"list"}, tt.args...)...)
			if code != tt.code || !strings.Contains(stdout+stderr, tt.want) {
				t.Errorf("exit code %d, want %d and %q in:\n%s%s", code, tt.code, tt.want, stdout, stderr)
			}
		})
	}
}

func TestRefusedCalls(t *testing.T) {
	s := &scripted{}
	addr := serve(t, s, nil)
	for code, want := range map[codes.Code][]string{
		codes.FailedPrecondition: {"FAILED_PRECONDITION", "--epoch", "--shard of your own", "find the other one"},
		codes.Aborted:            {"ABORTED", "try again when it has settled"},
		codes.NotFound:           {"NOT_FOUND", "capacityctl list"},
		codes.PermissionDenied:   {"PERMISSION_DENIED", "bigfleet://shard/ID"},
		codes.Unimplemented:      {"UNIMPLEMENTED", addr},
		codes.Unavailable:        {"UNAVAILABLE", "/readyz"},
		codes.InvalidArgument:    {"INVALID_ARGUMENT"},
		codes.Internal:           {"INTERNAL"},
	} {
		t.Run(code.String(), func(t *testing.T) {
			s.edit(func() { s.fail = status.Error(code, "because") })
			exit, _, stderr := capacityctl("create", "m-1", "--insecure", "--addr="+addr)
			if exit != exitFailed || !strings.Contains(stderr, "create m-1: ") || !strings.Contains(stderr, ": because") {
				t.Errorf("exit code %d: %s", exit, stderr)
			}
			for _, w := range want {
				if !strings.Contains(stderr, w) {
					t.Errorf("it does not say %q:\n%s", w, stderr)
				}
			}
		})
	}
}
