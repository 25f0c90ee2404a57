package crash

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"

	"bigfleet-providers/agent"
	pb "bigfleet-providers/proto/bigfleet/v1alpha1"
	"bigfleet-providers/provider/internal/fakecloud"
	"bigfleet-providers/provider/internal/fakecloud/host"
)

const (
	providerName = "crash"
	// settleWindow is how long the provider waits after an order without an
	// answer. The fake lists a server as soon as it is made.
	settleWindow = time.Second
	readyWithin  = 20 * time.Second
)

// world is all that outlives a provider: the cloud, its hosts, the state file,
// the addresses and the shard's connection.
type world struct {
	t     *testing.T
	dir   string
	cloud *fakecloud.Cloud
	hosts *ledger
	env   []string
	args  []string
	attr  *syscall.SysProcAttr // of every provider; nil for our own user
	last  *process
	cut   atomic.Bool // hosts reach nobody
	watch atomic.Pointer[func(line string)]

	conn *grpc.ClientConn
	pb.CapacityProviderClient
}

// newWorld makes a world with an even number of slots and without a provider.
func newWorld(t *testing.T, slots int, extra ...string) *world {
	t.Helper()
	w := &world{t: t, dir: t.TempDir(), hosts: newLedger()}
	w.cloud = fakecloud.New(fakecloud.Options{Scale: 0.02, SSHKeys: []string{fakecloud.SampleSSHKey}, Hosts: host.NewInProcess(host.InProcessOptions{
		Hook: w.hosts.run, Dial: w.dial,
		// Short enough that a killed provider is found again at once.
		Agent: agent.Options{BackoffMin: 20 * time.Millisecond, BackoffMax: 200 * time.Millisecond},
	})})
	server := httptest.NewServer(w.cloud.Handler())
	t.Cleanup(func() {
		w.cloud.Close()
		server.Close()
	})

	cert, key := filepath.Join(w.dir, "channel.pem"), filepath.Join(w.dir, "channel-key.pem")
	writePair(t, cert, key)
	offerings := filepath.Join(w.dir, "offerings.json")
	// The second boots from a block volume, which outlives its server.
	content := fmt.Sprintf(`[{"commercial_type": "DEV1-S", "zone": "fr-par-1", "count": %d}, {"commercial_type": "PRO2-XXS", "zone": "fr-par-1", "count": %[1]d}]`, slots/2)
	if err := os.WriteFile(offerings, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	addr, channel := freePort(t), freePort(t)
	w.env = environment(
		"SCW_API_URL="+server.URL,
		"SCW_ACCESS_KEY="+fakecloud.DefaultAccessKey,
		"SCW_SECRET_KEY="+fakecloud.DefaultSecretKey,
		"SCW_DEFAULT_PROJECT_ID="+fakecloud.DefaultProjectID,
		"BIGFLEET_BOOTSTRAP_SECRET=0123456789abcdef0123456789abcdef",
	)
	w.args = append([]string{
		"--addr=" + addr, "--metrics-addr=", "--provider=" + providerName, "--zone=fr-par-1",
		"--scaleway-backend=scaleway", "--image=debian_bookworm", "--agent-install=image",
		"--offerings=" + offerings, "--state=" + w.state(),
		"--bootstrap-addr=" + channel, "--bootstrap-endpoint=https://" + channel,
		"--bootstrap-tls-cert=" + cert, "--bootstrap-tls-key=" + key,
		"--poll-interval=50ms", "--settle-window=" + settleWindow.String(), "--reconcile-interval=1s",
		// At the pace of the rest; the limits themselves are tested elsewhere.
		"--api-rate=1000", "--api-burst=1000", "--type-pause=100ms", "--type-pause-max=1s",
		"--log-level=debug",
	}, extra...)

	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 10 * time.Millisecond, Multiplier: 1.2, MaxDelay: 50 * time.Millisecond},
			MinConnectTimeout: readyWithin,
		}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	w.conn = conn
	w.CapacityProviderClient = pb.NewCapacityProviderClient(conn)
	return w
}

// dial is the hosts' network.
func (w *world) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	if w.cut.Load() {
		return nil, syscall.ENETUNREACH
	}
	return new(net.Dialer).DialContext(ctx, network, addr)
}

func (w *world) state() string { return filepath.Join(w.dir, "state", "state.db") }

// launch starts a provider and does not wait for it. The test's end kills it.
func (w *world) launch() *process {
	w.t.Helper()
	if err := os.MkdirAll(filepath.Dir(w.state()), 0o750); err != nil {
		w.t.Fatal(err)
	}
	return w.launchAsIs()
}

// launchAsIs is launch without making the state file's folder.
func (w *world) launchAsIs() *process {
	w.t.Helper()
	p, err := start(w.env, w.args, func(line string) {
		if watch := w.watch.Load(); watch != nil {
			(*watch)(line)
		}
	}, w.attr)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(p.kill)
	w.last = p
	return p
}

// stopLast kills the provider that was launched last.
func (w *world) stopLast() {
	if w.last != nil {
		w.last.kill()
	}
}

// ready waits until the provider answers.
func (w *world) ready(p *process) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), readyWithin)
	defer cancel()
	go func() { // a provider that is gone will not answer
		select {
		case <-p.done:
			cancel()
		case <-ctx.Done():
		}
	}()
	for {
		_, err := w.List(ctx, &pb.ListFilter{MaxResults: 1}, grpc.WaitForReady(true))
		if err == nil {
			return
		}
		// The connection to the provider before may not be known to be dead.
		if ctx.Err() != nil || !unanswered(err) {
			w.t.Fatalf("the provider does not answer: %v\n%s", err, p.log())
		}
	}
}

// run is launch and ready.
func (w *world) run() *process {
	w.t.Helper()
	p := w.launch()
	w.ready(p)
	return p
}

func (w *world) list() *pb.MachineList {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), callTimeout)
	defer cancel()
	l, err := w.List(ctx, &pb.ListFilter{}, grpc.WaitForReady(true))
	if err != nil {
		w.t.Fatalf("List: %v", err)
	}
	return l
}

// eventually polls until check is content, and fails the test with its last
// complaint otherwise.
func eventually(t *testing.T, within time.Duration, check func() error) {
	t.Helper()
	deadline := time.Now().Add(within)
	for {
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("after %s: %v", within, err)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// freePort finds an address that a provider can have again after a restart.
func freePort(t *testing.T) string {
	t.Helper()
	ln, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	return ln.Addr().String()
}

// writePair writes a certificate for the loopback address, signed by itself,
// and its key.
func writePair(t *testing.T, certFile, keyFile string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	cert := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: "channel"},
		NotBefore: time.Now().Add(-time.Minute), NotAfter: time.Now().Add(24 * time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		BasicConstraintsValid: true, IsCA: true, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der, err := x509.CreateCertificate(rand.Reader, cert, cert, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for path, block := range map[string]*pem.Block{
		certFile: {Type: "CERTIFICATE", Bytes: der},
		keyFile:  {Type: "PRIVATE KEY", Bytes: keyDER},
	} {
		// Readable for the user that some tests run the provider as.
		if err := os.WriteFile(path, pem.EncodeToMemory(block), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}
