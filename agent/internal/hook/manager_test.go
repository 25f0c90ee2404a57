package hook_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"bigfleet-providers/agent/internal/hook"
	"bigfleet-providers/agent/internal/systemd"
)

// runnerVar chooses how the hooks of all tests run: "direct" (the default),
// "units" on a stand-in for systemd, or "systemd".
const runnerVar = "BIGFLEET_TEST_RUNNER"

func units() bool { return os.Getenv(runnerVar) == "units" || os.Getenv(runnerVar) == "systemd" }

// newRunner returns a runner as a new agent has it.
func newRunner(t *testing.T) hook.Runner {
	t.Helper()
	u := &hook.Units{Supervisor: []string{self(t), "supervise"}, Agent: "bigfleet-agent.service", Log: slog.New(slog.DiscardHandler)}
	switch name := os.Getenv(runnerVar); name {
	case "", "direct":
		return &hook.Processes{}
	case "units":
		u.Manager = manager{}
	case "systemd":
		u.Manager = &systemd.Units{}
	default:
		t.Fatalf("%s=%s", runnerVar, name)
	}
	return &hook.Either{Units: u, Processes: &hook.Processes{}}
}

func self(t *testing.T) string {
	t.Helper()
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// Every test of this package holds for hooks in units too.
func TestUnits(t *testing.T) { runAgain(t, "units") }

// The same with the real systemd, where root asks for it: in a booted guest, not
// on the machine of a developer.
func TestSystemd(t *testing.T) {
	if os.Getenv("BIGFLEET_TEST_SYSTEMD") == "" {
		t.Skip("BIGFLEET_TEST_SYSTEMD is not set")
	}
	runAgain(t, "systemd")
}

func runAgain(t *testing.T, runner string) {
	t.Helper()
	if os.Getenv(runnerVar) != "" {
		t.Skip("this is that run")
	}
	args := []string{"-test.timeout=4m"}
	if testing.Verbose() {
		args = append(args, "-test.v")
	}
	cmd := exec.Command(self(t), args...)
	cmd.Env = append(os.Environ(), runnerVar+"="+runner)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%v:\n%s", err, out)
	} else if testing.Verbose() {
		t.Logf("%s", out)
	}
}

// manager stands in for systemd. What a unit runs is found by a mark that
// nothing in these tests takes off its environment.
type manager struct{}

// unit is a loaded unit. Its mark tells it from others of its name.
type unit struct {
	mark   string
	exited atomic.Bool
}

var (
	loaded sync.Map // *unit by name
	serial atomic.Int64
)

const unitVar = "BIGFLEET_TEST_UNIT="

func find(name string) *unit {
	found, _ := loaded.Load(name)
	u, _ := found.(*unit)
	return u
}

func (m manager) Start(ctx context.Context, s systemd.Service) error {
	u := &unit{mark: fmt.Sprintf("%s%s#%d", unitVar, s.Name, serial.Add(1))}
	if _, exists := loaded.LoadOrStore(s.Name, u); exists {
		return fmt.Errorf("%s: %w", s.Name, systemd.ErrExists)
	}
	if err := m.start(ctx, s, u); err != nil {
		loaded.Delete(s.Name)
		return err
	}
	return nil
}

func (m manager) start(ctx context.Context, s systemd.Service, u *unit) error {
	path := filepath.Join(s.Exec[len(s.Exec)-1], "job")
	body, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var job hook.Job
	if err := json.Unmarshal(body, &job); err != nil {
		return err
	}
	job.Env = append(job.Env, u.mark)
	if body, err = json.Marshal(job); err != nil {
		return err
	}
	if err := os.WriteFile(path, body, 0o600); err != nil {
		return err
	}
	cmd := exec.CommandContext(context.WithoutCancel(ctx), s.Exec[0], s.Exec[1:]...)
	cmd.Env = []string{u.mark}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return err
	}
	go func() {
		if err := cmd.Wait(); err == nil {
			u.exited.Store(true)
			return
		}
		_ = m.end(s.Name, u, s.StopTimeout) // as systemd does with a unit that fails
	}()
	return nil
}

func (manager) Running(_ context.Context, name string) (bool, error) {
	u := find(name)
	return u != nil && !u.exited.Load(), nil
}

func (manager) Release(_ context.Context, name string) error {
	if u := find(name); u != nil && u.exited.Load() && len(processes(u.mark)) == 0 {
		loaded.CompareAndDelete(name, u)
	}
	return nil
}

func (m manager) Stop(_ context.Context, name string, patience time.Duration) error {
	if u := find(name); u != nil {
		return m.end(name, u, patience)
	}
	return nil
}

func (manager) end(name string, u *unit, patience time.Duration) error {
	for _, pid := range processes(u.mark) {
		_ = syscall.Kill(pid, syscall.SIGTERM)
	}
	for end := time.Now().Add(patience); time.Now().Before(end) && len(processes(u.mark)) > 0; {
		time.Sleep(10 * time.Millisecond)
	}
	for end := time.Now().Add(5 * time.Second); len(processes(u.mark)) > 0; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			return fmt.Errorf("%s does not end", name)
		}
		for _, pid := range processes(u.mark) {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
	loaded.CompareAndDelete(name, u)
	return nil
}

// members are the living processes of the unit of that name.
func members(name string) []int {
	if u := find(name); u != nil {
		return processes(u.mark)
	}
	return nil
}

// processes are those that live and have the mark.
func processes(mark string) []int {
	var pids []int
	procs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return nil
	}
	for _, proc := range procs {
		env, err := os.ReadFile(filepath.Join(proc, "environ"))
		if err != nil || !bytes.Contains(env, []byte(mark+"\x00")) {
			continue
		}
		if pid, err := strconv.Atoi(strings.TrimPrefix(proc, "/proc/")); err == nil && alive(pid) {
			pids = append(pids, pid)
		}
	}
	return pids
}
