// Package channeltest is a small bootstrap channel for the agent's tests: real
// TLS and HTTP/2 over loopback, one machine, and switches for faults.
package channeltest

import (
	"cmp"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"bigfleet-providers/shared/command"
	"bigfleet-providers/shared/token"
)

// RunnerVar chooses hook_runner for every Config; unset, hooks run directly, also
// where systemd is there.
const RunnerVar = "BIGFLEET_TEST_RUNNER"

// MachineID is the one machine that the channel knows.
const MachineID = "m-000001"

// Server is the channel. Set its switches before the first request or with the
// lock that Do takes.
type Server struct {
	URL   string
	CAPEM string
	Token string

	mu      sync.Mutex
	changed chan struct{}
	pending *command.Command
	acks    []command.Ack
	polls   []http.Header
	auth    string

	// IgnoreHave makes the channel answer as one that does not know
	// command.HeaderHave.
	IgnoreHave bool
	// KeepAfterAck leaves the command pending after its ack.
	KeepAfterAck bool
	// Intercept, when it returns true, has answered in the channel's place.
	Intercept func(w http.ResponseWriter, r *http.Request) bool
}

// Options choose the server's certificate.
type Options struct {
	NotBefore, NotAfter time.Time // zero: an hour around now
	Host                string    // "": 127.0.0.1
	CloseTLS            bool      // speak plain HTTP on the port
}

// Start runs a channel until the test ends.
func Start(t testing.TB, opt Options) *Server {
	t.Helper()
	secret, err := token.NewSecret([]byte(strings.Repeat("channeltest-", 4)))
	if err != nil {
		t.Fatal(err)
	}
	s := &Server{Token: token.Derive(secret, MachineID, "op-1"), changed: make(chan struct{})}
	s.auth = "Bearer " + s.Token
	server := httptest.NewUnstartedServer(s)
	// Clients that go away are not worth a line.
	server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	server.EnableHTTP2 = true
	cert, ca := certificate(t, opt)
	s.CAPEM = ca
	server.TLS = &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS13}
	if opt.CloseTLS {
		server.Start()
		s.URL = "https" + strings.TrimPrefix(server.URL, "http")
	} else {
		server.StartTLS()
		s.URL = server.URL
	}
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	return s
}

// Do runs f with the server's lock.
func (s *Server) Do(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
	close(s.changed)
	s.changed = make(chan struct{})
}

// Deliver makes cmd the machine's pending command.
func (s *Server) Deliver(cmd command.Command) { s.Do(func() { s.pending = &cmd }) }

// Acks returns every report that arrived, also repeated and refused ones.
func (s *Server) Acks() []command.Ack {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]command.Ack(nil), s.acks...)
}

// Polls returns the headers of every poll.
func (s *Server) Polls() []http.Header {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]http.Header(nil), s.polls...)
}

// Config writes a configuration file for an agent of this channel into dir and
// returns its path. hook may be "".
func (s *Server) Config(t testing.TB, dir, hook string) string {
	t.Helper()
	body, err := json.Marshal(map[string]string{
		"endpoint": s.URL, "ca_pem": s.CAPEM, "machine_id": MachineID, "token": s.Token,
		"hook": hook, "state_dir": filepath.Join(dir, "state"), "runtime_dir": filepath.Join(dir, "run"),
		"hook_runner": cmp.Or(os.Getenv(RunnerVar), "direct"),
	})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "config.json")
	if err := os.WriteFile(path, body, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// ServeHTTP answers as a provider does.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	intercept := s.Intercept
	s.mu.Unlock()
	if intercept != nil && intercept(w, r) {
		return
	}
	if r.Header.Get("Authorization") != s.auth || r.URL.Query().Get(command.ParamMachineID) != MachineID {
		http.Error(w, "unauthorised", http.StatusUnauthorized)
		return
	}
	switch r.Method + " " + r.URL.Path {
	case "GET " + command.PathCommand:
		s.poll(w, r)
	case "POST " + command.PathAck:
		s.ack(w, r)
	default:
		http.NotFound(w, r)
	}
}

func (s *Server) poll(w http.ResponseWriter, r *http.Request) {
	wait, err := time.ParseDuration(r.URL.Query().Get(command.ParamWait) + "s")
	if err != nil {
		wait = 0
	}
	deadline := time.After(wait)
	s.mu.Lock()
	s.polls = append(s.polls, r.Header)
	s.mu.Unlock()
	for {
		s.mu.Lock()
		cmd, changed := s.pending, s.changed
		have := r.Header.Get(command.HeaderHave)
		if s.IgnoreHave {
			have = ""
		}
		s.mu.Unlock()
		if cmd != nil && cmd.CommandID != have {
			w.Header().Set("Content-Type", command.MediaType)
			_ = json.NewEncoder(w).Encode(cmd) // the client may be gone
			return
		}
		select {
		case <-changed:
		case <-r.Context().Done():
			return
		case <-deadline:
			w.WriteHeader(http.StatusNoContent)
			return
		}
	}
}

func (s *Server) ack(w http.ResponseWriter, r *http.Request) {
	ack, err := command.DecodeAck(r.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	settled := false
	for _, a := range s.acks {
		settled = settled || a.CommandID == ack.CommandID
	}
	pending := s.pending != nil && s.pending.CommandID == ack.CommandID
	s.acks = append(s.acks, *ack)
	if !pending && !settled {
		http.Error(w, "not the machine's command", http.StatusConflict)
		return
	}
	if pending && !s.KeepAfterAck {
		s.pending = nil
	}
}

// certificate makes a CA and a server certificate signed by it.
func certificate(t testing.TB, opt Options) (server tls.Certificate, caPEM string) {
	t.Helper()
	if opt.NotBefore.IsZero() {
		opt.NotBefore = time.Now().Add(-time.Hour)
	}
	if opt.NotAfter.IsZero() {
		opt.NotAfter = time.Now().Add(time.Hour)
	}
	ca := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "channeltest CA"},
		NotBefore: time.Now().AddDate(-20, 0, 0), NotAfter: time.Now().AddDate(20, 0, 0),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	caKey := key(t)
	caDER, err := x509.CreateCertificate(rand.Reader, ca, ca, caKey.Public(), caKey)
	if err != nil {
		t.Fatal(err)
	}
	leaf := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "channeltest"},
		NotBefore: opt.NotBefore, NotAfter: opt.NotAfter,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	if opt.Host != "" {
		leaf.DNSNames = []string{opt.Host}
	} else {
		leaf.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1)}
	}
	leafKey := key(t)
	der, err := x509.CreateCertificate(rand.Reader, leaf, ca, leafKey.Public(), caKey)
	if err != nil {
		t.Fatal(err)
	}
	caPEM = string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: caDER}))
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: leafKey}, caPEM
}

func key(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// Configure returns a Configure command that is due in a minute.
func Configure(id, blob string) command.Command {
	return command.Command{
		CommandID: id, Kind: command.Configure, MachineID: MachineID, ClusterID: "cluster-a",
		ProviderID: "test://" + MachineID, NodeName: "node-1", Blob: []byte(blob), Deadline: time.Now().Add(time.Minute).Round(0),
	}
}

// Drain returns a Drain command that is due in a minute.
func Drain(id string) command.Command {
	c := Configure(id, "")
	c.Kind, c.Blob, c.GraceSeconds = command.Drain, nil, 30
	return c
}

// Eventually waits until ok returns true.
func Eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not in time: %s", what)
		}
	}
}
