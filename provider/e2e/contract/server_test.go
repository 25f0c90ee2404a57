package contract

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	pb "bigfleet-providers/proto/bigfleet/v1alpha1"
)

// tester is whose failure a wrong answer is: a test, or one run of a property.
type tester interface {
	Helper()
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
}

// server is the server under test, and a client of it.
type server struct {
	pb.CapacityProviderClient
	t    tester
	conn *grpc.ClientConn
	test *testing.T // whose end is the end of leases and processes
	own  *process   // nil for the target
	args []string   // of own
}

// shared is what all tests know of the target.
var shared struct {
	conn    *grpc.ClientConn
	allowed []string // the machines that may be used
	barred  string   // why machines may not be used, if they may not
	fenced  bool     // the target refuses calls without a token
}

// in is the same server, judged by another test.
func (s *server) in(t tester) *server {
	t.Helper()
	in := *s
	in.t = t
	if sub, ok := t.(*testing.T); ok {
		in.test = sub
	}
	return &in
}

// open gives a test a server with so many machines at least: one of its own, or
// the target. Tests of a target run one after the other, since some of them
// watch that nothing changes.
func open(t *testing.T, atLeast int) *server {
	t.Helper()
	if *target != "" {
		return &server{CapacityProviderClient: pb.NewCapacityProviderClient(shared.conn), t: t, test: t, conn: shared.conn}
	}
	t.Parallel()
	return start(t, flags(atLeast)...)
}

// metal is the substrate that gives nothing back.
const metal = "elastic-metal"

// keeps says that a machine which was created stays: there is no Delete.
func keeps() bool { return *substrate == metal }

// flags are those of a provider with so many machines at least. An install takes
// minutes; scaled as all else, the fake would spend the test on it.
func flags(atLeast int) []string {
	f := []string{"--use-fake-backend", "--provider=certify", fmt.Sprintf("--seed-count=%d", max(16, atLeast))}
	if keeps() {
		f = append(f, "--substrate="+metal, "--fake-scale=0.0005")
	}
	return f
}

// forRuns is how many machines a property needs that uses so many in a run: where
// none comes back, each run uses others, and so does the search for a smaller
// failure.
func forRuns(n int) int {
	if !keeps() {
		return n
	}
	runs, err := strconv.Atoi(flag.Lookup("rapid.checks").Value.String())
	if err != nil {
		panic("contract: -rapid.checks is no number: " + err.Error())
	}
	const smaller = 10
	return n * (runs + smaller)
}

// openKept gives a test a server that can be restarted, or skips it.
func openKept(t *testing.T, atLeast int) *server {
	t.Helper()
	if *target != "" {
		t.Skip("needs the server's process, to restart it: only without -target")
	}
	t.Parallel()
	return start(t, append(flags(atLeast), "--state="+filepath.Join(t.TempDir(), "state.db"))...)
}

func start(t *testing.T, args ...string) *server {
	t.Helper()
	s := &server{t: t, test: t, args: args}
	s.restart()
	return s
}

// restart kills the server's process, if it runs, and starts it again with the
// same flags.
func (s *server) restart() {
	s.t.Helper()
	if s.own != nil {
		s.own.kill()
	}
	s.own = startProcess(s.test, s.args)
	conn, err := dial(s.own.addr, insecure.NewCredentials())
	if err != nil {
		s.t.Fatalf("%v", err)
	}
	s.test.Cleanup(func() { conn.Close() })
	s.conn, s.CapacityProviderClient = conn, pb.NewCapacityProviderClient(conn)
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if _, err := s.List(ctx, &pb.ListFilter{MaxResults: 1}, grpc.WaitForReady(true)); err != nil {
		s.t.Fatalf("the provider does not answer: %v\n%s", err, s.own.out.tail())
	}
}

func dial(addr string, creds credentials.TransportCredentials) (*grpc.ClientConn, error) {
	return grpc.NewClient(addr, grpc.WithTransportCredentials(creds), grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(256<<20)))
}

// dialTarget connects to the target and finds out what may be done to it.
func dialTarget() error {
	creds, err := targetCredentials()
	if err != nil {
		return err
	}
	if shared.conn, err = dial(*target, creds); err != nil {
		return fmt.Errorf("-target: %w", err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	client := pb.NewCapacityProviderClient(shared.conn)
	l, err := client.List(ctx, &pb.ListFilter{States: []pb.MachineState{speculative}})
	if err != nil {
		return errors.Join(fmt.Errorf("-target: %w", err), shared.conn.Close())
	}
	free := l.GetMachines()
	_, err = client.Delete(ctx, &pb.DeleteRequest{MachineId: run, ShardId: run, ShardEpoch: 1})
	switch {
	case !*destructive:
		shared.barred = "would change machines of the target: only with -destructive"
	case status.Code(err) == codes.Unimplemented:
		shared.barred = "the target cannot delete, so that its machines could not be given back"
	}
	_, err = client.Drain(ctx, &pb.DrainRequest{MachineId: run})
	shared.fenced = status.Code(err) == codes.InvalidArgument
	if shared.barred != "" {
		return nil
	}
	slices.SortFunc(free, func(a, b *pb.Machine) int {
		return cmp.Or(cmp.Compare(a.GetPricePerHour(), b.GetPricePerHour()), cmp.Compare(a.GetId(), b.GetId()))
	})
	for _, m := range free[:min(*machines, len(free))] {
		shared.allowed = append(shared.allowed, m.GetId())
	}
	return nil
}

func targetCredentials() (credentials.TransportCredentials, error) {
	if *tlsCA == "" {
		return insecure.NewCredentials(), nil
	}
	ca, err := os.ReadFile(*tlsCA)
	if err != nil {
		return nil, fmt.Errorf("-tls-ca: %w", err)
	}
	cfg := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: *tlsName, RootCAs: x509.NewCertPool()}
	if !cfg.RootCAs.AppendCertsFromPEM(ca) {
		return nil, fmt.Errorf("-tls-ca: %s holds no certificate in PEM", *tlsCA)
	}
	if *tlsCert != "" {
		pair, err := tls.LoadX509KeyPair(*tlsCert, *tlsKey)
		if err != nil {
			return nil, fmt.Errorf("-tls-cert, -tls-key: %w", err)
		}
		cfg.Certificates = []tls.Certificate{pair}
	}
	return credentials.NewTLS(cfg), nil
}

// lease gives the test so many SPECULATIVE machines, or skips it. Those of the
// target are given back at the test's end.
func (s *server) lease(n int) []string {
	s.t.Helper()
	if shared.barred != "" {
		s.test.Skip(shared.barred)
	}
	ids := s.spare(n)
	if len(ids) < n {
		s.test.Skipf("needs %d SPECULATIVE machines, may use %d: see -machines", n, len(ids))
	}
	return ids
}

// spare is like lease, for tests that can do with less, or nothing.
func (s *server) spare(n int) []string {
	s.t.Helper()
	var ids []string
	for _, m := range s.page([]pb.MachineState{speculative}, 0, nil).GetMachines() {
		if len(ids) < n && (*target == "" || slices.Contains(shared.allowed, m.GetId())) {
			ids = append(ids, m.GetId())
		}
	}
	if *target != "" {
		home := s.in(s.test)
		s.test.Cleanup(func() {
			for _, id := range ids {
				home.bringHome(id)
			}
		})
	}
	return ids
}

// anew gives a run of a property SPECULATIVE machines: those of the run before,
// or others where none can come back.
func (s *server) anew(ids []string) []string {
	s.t.Helper()
	if !keeps() {
		for _, id := range ids {
			s.bringHome(id)
		}
		return ids
	}
	others := s.spare(len(ids))
	if len(others) < len(ids) {
		s.t.Fatalf("no SPECULATIVE machines are left: fewer -rapid.checks")
	}
	return others
}

// bringHome walks a machine back to SPECULATIVE, from wherever it is.
func (s *server) bringHome(id string) {
	s.t.Helper()
	for range 4 {
		switch m := s.rest(id); m.GetState() {
		case configured:
			s.accepted(call{kind: drain, id: id, token: token{run + "-home", time.Now().UnixNano(), 0}})
		case idle:
			s.accepted(call{kind: del, id: id, token: token{run + "-home", time.Now().UnixNano(), 0}})
		default:
			return
		}
	}
}
