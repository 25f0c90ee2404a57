package node

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// api is an API server with one node, node-1, that knows its kubelet by a
// client certificate.
type api struct {
	mu     sync.Mutex
	calls  []string
	bodies map[string]string
	answer func(r *http.Request) (code int, body any)
	server *httptest.Server
	cert   []byte // of the kubelet
	key    []byte
}

func newAPI(t *testing.T, answer func(r *http.Request) (int, any)) *api {
	t.Helper()
	a := &api{bodies: map[string]string{}, answer: answer}
	a.cert, a.key = clientCertificate(t, "system:node:node-1")
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(a.cert)
	a.server = httptest.NewUnstartedServer(a)
	a.server.TLS = &tls.Config{ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: roots, MinVersion: tls.VersionTLS12}
	a.server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	a.server.StartTLS()
	t.Cleanup(a.server.Close)
	return a
}

func clientCertificate(t *testing.T, user string) (cert, key []byte) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: user, Organization: []string{"system:nodes"}},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: raw})
}

func (a *api) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	a.mu.Lock()
	name := r.Method + " " + r.URL.RequestURI()
	a.calls = append(a.calls, name)
	a.bodies[name] = string(body)
	code, answer := a.answer(r)
	a.mu.Unlock()
	w.WriteHeader(code)
	if err := json.NewEncoder(w).Encode(answer); err != nil {
		w.WriteHeader(http.StatusInternalServerError)
	}
}

// asked are the requests so far. One that its client has given up may still be
// under way.
func (a *api) asked() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.calls)
}

// sent is the body of the last request of that name.
func (a *api) sent(name string) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.bodies[name]
}

func (a *api) ca() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.server.Certificate().Raw})
}

func (a *api) client(t *testing.T) *Client {
	t.Helper()
	c, err := New(a.kubeconfig(t), "node-1")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	c.pause = 10 * time.Millisecond
	return c
}

// kubeconfig writes the file as kubeadm's kubelet has it.
func (a *api) kubeconfig(t *testing.T) (path string) {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "current.pem"), append(a.cert, a.key...), 0o600); err != nil {
		t.Fatal(err)
	}
	path = filepath.Join(dir, "kubelet.conf")
	text := fmt.Sprintf(`apiVersion: v1
clusters:
- cluster:
    certificate-authority-data: %s
    server: %s
  name: default-cluster
contexts:
- context:
    cluster: default-cluster
    namespace: default
    user: default-auth
  name: default-context
current-context: default-context
kind: Config
users:
- name: default-auth
  user:
    client-certificate: %s
    client-key: current.pem
`, base64.StdEncoding.EncodeToString(a.ca()), a.server.URL, filepath.Join(dir, "current.pem"))
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func refusal(message string) map[string]any {
	return map[string]any{"kind": "Status", "message": message}
}

func pod(name, owner string, more map[string]any) map[string]any {
	meta := map[string]any{"namespace": "ns", "name": name, "uid": "uid-" + name}
	if owner != "" {
		meta["ownerReferences"] = []map[string]any{{"kind": owner, "controller": true}}
	}
	out := map[string]any{"metadata": meta, "status": map[string]any{"phase": "Running"}}
	maps.Copy(out, more)
	return out
}

// cluster answers like an API server whose pods are there until something
// removes them.
func clusterOf(pods map[string]map[string]any, evict func(name string) (int, any)) func(*http.Request) (int, any) {
	return func(r *http.Request) (int, any) {
		switch r.Method {
		case http.MethodPatch:
			return 200, map[string]any{}
		case http.MethodGet:
			items := make([]map[string]any, 0, len(pods))
			for _, p := range pods {
				items = append(items, p)
			}
			return 200, map[string]any{"items": items}
		}
		name := strings.Split(r.URL.Path, "/")[6]
		code, body := evict(name)
		if code < 300 {
			delete(pods, name)
		}
		return code, body
	}
}
