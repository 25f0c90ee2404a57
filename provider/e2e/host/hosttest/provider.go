package hosttest

import (
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	pb "bigfleet-providers/proto/bigfleet/v1alpha1"
	"bigfleet-providers/provider/internal/fakecloud"
)

const (
	// channelPort is the channel's on the guests' network.
	channelPort = "8443"
	// bootstrapSecret is what the tests' tokens derive from.
	bootstrapSecret = "canary-bootstrap-secret-0123456789abcdef"
	startTime       = 30 * time.Second
)

// ProviderOptions of a provider. The zero value works, with the agent in the
// image.
type ProviderOptions struct {
	CA       *Authority // what hosts pin; made when nil
	Pair     Pair       // the channel's; made when zero
	Host     string     // the channel's address; the world's Gateway when empty
	Endpoint string     // what hosts are told; the channel's own address when empty
	Install  string     // --agent-install, "image" when empty
	Base     string     // base user data
	Args     []string   // further flags
}

// Provider is a running bin/scaleway and a client of it.
type Provider struct {
	pb.CapacityProviderClient
	world    *World
	cmd      *exec.Cmd
	log      *Log
	done     chan struct{}
	args     []string
	sequence int64
}

// NewProvider starts a provider that ends with the test.
func (w *World) NewProvider(t *testing.T, opts ProviderOptions) *Provider {
	t.Helper()
	if opts.Host == "" {
		opts.Host = w.Gateway()
	}
	if opts.CA == nil {
		opts.CA = NewAuthority(t)
	}
	if opts.Pair == (Pair{}) {
		opts.Pair = opts.CA.Pair(t, time.Now().Add(-time.Minute), w.Gateway(), w.Gateway6())
	}
	listen := net.JoinHostPort(opts.Host, channelPort)
	if opts.Endpoint == "" {
		opts.Endpoint = "https://" + listen
	}
	if opts.Install == "" {
		opts.Install = "image"
	}
	dir := t.TempDir()
	p := &Provider{world: w}
	p.args = []string{
		"--addr=127.0.0.1:0", "--metrics-addr=", "--provider=host-test", "--seed-count=8",
		"--state=" + filepath.Join(dir, "state.db"), "--log-level=debug",
		"--poll-interval=200ms", "--settle-window=1s",
		"--bootstrap-addr=" + listen, "--bootstrap-endpoint=" + opts.Endpoint, "--bootstrap-tls-cert=" + opts.Pair.Cert,
		"--bootstrap-tls-key=" + opts.Pair.Key, "--bootstrap-ca=" + opts.CA.File, "--agent-install=" + opts.Install,
	}
	if opts.Base != "" {
		file := filepath.Join(dir, "base")
		WriteFile(t, file, opts.Base, 0o600)
		p.args = append(p.args, "--base-user-data="+file)
	}
	p.args = append(p.args, opts.Args...)
	p.Start(t)
	return p
}

// Start starts the provider again, on the same state, after Stop.
func (p *Provider) Start(t *testing.T) {
	t.Helper()
	p.log, p.done = &Log{}, make(chan struct{})
	p.cmd = exec.Command(Built(t, "scaleway"), p.args...)
	p.cmd.Env = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + p.world.Dir, "SCW_API_URL=" + p.world.API,
		"SCW_ACCESS_KEY=" + fakecloud.DefaultAccessKey, "SCW_SECRET_KEY=" + fakecloud.DefaultSecretKey,
		"SCW_DEFAULT_PROJECT_ID=" + fakecloud.DefaultProjectID, "BIGFLEET_BOOTSTRAP_SECRET=" + bootstrapSecret,
	}
	p.cmd.Stdout, p.cmd.Stderr = p.log, p.log
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	done, cmd, log := p.done, p.cmd, p.log
	go func() {
		_ = cmd.Wait() // its exit code is in ProcessState
		close(done)
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it may have ended by itself
		<-done
		if t.Failed() {
			t.Logf("the provider:\n%s", Tail(log.String(), 40))
		}
	})
	conn, err := grpc.NewClient(p.Line(t, `msg=serving .*grpc=(\S+)`)[1], grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	p.CapacityProviderClient = pb.NewCapacityProviderClient(conn)
	ctx, cancel := context.WithTimeout(t.Context(), startTime)
	defer cancel()
	if _, err := p.List(ctx, &pb.ListFilter{MaxResults: 1}, grpc.WaitForReady(true)); err != nil {
		t.Fatalf("the provider does not answer: %v", err)
	}
}

// Stop ends the provider in its own order.
func (p *Provider) Stop(t *testing.T) {
	t.Helper()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	select {
	case <-p.done:
	case <-time.After(startTime):
		t.Fatal("the provider does not stop")
	}
}

// Log is what the provider has printed.
func (p *Provider) Log() string { return p.log.String() }

// Line waits for a line of the provider's log and returns the pattern's groups.
func (p *Provider) Line(t *testing.T, pattern string) []string {
	t.Helper()
	re := regexp.MustCompile(pattern)
	var groups []string
	Await(t, startTime, "the provider's log has "+pattern, func() bool {
		select {
		case <-p.done:
			t.Fatalf("the provider ended (%s):\n%s", p.cmd.ProcessState, Tail(p.log.String(), 30))
		default:
		}
		groups = re.FindStringSubmatch(p.log.String())
		return groups != nil
	})
	return groups
}

// Await polls until a condition holds.
func Await(t *testing.T, within time.Duration, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(within); !holds(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within %s: %s", within, what)
		}
	}
}
