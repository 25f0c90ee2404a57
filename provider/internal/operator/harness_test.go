package operator

import (
	"bytes"
	"cmp"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	pb "bigfleet-providers/proto/bigfleet/v1alpha1"
)

// TestMain takes away what a shell that uses capacityctl exports, as the tutorial
// has it.
func TestMain(m *testing.M) {
	for _, entry := range os.Environ() {
		if name, _, _ := strings.Cut(entry, "="); strings.HasPrefix(name, environmentPrefix) {
			if err := os.Unsetenv(name); err != nil {
				panic(err)
			}
		}
	}
	goleak.VerifyTestMain(m)
}

// output is a buffer that a running command writes and a test reads.
type output struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}

// capacityctl runs a command line.
func capacityctl(args ...string) (code int, stdout, stderr string) {
	var out, err output
	code = Main("test", args, bytes.NewReader([]byte("from stdin")), &out, &err)
	return code, out.String(), err.String()
}

// scripted is a provider that answers from memory.
type scripted struct {
	pb.UnimplementedCapacityProviderServer

	mu       sync.Mutex
	machines []*pb.Machine // in the order of their last change
	revision byte
	filters  []*pb.ListFilter
	calls    []proto.Message  // the mutating ones
	fail     error            // of every call, while set
	refuse   map[string]error // of a mutating call, by its name in small letters
	health   health
	// move is what becomes of a machine at each Get while it is under way.
	move func(*pb.Machine)
}

// health answers as it is told; SERVING if nothing.
type health struct {
	healthpb.UnimplementedHealthServer
	status healthpb.HealthCheckResponse_ServingStatus
}

func (h *health) Check(context.Context, *healthpb.HealthCheckRequest) (*healthpb.HealthCheckResponse, error) {
	return &healthpb.HealthCheckResponse{Status: cmp.Or(h.status, healthpb.HealthCheckResponse_SERVING)}, nil
}

func (s *scripted) edit(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

// set puts a machine at the end of the list.
func (s *scripted) set(m *pb.Machine) {
	for i, old := range s.machines {
		if old.GetId() == m.GetId() {
			s.machines = append(s.machines[:i], s.machines[i+1:]...)
			break
		}
	}
	s.machines = append(s.machines, m)
	s.revision++
}

func (s *scripted) List(_ context.Context, f *pb.ListFilter) (*pb.MachineList, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.filters = append(s.filters, f)
	if s.fail != nil {
		return nil, s.fail
	}
	l := &pb.MachineList{Revision: []byte{s.revision}}
	if !bytes.Equal(f.GetSinceRevision(), l.Revision) {
		for _, m := range s.machines {
			if among(f.GetStates(), m.GetState()) {
				l.Machines = append(l.Machines, proto.CloneOf(m))
			}
		}
	}
	return l, nil
}

func (s *scripted) find(id string) (*pb.Machine, error) {
	if s.fail != nil {
		return nil, s.fail
	}
	for _, m := range s.machines {
		if m.GetId() == id {
			return m, nil
		}
	}
	return nil, status.Errorf(codes.NotFound, "machine %q: not found", id)
}

func (s *scripted) Get(_ context.Context, ref *pb.MachineRef) (*pb.Machine, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m, err := s.find(ref.GetId())
	if err == nil && s.move != nil && underWay(m.GetState()) {
		s.move(m)
	}
	return proto.CloneOf(m), err
}

func (s *scripted) start(id string, call proto.Message, during pb.MachineState) (*pb.TransitionAck, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	kind := strings.ToLower(strings.TrimSuffix(string(call.ProtoReflect().Descriptor().Name()), "Request"))
	if err := s.refuse[kind]; err != nil {
		return nil, err
	}
	m, err := s.find(id)
	if err != nil {
		return nil, err
	}
	s.calls = append(s.calls, proto.Clone(call))
	m.State = during
	return &pb.TransitionAck{OperationId: "op-1", Machine: proto.CloneOf(m)}, nil
}

func (s *scripted) Create(_ context.Context, r *pb.CreateRequest) (*pb.TransitionAck, error) {
	return s.start(r.GetMachineId(), r, pb.MachineState_MACHINE_STATE_CREATING)
}

func (s *scripted) Configure(_ context.Context, r *pb.ConfigureRequest) (*pb.TransitionAck, error) {
	return s.start(r.GetMachineId(), r, pb.MachineState_MACHINE_STATE_CONFIGURING)
}

func (s *scripted) Drain(_ context.Context, r *pb.DrainRequest) (*pb.TransitionAck, error) {
	return s.start(r.GetMachineId(), r, pb.MachineState_MACHINE_STATE_DRAINING)
}

func (s *scripted) Delete(_ context.Context, r *pb.DeleteRequest) (*pb.TransitionAck, error) {
	return s.start(r.GetMachineId(), r, pb.MachineState_MACHINE_STATE_DELETING)
}

// serve serves the provider on loopback and returns its address. nil is
// plaintext.
func serve(t *testing.T, s *scripted, cfg *tls.Config) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	creds := insecure.NewCredentials()
	if cfg != nil {
		creds = credentials.NewTLS(cfg)
	}
	srv := grpc.NewServer(grpc.Creds(creds))
	pb.RegisterCapacityProviderServer(srv, s)
	healthpb.RegisterHealthServer(srv, &s.health)
	served := make(chan error, 1)
	go func() { served <- srv.Serve(ln) }()
	t.Cleanup(func() {
		srv.Stop()
		// A server that nobody has dialled may not have begun to serve.
		if err := <-served; err != nil && !errors.Is(err, grpc.ErrServerStopped) {
			t.Error(err)
		}
	})
	return ln.Addr().String()
}

// certificate makes a self-signed certificate for a name, and its PEM files.
// edit may change what it says.
func certificate(t *testing.T, name string, edit ...func(*x509.Certificate)) (pair tls.Certificate, certFile, keyFile string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Minute), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, DNSNames: []string{name},
	}
	for _, e := range edit {
		e(template)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	certPEM := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	keyPEM := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER})
	dir := t.TempDir()
	certFile, keyFile = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	for file, content := range map[string][]byte{certFile: certPEM, keyFile: keyPEM} {
		if err := os.WriteFile(file, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	pair, err = tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		t.Fatal(err)
	}
	return pair, certFile, keyFile
}
