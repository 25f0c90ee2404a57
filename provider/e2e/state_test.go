package e2e

import (
	"bytes"
	"context"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	pb "bigfleet-providers/proto/bigfleet/v1alpha1"
)

// TestStateFromBackup restores an older copy of the state: a cursor of the
// time in between must not leave a gap.
func TestStateFromBackup(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	state := filepath.Join(dir, "state.db")
	args := []string{"--use-fake-backend", "--provider=certify", "--state=" + state}
	p := startProvider(t, environment(), nil, args...)
	id := p.machines(1)[0]
	p.must("Create", id, token{}, idle)
	p.terminate()
	backup, err := os.ReadFile(state)
	if err != nil {
		t.Fatal(err)
	}
	p = startProvider(t, environment(), nil, args...)
	p.must("Delete", id, token{}, speculative)
	future := p.list().GetRevision()
	p.terminate()
	if err := os.WriteFile(state, backup, 0o600); err != nil {
		t.Fatal(err)
	}
	p = startProvider(t, environment(), nil, args...)
	if l := p.page(nil, 0, future); len(l.GetMachines()) != 16 {
		t.Errorf("a cursor of the future gives %d machines, want all 16", len(l.GetMachines()))
	}
}

// TestDamagedState: a state file that cannot be trusted ends the start with one
// line that says what to do. It is never replaced by a fresh one.
func TestDamagedState(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	good := filepath.Join(dir, "good.db")
	p := startProvider(t, environment(), nil, "--use-fake-backend", "--provider=certify", "--seed-count=200", "--state="+good)
	p.must("Create", p.machines(1)[0], token{"s", 1, 1}, idle)
	p.terminate()
	content, err := os.ReadFile(good)
	if err != nil {
		t.Fatal(err)
	}
	// One bit of each record: a single one could be in a page that is not in use.
	flipped := bytes.ReplaceAll(content, []byte("fr-par-1"), []byte("fr-par-0"))
	wiped := bytes.Clone(content)
	clear(wiped[:8192]) // both meta pages
	// The file grows ahead of its content: half of the file may be all of it.
	used := len(bytes.TrimRight(content, "\x00"))
	for name, damaged := range map[string][]byte{
		"empty":         {},
		"truncated":     content[:used/2],
		"one page":      content[:4096],
		"garbage":       bytes.Repeat([]byte("not a state file\n"), 4096),
		"one bit":       flipped,
		"no meta pages": wiped,
		"zeros":         make([]byte, len(content)),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(dir, strings.ReplaceAll(name, " ", "-")+".db")
			if err := os.WriteFile(path, damaged, 0o600); err != nil {
				t.Fatal(err)
			}
			code, out := run(t, environment(), "--use-fake-backend", "--provider=certify", "--addr=127.0.0.1:0", "--metrics-addr=127.0.0.1:0", "--state="+path)
			what := "move it away"
			if name == "garbage" {
				what = "name another --state"
			}
			wantStop(t, code, out, path, what)
			if after, err := os.ReadFile(path); err != nil || !bytes.Equal(after, damaged) {
				t.Errorf("the file was changed: %v", err)
			}
		})
	}
	t.Run("a second process", func(t *testing.T) {
		p := startProvider(t, environment(), nil, "--use-fake-backend", "--provider=certify", "--state="+good)
		code, out := run(t, environment(), "--use-fake-backend", "--provider=certify", "--addr=127.0.0.1:0", "--metrics-addr=127.0.0.1:0", "--state="+good)
		wantStop(t, code, out, good, "another process")
		p.list() // the first one does not mind
	})
}

// TestUnusableStatePath: where no state file can be ends a start, and is told by
// check-config before.
func TestUnusableStatePath(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, path := range map[string]string{
		"a folder":                    dir,
		"a folder that is not there":  filepath.Join(dir, "absent", "state.db"),
		"a read-only file system":     "/proc/self/state.db", // nobody can make files there, not even root
		"a file where a folder is to": filepath.Join(write(t, "file", ""), "state.db"),
	} {
		t.Run(name, func(t *testing.T) {
			args := []string{"--use-fake-backend", "--addr=127.0.0.1:0", "--metrics-addr=127.0.0.1:0", "--state=" + path}
			code, out := run(t, environment(), args...)
			wantStop(t, code, out, path)
			code, out = run(t, environment(), append([]string{"check-config"}, args...)...)
			wantRefusal(t, "check-config", code, out, "--state: "+path)
		})
	}
}

// TestStateOfAnotherProvider: a state file is good for one provider in one zone.
// With another's the start ends, and the file stays as it was, for whoever it
// belongs to.
func TestStateOfAnotherProvider(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "state.db")
	args := []string{"--use-fake-backend", "--provider=certify", "--zone=fr-par-1", "--state=" + path}
	p := startProvider(t, environment(), nil, args...)
	id := p.machines(1)[0]
	p.must("Create", id, token{"s", 1, 1}, idle)
	if code := p.terminate(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		flag  string
		wants []string
	}{
		{"--provider=another", []string{"--provider", "certify", "another"}},
		{"--zone=nl-ams-1", []string{"--zone", "fr-par-1", "nl-ams-1"}},
	} {
		code, out := run(t, environment(), append(slices.Clone(args), "--addr=127.0.0.1:0", "--metrics-addr=127.0.0.1:0", c.flag)...)
		wantStop(t, code, out, append(c.wants, path, "another --state")...)
	}
	if after, err := os.ReadFile(path); err != nil || !bytes.Equal(after, before) {
		t.Errorf("the file was changed: %v", err)
	}
	p = startProvider(t, environment(), nil, args...)
	if _, err := p.await(id, idle); err != nil {
		t.Errorf("its own provider: %v", err)
	}
}

// wantStop expects that a start ended by itself with one line that names its
// reason.
func wantStop(t *testing.T, code int, output string, wants ...string) {
	t.Helper()
	if code != 1 {
		t.Errorf("exit code %d, want 1", code)
	}
	var reasons []string
	for line := range strings.SplitSeq(strings.TrimSpace(output), "\n") {
		if strings.Contains(line, "level=ERROR") {
			reasons = append(reasons, line)
		}
		if strings.HasPrefix(line, "goroutine ") || strings.Contains(line, "msg=serving") {
			t.Errorf("it says %q", line)
		}
	}
	if len(reasons) != 1 {
		t.Fatalf("%d error lines, want 1:\n%s", len(reasons), output)
	}
	for _, want := range wants {
		if !strings.Contains(reasons[0], want) {
			t.Errorf("the reason does not say %q: %s", want, reasons[0])
		}
	}
}

// TestTakenPorts: a port that is taken is named with its flag.
func TestTakenPorts(t *testing.T) {
	t.Parallel()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	for _, flag := range []string{"addr", "metrics-addr", "bootstrap-addr"} {
		args := map[string]string{"addr": "127.0.0.1:0", "metrics-addr": "127.0.0.1:0", "bootstrap-addr": "127.0.0.1:0", flag: ln.Addr().String()}
		code, out := run(t, environment(), "--use-fake-backend", "--addr="+args["addr"], "--metrics-addr="+args["metrics-addr"], "--bootstrap-addr="+args["bootstrap-addr"])
		wantStop(t, code, out, "--"+flag, ln.Addr().String())
	}
}

// TestStop stops a provider while everything is going on: agents are parked,
// calls and transitions are in flight, a health watch is open, and connections
// are there that never say a word.
func TestStop(t *testing.T) {
	t.Parallel()
	state := filepath.Join(t.TempDir(), "state.db")
	args := []string{"--use-fake-backend", "--provider=certify", "--seed-count=32", "--fake-scale=0.1", "--state=" + state}
	p := startProvider(t, environment(), nil, args...)
	ids := p.machines(32)
	for _, id := range ids[:8] {
		p.must("Create", id, token{"s", 1, 1}, unspecified)
	}
	for _, id := range ids[:8] {
		if _, err := p.await(id, idle); err != nil { // its agent is parked now
			t.Fatal(err)
		}
	}
	watch, err := healthpb.NewHealthClient(p.conn).Watch(t.Context(), &healthpb.HealthCheckRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := watch.Recv(); err != nil {
		t.Fatal(err)
	}
	for _, pattern := range []string{`msg=serving .*grpc=(\S+)`, `msg=serving .*metrics=(\S+)`, `bootstrap channel.*listen=(\S+)`} {
		silent, err := net.Dial("tcp", p.line(pattern)[1])
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { silent.Close() })
	}
	for _, id := range ids[8:20] {
		p.must("Create", id, token{"s", 1, 1}, unspecified) // under way at the stop
	}
	var callers sync.WaitGroup
	var mu sync.Mutex
	accepted := map[string]string{}
	for i, id := range ids[20:] {
		callers.Go(func() {
			for seq := int64(1); ; seq++ {
				ack, err := p.call("Create", id, token{"s", 1, seq})
				mu.Lock()
				if err == nil {
					accepted[id] = ack.GetOperationId()
				}
				mu.Unlock()
				switch status.Code(err) {
				case codes.OK:
				case codes.Unavailable, codes.Canceled, codes.DeadlineExceeded:
					return
				default:
					t.Errorf("caller %d: %v", i, err)
					return
				}
			}
		})
	}
	await(t, "calls in flight", func() bool { mu.Lock(); defer mu.Unlock(); return len(accepted) == 12 })

	began := time.Now()
	if code := p.terminate(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("the stop took %s", took)
	}
	callers.Wait()
	p.line("msg=stopped")
	if strings.Contains(p.text(), "cut off") {
		t.Error("calls were cut off")
	}

	p = startProvider(t, environment(), nil, args...)
	for id, operation := range accepted {
		if again := p.must("Create", id, token{}, unspecified); again != operation {
			t.Errorf("the retry for %s is operation %s, want %s", id, again, operation)
		}
	}
	for _, id := range ids {
		if _, err := p.await(id, idle); err != nil {
			t.Error(err)
		}
	}
}

// TestSecondSignal: whoever cannot wait sends the signal again.
func TestSecondSignal(t *testing.T) {
	t.Parallel()
	for _, first := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
		p := startProvider(t, environment(), nil, "--use-fake-backend", "--provider=certify", "--shutdown-timeout=10m")
		// A call that does not end: its body is on the way for ever.
		stuck, err := net.Dial("tcp", p.addr)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { stuck.Close() })
		if _, err := io.WriteString(stuck, "PRI * HTTP/2.0\r\n\r\nSM"); err != nil { // half a preface
			t.Fatal(err)
		}
		p.list()
		if err := p.cmd.Process.Signal(first); err != nil {
			t.Fatal(err)
		}
		p.line("msg=stopping")
		await(t, "the end", func() bool {
			_ = p.cmd.Process.Signal(syscall.SIGTERM) // it may have ended
			select {
			case <-p.done:
				return true
			default:
				return false
			}
		})
	}
}

// TestWithoutState warns, and forgets.
func TestWithoutState(t *testing.T) {
	t.Parallel()
	p := startProvider(t, environment(), nil, "--use-fake-backend", "--provider=certify")
	p.line(`level=WARN.*no --state`)
	if code := p.terminate(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// TestManySlots starts with as many machines as a strict client may ask for, and
// answers within the time that it allows.
func TestManySlots(t *testing.T) {
	t.Parallel()
	began := time.Now()
	args := []string{"--use-fake-backend", "--provider=certify", "--seed-count=8000", "--state=" + filepath.Join(t.TempDir(), "state.db")}
	for round := range 2 {
		p := startProvider(t, environment(), nil, args...)
		l := p.list()
		if took := time.Since(began); took > 20*time.Second {
			t.Errorf("the first List of start %d was answered after %s", round, took)
		}
		if len(l.GetMachines()) != 8000 {
			t.Errorf("%d machines, want 8000", len(l.GetMachines()))
		}
		// The metrics port tells the truth about readiness.
		if code, body := p.scrape(t, "/readyz"); code != 200 {
			t.Errorf("/readyz: %d %s", code, body)
		}
		// Right after its start it takes calls.
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		if _, err := p.Create(ctx, &pb.CreateRequest{MachineId: l.GetMachines()[0].GetId()}); err != nil {
			t.Errorf("the first call: %v", err)
		}
		cancel()
		p.kill()
		began = time.Now()
	}
}
