package deploy

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// cluster is a real API server over a real etcd, without kubelets and
// controllers: it judges and keeps objects, and runs nothing.
type cluster struct {
	address, token, kubeconfig string
	client                     *http.Client
}

// startCluster starts one for the length of the test; without the programs the
// test is skipped, and says what is missing.
func startCluster(t *testing.T) *cluster {
	t.Helper()
	apiserver := filepath.Join(tools(), "kube", "bin", "kube-apiserver")
	if _, err := os.Stat(apiserver); err != nil {
		t.Skipf("no kube-apiserver, so nothing is installed into a cluster (%v)", err)
	}
	etcd, err := exec.LookPath("etcd")
	if err != nil {
		t.Skip("no etcd, so nothing is installed into a cluster; run: apt-get install etcd-server")
	}
	dir, ports := t.TempDir(), freePorts(t, 3)
	c := &cluster{address: fmt.Sprintf("https://127.0.0.1:%d", ports[0]), token: "admin-token", kubeconfig: filepath.Join(dir, "kubeconfig")}
	certificate, key := selfSigned(t, "127.0.0.1")
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM([]byte(certificate))
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}}
	t.Cleanup(transport.CloseIdleConnections)
	c.client = &http.Client{Transport: transport, Timeout: 30 * time.Second}
	for name, content := range map[string]string{
		"tls.crt": certificate, "tls.key": key, "sa.key": signingKey(t), "tokens.csv": c.token + `,admin,1,"system:masters"` + "\n",
		"kubeconfig": fmt.Sprintf(`apiVersion: v1
kind: Config
current-context: test
clusters: [{name: test, cluster: {server: %q, certificate-authority: %q}}]
users: [{name: admin, user: {token: %s}}]
contexts: [{name: test, context: {cluster: test, user: admin}}]
`, c.address, filepath.Join(dir, "tls.crt"), c.token),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	in := func(name string) string { return filepath.Join(dir, name) }
	store, peers := fmt.Sprintf("http://127.0.0.1:%d", ports[1]), fmt.Sprintf("http://127.0.0.1:%d", ports[2])
	run(t, in("etcd.log"), etcd, "--data-dir", in("etcd"), "--listen-client-urls", store, "--advertise-client-urls", store,
		"--listen-peer-urls", peers, "--initial-advertise-peer-urls", peers, "--initial-cluster", "default="+peers)
	run(t, in("apiserver.log"), apiserver, "--etcd-servers="+store, "--bind-address=127.0.0.1", fmt.Sprintf("--secure-port=%d", ports[0]),
		"--tls-cert-file="+in("tls.crt"), "--tls-private-key-file="+in("tls.key"), "--cert-dir="+dir, "--token-auth-file="+in("tokens.csv"),
		"--authorization-mode=RBAC", "--service-account-issuer=https://kubernetes.default.svc", "--service-account-key-file="+in("sa.key"),
		"--service-account-signing-key-file="+in("sa.key"), "--service-cluster-ip-range=10.96.0.0/16",
		"--disable-admission-plugins=ServiceAccount,StorageObjectInUseProtection", "--endpoint-reconciler-type=none")
	for deadline := time.Now().Add(2 * time.Minute); ; {
		if status, _, err := c.try(t.Context(), http.MethodGet, "/readyz", nil); err == nil && status == http.StatusOK {
			return c
		}
		if time.Now().After(deadline) {
			log, _ := os.ReadFile(in("apiserver.log"))
			t.Fatalf("the API server is not ready:\n%s", log[max(0, len(log)-2000):])
		}
		select {
		case <-time.After(200 * time.Millisecond):
		case <-t.Context().Done():
			t.Fatal("the test ended before the API server was ready")
		}
	}
}

// run starts a process that the end of the test stops and waits for.
func run(t *testing.T, log, path string, args ...string) {
	t.Helper()
	out, err := os.Create(log)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 2 * time.Second // then it is killed: what it holds is thrown away
	if err := cmd.Start(); err != nil {
		stop()
		t.Fatal(err)
	}
	t.Cleanup(func() {
		stop()
		_ = cmd.Wait() // that it was told to stop is no news
		if err := out.Close(); err != nil {
			t.Error(err)
		}
	})
}

func freePorts(t *testing.T, n int) []int {
	t.Helper()
	var ports []int
	var held []net.Listener // until all are found, or one could be found twice
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		held = append(held, l)
		ports = append(ports, l.Addr().(*net.TCPAddr).Port)
	}
	for _, l := range held {
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
	return ports
}

// signingKey is what the API server signs tokens of service accounts with.
func signingKey(t *testing.T) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}))
}

// try makes one request; body is sent as JSON.
func (c *cluster) try(ctx context.Context, method, path string, body any) (status int, answer []byte, err error) {
	var payload io.Reader
	if body != nil {
		content, err := json.Marshal(body)
		if err != nil {
			return 0, nil, err
		}
		payload = bytes.NewReader(content)
	}
	req, err := http.NewRequestWithContext(ctx, method, c.address+path, payload)
	if err != nil {
		return 0, nil, err
	}
	req.Header.Set("Authorization", "Bearer "+c.token)
	req.Header.Set("Content-Type", "application/json")
	res, err := c.client.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer res.Body.Close()
	answer, err = io.ReadAll(res.Body)
	return res.StatusCode, answer, err
}

// create posts an object and fails the test unless it is taken.
func (c *cluster) create(t *testing.T, path string, object any) {
	t.Helper()
	if status, answer, err := c.try(t.Context(), http.MethodPost, path, object); err != nil || status != http.StatusCreated {
		t.Errorf("POST %s: %d %v %s", path, status, err, answer)
	}
}

// get reads an object; false is that it is not there.
func get[T any](t *testing.T, c *cluster, path string) (object T, found bool) {
	t.Helper()
	status, answer, err := c.try(t.Context(), http.MethodGet, path, nil)
	if err != nil || status != http.StatusOK && status != http.StatusNotFound {
		t.Fatalf("GET %s: %d %v %s", path, status, err, answer)
	}
	if status == http.StatusNotFound {
		return object, false
	}
	if err := json.Unmarshal(answer, &object); err != nil {
		t.Fatal(err)
	}
	return object, true
}

// helm runs a command against the cluster.
func (c *cluster) helm(t *testing.T, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	return helm(t, append(args, "--kubeconfig", c.kubeconfig, "--namespace", namespace)...)
}

func (c *cluster) mustHelm(t *testing.T, args ...string) string {
	t.Helper()
	stdout, stderr, err := c.helm(t, args...)
	if err != nil {
		t.Fatalf("helm %s: %v\n%s", strings.Join(args, " "), err, stderr)
	}
	return stdout
}
