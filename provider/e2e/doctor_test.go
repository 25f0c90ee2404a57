package e2e

import (
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc/credentials"

	"bigfleet-providers/provider/internal/operator/terminal/terminaltest"
)

// findings runs doctor and checks its exit code, and that each of the wanted
// lines begins one of its own.
func findings(t *testing.T, code int, wants []string, args ...string) {
	t.Helper()
	got, out := capacityctl(t, append([]string{"doctor"}, args...)...)
	lines := strings.Split(strings.Join(strings.Fields(strings.ReplaceAll(out, "\n", " | ")), " "), " | ")
	for _, want := range wants {
		found := false
		for _, l := range lines {
			found = found || strings.HasPrefix(l, want)
		}
		if !found || got != code {
			t.Errorf("doctor %s: exit code %d, want %d and a line %q:\n%s", strings.Join(args, " "), got, code, want, out)
		}
	}
}

// TestDoctor looks at a provider with everything it has, and at each thing that
// can be wrong.
func TestDoctor(t *testing.T) {
	t.Parallel()
	ca, other := newAuthority(t), newAuthority(t)
	long := func(c *x509.Certificate) { c.NotAfter = time.Now().Add(90 * 24 * time.Hour) }
	cert, key := ca.pair("server", long)
	channelCert, channelKey := other.pair("channel", long)
	identified := func(link string) func(*x509.Certificate) {
		return func(c *x509.Certificate) {
			long(c)
			u, err := url.Parse(link)
			if err != nil {
				t.Fatal(err)
			}
			c.URIs = []*url.URL{u}
		}
	}
	operator, operatorKey := ca.pair("operator", identified("bigfleet://readonly"))
	stranger, strangerKey := other.pair("stranger", identified("bigfleet://shard/x"))

	p := startProvider(t, environment(), credentials.NewTLS(ca.client("bigfleet://readonly")), "--use-fake-backend", "--fake-hosts=none", "--provider=certify",
		"--tls-cert="+cert, "--tls-key="+key, "--tls-ca="+ca.pem,
		"--bootstrap-addr=127.0.0.1:0", "--bootstrap-endpoint=https://localhost:9443", "--bootstrap-tls-cert="+channelCert, "--bootstrap-tls-key="+channelKey, "--bootstrap-ca="+other.pem)
	metrics := "http://" + p.line(`msg=serving .*metrics=(\S+)`)[1]
	channel := "https://" + p.line(`bootstrap channel.*listen=(\S+)`)[1]
	plain := startProvider(t, environment(), nil, "--use-fake-backend", "--fake-hosts=none", "--provider=certify")
	grpc := []string{"--addr=" + p.addr, "--tls-ca=" + ca.pem}
	as := func(cert, key string) []string { return append(grpc, "--tls-cert="+cert, "--tls-key="+key) }

	well := as(operator, operatorKey)
	findings(t, 0, []string{
		"OK grpc tls TLS 1.3", "OK grpc chain", "OK grpc name good for 127.0.0.1", "OK grpc expiry", "OK client identity CN=operator is bigfleet://readonly", "OK client certificate CN=operator is taken",
		"OK grpc calls", "OK channel chain", "OK channel answer", "OK clock the clock of channel", "OK ready", "OK inventory", "OK clock the clock of the metrics port",
	}, append(well, "--metrics="+metrics, "--channel="+channel, "--channel-ca="+other.pem)...)

	findings(t, 1, []string{"FAIL grpc chain CN=server, signed by CN=test CA", "Give the CA that signed it with --tls-ca"}, "--addr="+p.addr, "--tls-ca="+other.pem)
	findings(t, 1, []string{"FAIL grpc name", "OK grpc chain"}, append(well, "--tls-server-name=elsewhere")...)
	findings(t, 1, []string{"FAIL client certificate the provider refuses the connection: remote error: tls: certificate required", "It wants a client certificate"}, grpc...)
	findings(t, 1, []string{"FAIL client certificate the provider refuses the connection with CN=stranger", "OK client identity CN=stranger"}, as(stranger, strangerKey)...)
	findings(t, 1, []string{"FAIL grpc tls", "Leave --insecure out"}, "--addr="+p.addr, "--insecure")
	findings(t, 1, []string{"FAIL grpc tls", "It speaks plaintext. Give --insecure"}, "--addr="+plain.addr, "--tls-ca="+ca.pem)
	findings(t, 1, []string{"FAIL channel chain", "OK clock"}, append(well, "--channel="+channel, "--channel-ca="+ca.pem)...)
	findings(t, 1, []string{"FAIL ready", "FAIL channel port"}, append(well, "--metrics=http://"+nobody(t), "--channel=https://"+nobody(t))...)
	findings(t, 1, []string{"FAIL grpc port", "Is the provider running"}, "--addr="+nobody(t), "--insecure")
	findings(t, 1, []string{"FAIL grpc expiry ended", "OK grpc chain"}, "--addr="+ended(t, ca), "--tls-ca="+ca.pem)
	findings(t, 1, []string{"FAIL clock the clock of the metrics port is", "OK ready"}, append(well, "--metrics="+wrongClock(t, metrics))...)
}

// nobody is an address that nobody listens on.
func nobody(t *testing.T) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	return ln.Addr().String()
}

// ended is a port with a certificate that has ended, which a provider that is
// started with it refuses to show.
func ended(t *testing.T, ca *authority) string {
	t.Helper()
	srv := httptest.NewUnstartedServer(http.NotFoundHandler())
	pair := ca.loaded("ended", func(c *x509.Certificate) {
		c.NotBefore, c.NotAfter = time.Now().Add(-2*time.Hour), time.Now().Add(-30*time.Minute) // its CA is an hour old
	})
	srv.TLS = &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{pair}}
	srv.StartTLS()
	t.Cleanup(srv.Close)
	return srv.Listener.Addr().String()
}

// wrongClock passes requests on, and answers as a server whose clock is an hour
// behind.
func wrongClock(t *testing.T, to string) string {
	t.Helper()
	u, err := url.Parse(to)
	if err != nil {
		t.Fatal(err)
	}
	proxy := httputil.NewSingleHostReverseProxy(u)
	proxy.ModifyResponse = func(r *http.Response) error {
		r.Header.Set("Date", time.Now().Add(-time.Hour).UTC().Format(http.TimeFormat))
		return nil
	}
	srv := httptest.NewServer(proxy)
	t.Cleanup(srv.Close)
	return srv.URL
}

// TestWalkGivesBack interrupts a walk while its server is being made: the
// machine must be free again, and its server gone.
func TestWalkGivesBack(t *testing.T) {
	t.Parallel()
	p := startProvider(t, environment(), nil, "--use-fake-backend", "--fake-scale=0.1", "--provider=certify")
	on := []string{"--insecure", "--addr=" + p.addr}
	walk := start(t, environment(), "capacityctl", append(on, "walk", "--no-configure")...)
	walk.line("create +CREATING")
	if err := walk.cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	walk.line("cleaning up; a second interrupt leaves it as it is")
	walk.line("cleaned up: certify-.* is SPECULATIVE, nothing of it is left")
	if code := walk.exit(30 * time.Second); code != 1 {
		t.Errorf("an interrupted walk ends with %d", code)
	}
	mustCtl(t, "16 machines: 16 SPECULATIVE", append(on, "list")...)
	walk = start(t, environment(), "capacityctl", append(on, "walk", "--no-configure")...)
	if code := walk.exit(30 * time.Second); code != 0 {
		t.Errorf("a walk ends with %d", code)
	}
}

// TestWalkAsksDespiteAPipe: whoever pipes the blob in still sits at a terminal,
// and is asked there.
func TestWalkAsksDespiteAPipe(t *testing.T) {
	t.Parallel()
	p := startProvider(t, environment(), nil, "--use-fake-backend", "--provider=certify")
	term := terminaltest.Open(t, 120, 20)
	walk := exec.Command(filepath.Join(bin, "capacityctl"), "walk", "--cluster=c1", "--blob-file=-", "--insecure", "--addr="+p.addr)
	walk.Env = environment("TERM=xterm")
	walk.Stdin, walk.Stdout, walk.Stderr = strings.NewReader("blob"), term.TTY, term.TTY
	walk.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true, Ctty: 1}
	if err := walk.Start(); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(30 * time.Second); !strings.Contains(term.String(), "Go on? [y/N]"); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("it does not ask:\n%s", term)
		}
	}
	if err := term.Type("no\n"); err != nil {
		t.Fatal(err)
	}
	if err := walk.Wait(); walk.ProcessState.ExitCode() != 1 {
		t.Errorf("a walk that is declined ends with %v:\n%s", err, term)
	}
	mustCtl(t, "16 machines: 16 SPECULATIVE", "list", "--insecure", "--addr="+p.addr)
}
