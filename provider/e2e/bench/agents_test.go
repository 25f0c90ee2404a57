package bench

import (
	"bufio"
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/semaphore"

	pb "bigfleet-providers/proto/bigfleet/v1alpha1"
	"bigfleet-providers/shared/command"
	"bigfleet-providers/shared/token"
)

// agents is how many long polls are parked, configures how many commands are
// sent to them.
const (
	agents     = 10_000
	configures = 1_000
)

// benchSecret is the bootstrap secret of the measured provider.
const benchSecret = "a bootstrap secret for benchmarks, 32 bytes or more"

// BenchmarkAgents parks ten thousand long polls on one provider, over TLS, a
// connection each, and measures what they cost it and how long a Configure takes
// from its acceptance until the blob is in the agent's hands.
func BenchmarkAgents(b *testing.B) {
	for b.Loop() {
		agentsOnce(b)
	}
}

func agentsOnce(b *testing.B) {
	dir := b.TempDir()
	channel, roots, flags := channelFlags(b, dir)
	s := serve(b, agents, filepath.Join(dir, "state.db"), append(flags, "--fake-hosts=none", "--fake-scale=0.001")...)
	ids := s.ids()
	f := newFleet(b, channel, roots, ids, s.lives(ids))
	f.greet()
	await(b, "hosts", func() bool { return s.inState(pb.MachineState_MACHINE_STATE_IDLE) == agents })
	empty := settledRSS(s)

	began := time.Now()
	f.start()
	await(b, "every poll", func() bool { return f.polling.Load() >= agents })
	connected := time.Since(began)
	peak := s.rss()
	const window = 30 * time.Second
	before := s.cpu()
	time.Sleep(window)
	idle, parked := s.cpu()-before, s.rss()

	accepted, sent := f.configure(s, ids[:configures])
	f.stop()
	b.ReportMetric(float64(accepted.at(0.99))/float64(time.Millisecond), "ms-p99")
	b.ReportMetric(float64(parked)/1e6, "MB")
	record("parked polls: memory (RSS)", agents, "a TLS connection each", fmt.Sprintf("%d MB, %d MB when the last one had connected", parked/1_000_000, peak/1_000_000),
		fmt.Sprintf("%d MB without them: %.1f kB each", empty/1_000_000, float64(parked-empty)/agents/1e3))
	record("parked polls: processor", agents, "polls of 48 to 60 s", fmt.Sprintf("%.1f %% of a core", 100*idle.Seconds()/window.Seconds()),
		fmt.Sprintf("all connected and polling after %s", short(connected)))
	record("Configure to blob", agents, "from its acceptance", fmt.Sprintf("p50 %s, p99 %s", short(accepted.at(0.5)), short(accepted.at(0.99))),
		fmt.Sprintf("from the call: p50 %s, p99 %s", short(sent.at(0.5)), short(sent.at(0.99))))
}

// channelFlags makes a certificate and the flags of a provider that serves the
// channel with it.
func channelFlags(b *testing.B, dir string) (addr string, roots *x509.CertPool, flags []string) {
	b.Helper()
	fail := func(err error) {
		if err != nil {
			b.Fatal(err)
		}
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	fail(err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	fail(err)
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	fail(err)
	certPEM := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	cert, keyFile := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	fail(os.WriteFile(cert, certPEM, 0o600))
	fail(os.WriteFile(keyFile, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER}), 0o600))
	roots = x509.NewCertPool()
	roots.AppendCertsFromPEM(certPEM)
	ln, err := new(net.ListenConfig).Listen(context.Background(), "tcp", "127.0.0.1:0") // a port that is free
	fail(err)
	addr = ln.Addr().String()
	fail(ln.Close())
	return addr, roots, []string{
		"--bootstrap-addr=" + addr, "--bootstrap-endpoint=https://" + addr, "--bootstrap-tls-cert=" + cert, "--bootstrap-tls-key=" + keyFile,
		"--bootstrap-ca=" + cert, "--bootstrap-secret=" + benchSecret, "--agent-install=image",
	}
}

// fleet plays agents: a connection and a goroutine each.
type fleet struct {
	b       *testing.B
	addr    string
	conf    *tls.Config
	ids     []string
	lives   map[string]string // the operation ids of the machines' Creates
	secret  token.Secret
	polling atomic.Int64
	dials   *semaphore.Weighted

	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu   sync.Mutex
	blob map[string]chan time.Time // machine id → when its blob came
}

func newFleet(b *testing.B, addr string, roots *x509.CertPool, ids []string, lives map[string]string) *fleet {
	secret, err := token.NewSecret([]byte(benchSecret))
	if err != nil {
		b.Fatal(err)
	}
	f := &fleet{
		b: b, addr: addr, ids: ids, lives: lives, secret: secret, dials: semaphore.NewWeighted(64), blob: map[string]chan time.Time{},
		conf: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS13},
	}
	f.ctx, f.cancel = context.WithCancel(context.Background())
	b.Cleanup(f.stop)
	return f
}

// greet has each host heard from once, which its Create waits for, in the order of
// the Creates: a host whose Create has not begun is refused.
func (f *fleet) greet() {
	var hosts errgroup.Group
	hosts.SetLimit(64)
	for _, id := range f.ids {
		hosts.Go(func() error {
			for f.ctx.Err() == nil {
				status, err := f.greetOnce(id)
				if err != nil || status == http.StatusNoContent {
					return err
				}
				time.Sleep(50 * time.Millisecond)
			}
			return nil
		})
	}
	if err := hosts.Wait(); err != nil {
		f.b.Errorf("a first contact: %v", err)
	}
}

func (f *fleet) greetOnce(id string) (int, error) {
	conn, err := (&tls.Dialer{Config: f.conf}).DialContext(f.ctx, "tcp", f.addr)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, "GET "+command.PathCommand+"?machine_id="+id+" HTTP/1.1\r\n"+f.head(id)+"\r\n"); err != nil {
		return 0, err
	}
	status, _, err := answer(bufio.NewReader(conn))
	return status, err
}

// head is the headers of a machine's agent.
func (f *fleet) head(id string) string {
	return fmt.Sprintf("Host: %s\r\nAuthorization: Bearer %s\r\nUser-Agent: bigfleet-agent/bench\r\n%s: bench\r\n%s: configure,drain\r\n%s: boot-%s\r\n%s: host-%s\r\n",
		f.addr, token.Derive(f.secret, id, f.lives[id]), command.HeaderVersion, command.HeaderKinds, command.HeaderBoot, id, command.HeaderHost, id)
}

func (f *fleet) start() {
	for _, id := range f.ids {
		f.wg.Go(func() {
			if err := f.agent(id); err != nil && f.ctx.Err() == nil {
				f.b.Errorf("agent of %s: %v", id, err)
				f.cancel()
			}
		})
	}
}

func (f *fleet) stop() {
	f.cancel()
	f.wg.Wait()
}

// agent polls for one machine until the fleet stops.
func (f *fleet) agent(id string) error {
	if err := f.dials.Acquire(f.ctx, 1); err != nil {
		return err
	}
	conn, err := (&tls.Dialer{Config: f.conf}).DialContext(f.ctx, "tcp", f.addr)
	f.dials.Release(1)
	if err != nil {
		return err
	}
	stopped := context.AfterFunc(f.ctx, func() { _ = conn.Close() }) // it ends the read
	defer stopped()
	defer conn.Close()
	head := f.head(id)
	poll := "GET " + command.PathCommand + "?machine_id=" + id + "&wait=60 HTTP/1.1\r\n" + head + "\r\n"
	in := bufio.NewReaderSize(conn, 1024)
	for first := true; f.ctx.Err() == nil; first = false {
		if _, err := io.WriteString(conn, poll); err != nil {
			return err
		}
		if first {
			f.polling.Add(1)
		}
		status, body, err := answer(in)
		came := time.Now()
		switch {
		case err != nil:
			return err
		case status == http.StatusNoContent:
			continue
		case status != http.StatusOK:
			return fmt.Errorf("a poll got %d: %s", status, body)
		}
		cmd, err := command.DecodeCommand(bytes.NewReader(body))
		if err != nil {
			return err
		}
		f.mu.Lock()
		f.blob[id] <- came
		f.mu.Unlock()
		ack := fmt.Appendf(nil, `{"command_id":%q,"ok":true,"started":%q,"finished":%q}`, cmd.CommandID, came.UTC().Format(time.RFC3339Nano), came.UTC().Format(time.RFC3339Nano))
		if _, err := fmt.Fprintf(conn, "POST %s?machine_id=%s HTTP/1.1\r\n%sContent-Type: %s\r\nContent-Length: %d\r\n\r\n%s", command.PathAck, id, head, command.MediaType, len(ack), ack); err != nil {
			return err
		}
		if status, body, err := answer(in); err != nil || status != http.StatusOK {
			return errors.Join(err, fmt.Errorf("a report got %d: %s", status, body))
		}
	}
	return nil
}

func answer(in *bufio.Reader) (int, []byte, error) {
	resp, err := http.ReadResponse(in, nil)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return resp.StatusCode, body, err
}

// configure configures machines, one after another, and returns how long each
// blob took from the call's answer and from the call.
func (f *fleet) configure(s *server, ids []string) (accepted, sent timings) {
	f.b.Helper()
	blob := bytes.Repeat([]byte("join "), 400)
	reign := epoch.Add(1)
	for i, id := range ids {
		came := make(chan time.Time, 1)
		f.mu.Lock()
		f.blob[id] = came
		f.mu.Unlock()
		began := time.Now()
		_, err := s.Configure(context.Background(), &pb.ConfigureRequest{
			MachineId: id, ClusterId: "bench", BootstrapBlob: blob, ShardId: "agents", ShardEpoch: reign, SequenceNumber: int64(i + 1),
		})
		answered := time.Now()
		if err != nil {
			f.b.Fatal(err)
		}
		select {
		case at := <-came:
			accepted, sent = append(accepted, max(0, at.Sub(answered))), append(sent, at.Sub(began))
		case <-time.After(30 * time.Second):
			f.b.Fatalf("the blob of %s did not arrive", id)
		}
	}
	slices.Sort(accepted)
	slices.Sort(sent)
	return accepted, sent
}

// await polls for a condition.
func await(b *testing.B, what string, cond func() bool) {
	b.Helper()
	for end := time.Now().Add(5 * time.Minute); !cond(); {
		if b.Failed() || time.Now().After(end) {
			b.Fatalf("waited in vain for %s", what)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// lives begins a life of each machine and returns the operation ids by which its
// host's token is known.
func (s *server) lives(ids []string) map[string]string {
	s.b.Helper()
	lives := make(map[string]string, len(ids))
	reign := epoch.Add(1)
	for i, id := range ids {
		ack, err := s.Create(context.Background(), &pb.CreateRequest{MachineId: id, ShardId: "lives", ShardEpoch: reign, SequenceNumber: int64(i + 1)})
		if err != nil {
			s.b.Fatal(err)
		}
		lives[id] = ack.GetOperationId()
	}
	return lives
}

// inState counts machines.
func (s *server) inState(state pb.MachineState) int {
	s.b.Helper()
	list, err := s.List(context.Background(), &pb.ListFilter{States: []pb.MachineState{state}})
	if err != nil {
		s.b.Fatal(err)
	}
	return len(list.GetMachines())
}

// cpu is the processor time that the process has used.
func (s *server) cpu() time.Duration {
	s.b.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", s.cmd.Process.Pid))
	if err != nil {
		s.b.Fatal(err)
	}
	// The name may hold anything; utime and stime are the 14th and 15th field.
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+2:]))
	const tick = 10 * time.Millisecond // USER_HZ is 100, proc_pid_stat(5)
	var sum time.Duration
	for _, f := range fields[11:13] {
		n, err := strconv.ParseInt(f, 10, 64)
		if err != nil {
			s.b.Fatal(err)
		}
		sum += time.Duration(n) * tick
	}
	return sum
}
