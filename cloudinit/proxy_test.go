package cloudinit

import (
	"bufio"
	"crypto/tls"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// python runs lines of Python behind a template, with what stands in for the
// file of the agent's unit.
func python(t *testing.T, template, file, lines string, env []string, args ...string) string {
	t.Helper()
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("python3 is not installed")
	}
	var text strings.Builder
	if err := scripts.ExecuteTemplate(&text, template, nil); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "default")
	if err := os.WriteFile(path, []byte(file), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("python3", append([]string{"-"}, args...)...)
	cmd.Stdin = strings.NewReader(strings.ReplaceAll(text.String(), "/etc/default/bigfleet-agent", path) + "\n" + lines)
	cmd.Env = append([]string{"PATH=/usr/bin:/bin"}, env...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return strings.TrimSuffix(string(out), "\n")
}

// The file of the agent's unit is read as systemd.exec(5) says.
func TestProxySettings(t *testing.T) {
	for _, tt := range []struct{ name, file, want string }{
		{"plain", "HTTPS_PROXY=http://proxy:3128\n", "http://proxy:3128"},
		{"no end of line", "HTTPS_PROXY=http://proxy:3128", "http://proxy:3128"},
		{"double quotes", `HTTPS_PROXY="http://proxy:3128"`, "http://proxy:3128"},
		{"single quotes", `HTTPS_PROXY='http://proxy:3128'`, "http://proxy:3128"},
		{"spaces around", "  HTTPS_PROXY = http://proxy:3128 \t\n", "http://proxy:3128"},
		{"CRLF", "HTTPS_PROXY=http://proxy:3128\r\nX=1\r\n", "http://proxy:3128"},
		{"continued", "HTTPS_PROXY=http://\\\nproxy:3128\n", "http://proxy:3128"},
		{"continued in quotes", "HTTPS_PROXY=\"http://\\\nproxy:3128\"\n", "http://proxy:3128"},
		{"escaped", `HTTPS_PROXY=http://a\b`, "http://ab"},
		{"escaped in quotes", `HTTPS_PROXY="a\"b\n"`, `a"b\n`},
		{"the last one", "HTTPS_PROXY=a\nHTTPS_PROXY=b\n", "b"},
		{"taken back", "HTTPS_PROXY=\n", ""},
		{"comments", "# HTTPS_PROXY=a\n; HTTPS_PROXY=b\n\n", "inherited"},
		{"a comment that goes on", "# note \\\nHTTPS_PROXY=a\n", "inherited"},
		{"no name", "x y=1\nexport HTTPS_PROXY=a\n=b\n\\\n", "inherited"},
		{"no script", "HTTPS_PROXY=$(touch here)`touch here`\n", "$(touch here)`touch here`"},
		{"empty", "", "inherited"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := python(t, "proxy.py", tt.file, `print(settings()["HTTPS_PROXY"])`, []string{"HTTPS_PROXY=inherited"})
			if got != tt.want {
				t.Errorf("%q, want %q", got, tt.want)
			}
		})
	}
}

// TestProxyOfTheAgent is no test: TestProxyRules runs it for each environment,
// since net/http reads its own only once.
func TestProxyOfTheAgent(t *testing.T) {
	urls := os.Getenv("PROXY_FOR")
	if urls == "" {
		t.Skip("run by TestProxyRules")
	}
	for u := range strings.FieldsSeq(urls) {
		r, err := http.NewRequest(http.MethodGet, u, nil)
		if err != nil {
			t.Fatal(err)
		}
		proxy, err := http.ProxyFromEnvironment(r)
		if err != nil {
			t.Fatal(err)
		}
		if proxy == nil {
			fmt.Printf("%s: direct\n", u)
		} else {
			fmt.Printf("%s: %s %s %s\n", u, proxy.Scheme, proxy.Hostname(), proxy.Port())
		}
	}
	os.Exit(0)
}

// The first boot goes by a proxy for the same servers as the agent, whose rules
// are those of net/http.
func TestProxyRules(t *testing.T) {
	urls := []string{
		"https://provider.example:9443", "https://provider.example", "https://a.provider.example:9443", "https://xprovider.example",
		"https://10.1.2.3:9443", "https://10.1.2.3", "https://192.168.0.1:9443", "https://[fd00::1]:9443", "https://[fd00::1]", "https://[fd01::1]",
		"https://[::ffff:10.1.2.3]:9443", "https://localhost:9443", "https://127.0.0.9:9443", "https://[::1]", "http://provider.example", "https://provider",
	}
	environments := [][]string{
		{"HTTPS_PROXY=https://proxy:3129"}, {"HTTPS_PROXY=proxy:3128"}, {"HTTPS_PROXY=10.0.0.1:3128"}, {"HTTPS_PROXY=proxy"}, {"HTTPS_PROXY=socks5://proxy"},
		{"https_proxy=http://user:p%40ss@proxy:3128"}, {"HTTPS_PROXY=http://[fd00::9]:3128"}, {"HTTP_PROXY=http://proxy:3128"}, {"ALL_PROXY=http://proxy:3128"},
		{"HTTPS_PROXY=http://upper:1", "https_proxy=http://lower:1", "NO_PROXY=provider.example", "no_proxy=10.0.0.0/8"},
	}
	for _, no := range []string{
		"*", "10.0.0.0/8", "10.1.2.3/8", "10.0.0.0/33", "10.0.0.0/255.0.0.0", "fd00::/16", "10.1.2.3", "10.1.2.3:9443", "10.1.2.3:1", "[fd00::1]:9443", "[fd00::1]:443",
		"[fd00::1]", "fd00::1", "FD00:0::1", "provider.example", ".provider.example", "*.provider.example", "*provider.example", "provider.example:9443", "provider.example:443", ".provider.example:9443",
		"PROVIDER.example", " provider.example , 10.0.0.0/8", "example", ".example", "a,,b", ":443", "provider", "other,*", "*:9443", ".", "10.", "192.168.0.*", "::ffff:10.1.2.3", "localhost",
	} {
		environments = append(environments, []string{"HTTPS_PROXY=http://proxy:3128", "NO_PROXY=" + no})
	}
	const ask = `
import json
for env in json.loads(sys.argv[1]):
    os.environ.clear()
    os.environ.update(e.split("=", 1) for e in env)
    for url in sys.argv[2:]:
        p = proxy_for(url)
        print(f"{url}: " + (f"{p.scheme} {p.hostname} {p.port or ''}" if p else "direct"))
`
	all, err := json.Marshal(environments)
	if err != nil {
		t.Fatal(err)
	}
	got := strings.Split(python(t, "proxy.py", "", ask, nil, append([]string{string(all)}, urls...)...), "\n")
	if len(got) != len(environments)*len(urls) {
		t.Fatalf("%d lines", len(got))
	}
	for i, env := range environments {
		agent := exec.Command(os.Args[0], "-test.run=^TestProxyOfTheAgent$")
		agent.Env = append([]string{"PROXY_FOR=" + strings.Join(urls, " ")}, env...)
		want, err := agent.CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s", err, want)
		}
		firstBoot := strings.Join(got[i*len(urls):(i+1)*len(urls)], "\n") + "\n"
		if diff := cmp.Diff(string(want), firstBoot); diff != "" {
			t.Errorf("%s (-agent +first boot):\n%s", strings.Join(env, " "), diff)
		}
	}
}

// A proxy of each kind, which knows the provider by a name that nobody else can
// resolve, and asks for a password.
func TestFirstBootThroughProxies(t *testing.T) {
	for _, kind := range []string{"http", "https", "socks5"} {
		t.Run(kind, func(t *testing.T) {
			p := params(t, InstallChannel)
			packageServer(t, &p, "the package")
			target := strings.TrimPrefix(p.Endpoint, "https://")
			_, port, err := net.SplitHostPort(target)
			if err != nil {
				t.Fatal(err)
			}
			p.Endpoint = "https://Example.COM.:" + port + "/" // httptest's certificate names it, with no dot
			proxy := newProxy(t, kind, "example.com:"+port, target)
			calls, out, err := firstBoot(t, p, "HTTPS_PROXY="+proxy.url, "NO_PROXY=10.0.0.0/8,example.com:1")
			if err != nil || proxy.served() != 1 || strings.Contains(out, "p@ss") || strings.Contains(calls, "p@ss") {
				t.Errorf("%v, %d by the proxy\n%s\n%s", err, proxy.served(), out, calls)
			}
		})
	}
	t.Run("not for this one", func(t *testing.T) {
		p := params(t, InstallChannel)
		packageServer(t, &p, "the package")
		// Loopback addresses never go by a proxy.
		if _, out, err := firstBoot(t, p, "HTTPS_PROXY=http://192.0.2.1:1"); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
	})
	t.Run("one that refuses", func(t *testing.T) {
		p := params(t, InstallChannel)
		packageServer(t, &p, "the package")
		p.Endpoint = "https://provider.test:1"
		proxy := newProxy(t, "http", "another:1", "127.0.0.1:1")
		if _, out, err := firstBoot(t, p, "HTTPS_PROXY="+proxy.url); err == nil || !strings.Contains(out, "the proxy answered: HTTP/1.1 403") {
			t.Errorf("%v\n%.800s", err, out)
		}
	})
}

// apt is told what the agent's rules say for its source.
func TestFirstBootFromAPTThroughProxy(t *testing.T) {
	p := params(t, InstallAPT)
	for _, tt := range []struct {
		name, uri, want string
		env             []string
	}{
		{"none", "https://packages.example/debian", "", nil},
		{"by a proxy", "https://packages.example/debian", "http://u:p@proxy:3128", []string{"HTTPS_PROXY=u:p@proxy:3128", "NO_PROXY=10.0.0.0/8"}},
		{"SOCKS", "https://packages.example/debian", "socks5h://proxy:1080", []string{"HTTPS_PROXY=socks5://proxy:1080"}},
		{"plain HTTP", "http://packages.example/debian", "http://plain:1", []string{"HTTPS_PROXY=http://proxy:3128", "HTTP_PROXY=http://plain:1"}},
		{"a range of addresses", "https://10.1.2.3/debian", "", []string{"HTTPS_PROXY=http://proxy:3128", "NO_PROXY=10.0.0.0/8", "https_proxy=http://x:1"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p.APT.URI = tt.uri
			seen := filepath.Join(t.TempDir(), "seen")
			calls, out, err := firstBoot(t, p, append(tt.env, "SEEN="+seen)...)
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			got, err := os.ReadFile(seen)
			if err != nil {
				t.Fatal(err)
			}
			want := ""
			if tt.want != "" {
				want = "http_proxy=" + tt.want + "\nhttps_proxy=" + tt.want + "\n"
			}
			if string(got) != want || tt.want != "" && strings.Contains(calls, tt.want) {
				t.Errorf("apt's environment is %q, want %q; calls:\n%s", got, want, calls)
			}
		})
	}
}

// testProxy connects whoever knows user and password to one name.
type testProxy struct {
	url          string
	name, target string
	mu           sync.Mutex
	n            int
}

func (p *testProxy) served() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.n
}

func newProxy(t *testing.T, kind, name, target string) *testProxy {
	t.Helper()
	p := &testProxy{name: name, target: target}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p.url = kind + "://user:p%40ss@" + ln.Addr().String()
	serve := p.connectHTTP
	switch kind {
	case "https":
		// httptest's certificate is the same for all its servers, so that the
		// pinned CA is this one's, too: as for the agent.
		srv := httptest.NewTLSServer(nil)
		ln = tls.NewListener(ln, &tls.Config{Certificates: srv.TLS.Certificates, MinVersion: tls.VersionTLS13})
		srv.Close()
	case "socks5":
		serve = p.connectSOCKS
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer conn.Close()
				if err := serve(conn); err != nil {
					t.Logf("proxy: %v", err)
				}
			})
		}
	})
	t.Cleanup(func() {
		ln.Close()
		wg.Wait()
	})
	return p
}

func (p *testProxy) connectHTTP(conn net.Conn) error {
	in := bufio.NewReader(conn)
	r, err := http.ReadRequest(in)
	if err != nil {
		return err
	}
	want := "Basic " + base64.StdEncoding.EncodeToString([]byte("user:p@ss"))
	if r.Method != http.MethodConnect || r.Host != p.name || r.Header.Get("Proxy-Authorization") != want {
		_, err := io.WriteString(conn, "HTTP/1.1 403 Forbidden\r\n\r\n")
		return err
	}
	return p.join(conn, in, "HTTP/1.1 200 OK\r\nX: y\r\n\r\n")
}

func (p *testProxy) connectSOCKS(conn net.Conn) error {
	in := bufio.NewReader(conn)
	read := func(n int) []byte {
		b := make([]byte, n)
		_, _ = io.ReadFull(in, b) // what is missing is seen in what was read
		return b
	}
	if methods := read(int(read(2)[1])); !slices.Contains(methods, 2) {
		return fmt.Errorf("methods %v", methods)
	}
	if _, err := conn.Write([]byte{5, 2}); err != nil {
		return err
	}
	user := read(int(read(2)[1]))
	password := read(int(read(1)[0]))
	if string(user) != "user" || string(password) != "p@ss" {
		return fmt.Errorf("user %q, password %q", user, password)
	}
	if _, err := conn.Write([]byte{1, 0}); err != nil {
		return err
	}
	if ask := read(4); ask[1] != 1 || ask[3] != 3 {
		return fmt.Errorf("asked for %v", ask)
	}
	host := read(int(read(1)[0]))
	if name := fmt.Sprintf("%s:%d", host, binary.BigEndian.Uint16(read(2))); name != p.name {
		return fmt.Errorf("asked for %q", name)
	}
	return p.join(conn, in, "\x05\x00\x00\x01\x7f\x00\x00\x01\x00\x01")
}

func (p *testProxy) join(conn net.Conn, in io.Reader, said string) error {
	far, err := net.Dial("tcp", p.target)
	if err != nil {
		return err
	}
	defer far.Close()
	p.mu.Lock()
	p.n++
	p.mu.Unlock()
	if _, err := io.WriteString(conn, said); err != nil {
		return err
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = io.Copy(far, in) // ends with either side
		far.Close()
	}()
	_, _ = io.Copy(conn, far) // ends with either side
	conn.Close()
	<-done
	return nil
}
