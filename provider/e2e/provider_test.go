package e2e

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	pb "bigfleet-providers/proto/bigfleet/v1alpha1"
)

// environment is what every process of the tests sees: nothing of the
// developer's own credentials.
func environment(extra ...string) []string {
	// The race detector would sleep a second at each exit.
	return append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + os.TempDir(), "GORACE=halt_on_error=1 exitcode=66 atexit_sleep_ms=0"}, extra...)
}

// process is a program under test.
type process struct {
	t    *testing.T
	cmd  *exec.Cmd
	done chan struct{} // closed once it was waited for

	mu     sync.Mutex
	output bytes.Buffer
	waits  []wait
}

type wait struct {
	pattern *regexp.Regexp
	found   chan []string
}

func start(t *testing.T, env []string, program string, args ...string) *process {
	t.Helper()
	p := &process{t: t, cmd: exec.Command(filepath.Join(bin, program), args...), done: make(chan struct{})}
	p.cmd.Env = env
	r, w := io.Pipe()
	p.cmd.Stdout, p.cmd.Stderr = w, w
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(p.done)
		_ = p.cmd.Wait() // its exit code is in ProcessState
		w.Close()
	}()
	go p.read(r)
	t.Cleanup(func() {
		p.kill()
		if t.Failed() {
			t.Logf("output of %s:\n%s", program, tail(p.text(), 60))
		}
	})
	return p
}

func (p *process) read(r io.Reader) {
	lines := bufio.NewReader(r)
	for {
		line, err := lines.ReadString('\n')
		p.mu.Lock()
		p.output.WriteString(line)
		kept := p.waits[:0]
		for _, w := range p.waits {
			if m := w.pattern.FindStringSubmatch(line); m != nil {
				w.found <- m
			} else {
				kept = append(kept, w)
			}
		}
		p.waits = kept
		p.mu.Unlock()
		if err != nil {
			return
		}
	}
}

func (p *process) text() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.output.String()
}

// line waits for a line of output, past ones included, and returns the
// pattern's groups.
func (p *process) line(pattern string) []string {
	p.t.Helper()
	w := wait{regexp.MustCompile(pattern), make(chan []string, 1)}
	p.mu.Lock()
	if m := w.pattern.FindStringSubmatch(p.output.String()); m != nil {
		p.mu.Unlock()
		return m
	}
	p.waits = append(p.waits, w)
	p.mu.Unlock()
	select {
	case m := <-w.found:
		return m
	case <-p.done:
		p.t.Fatalf("%s ended (%s) before it printed %q:\n%s", filepath.Base(p.cmd.Path), p.cmd.ProcessState, pattern, tail(p.text(), 30))
	case <-time.After(30 * time.Second):
		p.t.Fatalf("%s did not print %q:\n%s", filepath.Base(p.cmd.Path), pattern, tail(p.text(), 30))
	}
	return nil
}

// kill ends the process as a power cut would.
func (p *process) kill() {
	_ = p.cmd.Process.Kill() // it may have ended by itself
	<-p.done
}

// terminate stops the process in its own order and returns its exit code.
func (p *process) terminate() int {
	p.t.Helper()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		p.t.Fatal(err)
	}
	return p.exit(20 * time.Second)
}

// exit waits for the process to end and returns its exit code.
func (p *process) exit(within time.Duration) int {
	p.t.Helper()
	select {
	case <-p.done:
	case <-time.After(within):
		p.t.Fatalf("%s did not end within %s:\n%s", filepath.Base(p.cmd.Path), within, tail(p.text(), 30))
	}
	return p.cmd.ProcessState.ExitCode()
}

func tail(s string, lines int) string {
	all := strings.Split(strings.TrimRight(s, "\n"), "\n")
	if len(all) > lines {
		all = all[len(all)-lines:]
	}
	return strings.Join(all, "\n")
}

// provider is a running provider and a client of it.
type provider struct {
	*process
	t    *testing.T // whose failure a wrong answer is
	addr string
	conn *grpc.ClientConn
	pb.CapacityProviderClient
}

// startProvider starts bin/scaleway on free ports and dials it.
func startProvider(t *testing.T, env []string, creds credentials.TransportCredentials, args ...string) *provider {
	t.Helper()
	args = append([]string{"--addr=127.0.0.1:0", "--metrics-addr=127.0.0.1:0"}, args...)
	p := &provider{process: start(t, env, "scaleway", args...), t: t}
	p.addr = p.line(`msg=serving .*grpc=(\S+)`)[1]
	if creds == nil {
		creds = insecure.NewCredentials()
	}
	conn, err := grpc.NewClient(p.addr, grpc.WithTransportCredentials(creds), grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(64<<20)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	p.conn, p.CapacityProviderClient = conn, pb.NewCapacityProviderClient(conn)
	p.awaitReady()
	return p
}

// awaitReady waits until calls are answered.
func (p *provider) awaitReady() {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if _, err := p.List(ctx, &pb.ListFilter{MaxResults: 1}, grpc.WaitForReady(true)); err != nil {
		p.t.Fatalf("the provider does not answer: %v", err)
	}
	// A new state waits for the cloud's inventory before it takes calls.
	p.line(`inventory was read|operations resumed|msg=serving`)
}

func (p *provider) get(id string) *pb.Machine {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	m, err := p.Get(ctx, &pb.MachineRef{Id: id})
	if err != nil {
		p.t.Fatalf("Get %s: %v", id, err)
	}
	return m
}

func (p *provider) list() *pb.MachineList {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	l, err := p.List(ctx, &pb.ListFilter{})
	if err != nil {
		p.t.Fatalf("List: %v", err)
	}
	return l
}

// await polls until the machine is in the state.
func (p *provider) await(id string, want pb.MachineState) (*pb.Machine, error) {
	deadline := time.Now().Add(30 * time.Second)
	for {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		m, err := p.Get(ctx, &pb.MachineRef{Id: id})
		cancel()
		switch {
		case err != nil:
			return nil, err
		case m.GetState() == want:
			return m, nil
		case m.GetState() == pb.MachineState_MACHINE_STATE_FAILED:
			return m, fmt.Errorf("%s is FAILED: %s", id, m.GetLastError())
		case time.Now().After(deadline):
			return m, fmt.Errorf("%s stays %s, want %s", id, m.GetState(), want)
		}
		time.Sleep(10 * time.Millisecond)
	}
}
