package hook_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"bigfleet-providers/agent/internal/hook"
	"bigfleet-providers/agent/internal/systemd"
)

// newUnits is a runner on the stand-in for systemd, for one job that notes its
// run in dir.
func newUnits(t *testing.T, m hook.Manager, script string) (u *hook.Units, job hook.Job, dir string) {
	t.Helper()
	h, dir := newHost(t, `echo ran >>"$dir/runs"`+"\n"+script)
	job = hook.Job{Dir: filepath.Join(dir, t.Name()+"-drain-1"), Path: h.Path, Verb: hook.Drain, Env: []string{"PATH=" + os.Getenv("PATH")}}
	if err := os.MkdirAll(job.Dir, 0o700); err != nil {
		t.Fatal(err)
	}
	u = &hook.Units{Manager: m, Supervisor: []string{self(t), hook.SuperviseCommand}, Log: slog.New(slog.DiscardHandler)}
	t.Cleanup(func() {
		if err := (manager{}).Stop(context.Background(), hook.UnitName(job), 0); err != nil {
			t.Error(err)
		}
	})
	return u, job, dir
}

func runs(t *testing.T, dir string) int {
	t.Helper()
	if !exists(filepath.Join(dir, "runs")) {
		return 0
	}
	return strings.Count(read(t, dir, "runs"), "ran\n")
}

// lost is a manager that does not answer to Start; what it does about it differs.
type lost struct {
	manager
	starts bool
}

var errNoAnswer = errors.New("no answer")

func (m lost) Start(ctx context.Context, s systemd.Service) error {
	if !m.starts {
		return errNoAnswer
	}
	if err := m.manager.Start(ctx, s); err != nil {
		return err
	}
	for end := time.Now().Add(10 * time.Second); exists(filepath.Join(s.Exec[2], "job")) && time.Now().Before(end); {
		time.Sleep(10 * time.Millisecond)
	}
	return errNoAnswer
}

// The agent must know whether the hook runs though the manager's answer is lost.
func TestStartWithoutAnAnswer(t *testing.T) {
	u, job, dir := newUnits(t, lost{starts: true}, "exit 3")
	if err := u.Start(job); err != nil {
		t.Fatalf("it runs, and Start = %v", err)
	}
	if status, err := u.Wait(t.Context(), job); status != 3 || err != nil {
		t.Errorf("Wait = %d, %v", status, err)
	}
	u, job, dir2 := newUnits(t, lost{}, "exit 3")
	if err := u.Start(job); !errors.Is(err, errNoAnswer) {
		t.Errorf("it does not run, and Start = %v", err)
	}
	// Should the manager start it later, nothing runs.
	if code := hook.Supervise(job.Dir, &bytes.Buffer{}, &bytes.Buffer{}); code != 125 {
		t.Errorf("a late supervisor: %d", code)
	}
	if runs(t, dir) != 1 || runs(t, dir2) != 0 {
		t.Errorf("%d and %d runs", runs(t, dir), runs(t, dir2))
	}
}

// forgetful is a manager that takes a start and does not get to it.
type forgetful struct{ manager }

func (forgetful) Start(context.Context, systemd.Service) error { return nil }

// An agent that died before its unit started leaves a run that nobody owns.
// Whoever claims it first has it.
func TestUnitThatComesLate(t *testing.T) {
	u, job, dir := newUnits(t, forgetful{}, "exit 0")
	if err := u.Start(job); err != nil {
		t.Fatal(err)
	}
	if _, err := u.Wait(t.Context(), job); !errors.Is(err, hook.ErrLost) {
		t.Fatalf("Wait = %v", err)
	}
	if code := hook.Supervise(job.Dir, &bytes.Buffer{}, &bytes.Buffer{}); code != 125 || runs(t, dir) != 0 {
		t.Errorf("a late supervisor: %d, %d runs", code, runs(t, dir))
	}
}

// A second start of one run is a fault of the manager, and has no effect.
func TestUnitStartedTwice(t *testing.T) {
	u, job, dir := newUnits(t, manager{}, "exit 0")
	if err := u.Start(job); err != nil {
		t.Fatal(err)
	}
	if status, err := u.Wait(t.Context(), job); status != 0 || err != nil {
		t.Fatalf("Wait = %d, %v", status, err)
	}
	if code := hook.Supervise(job.Dir, &bytes.Buffer{}, &bytes.Buffer{}); code != 125 || runs(t, dir) != 1 {
		t.Errorf("exit status %d, %d runs", code, runs(t, dir))
	}
}

// A unit whose supervisor is killed has no result, and nothing of it lives.
func TestSupervisorIsKilled(t *testing.T) {
	u, job, dir := newUnits(t, manager{}, "exec sleep 60")
	if err := u.Start(job); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the hook", func() bool { return runs(t, dir) == 1 })
	kill(t, job)
	if _, err := u.Wait(t.Context(), job); !errors.Is(err, hook.ErrLost) {
		t.Errorf("Wait = %v", err)
	}
	waitFor(t, "the end of the hook", func() bool { return len(members(hook.UnitName(job))) == 0 })
}

// What a failed hook left ends though no agent looks, and though it holds the
// hook's output.
func TestFailureNeedsNoAgent(t *testing.T) {
	u, job, dir := newUnits(t, manager{}, `sleep 60 & echo $! >"$dir/child"; exit 1`)
	if err := u.Start(job); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the child", func() bool { return exists(filepath.Join(dir, "child")) && read(t, dir, "child") != "" })
	child, err := strconv.Atoi(strings.TrimSpace(read(t, dir, "child")))
	if err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the end of the child", func() bool { return !alive(child) })
	if status, err := u.Wait(t.Context(), job); status != 1 || err != nil {
		t.Errorf("Wait = %d, %v", status, err)
	}
}

// kill kills the supervisor of the job alone.
func kill(t *testing.T, job hook.Job) {
	t.Helper()
	for _, pid := range members(hook.UnitName(job)) {
		argv, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "cmdline"))
		if err == nil && bytes.Contains(argv, []byte(hook.SuperviseCommand+"\x00"+job.Dir)) {
			process, err := os.FindProcess(pid)
			if err != nil {
				t.Fatal(err)
			}
			if err := process.Kill(); err != nil {
				t.Fatal(err)
			}
			return
		}
	}
	t.Fatal("no supervisor")
}

// A manager that cannot be asked for a while costs no result.
type deaf struct{ manager }

func (deaf) Running(context.Context, string) (bool, error) { return false, errNoAnswer }

func TestManagerThatCannotBeAsked(t *testing.T) {
	u, job, _ := newUnits(t, deaf{}, "sleep 0.3; exit 4")
	if err := u.Start(job); err != nil {
		t.Fatal(err)
	}
	if status, err := u.Wait(t.Context(), job); status != 4 || err != nil {
		t.Errorf("Wait = %d, %v", status, err)
	}
}

// A run whose directory somebody removed is ended before another begins, in this
// attempt or the next.
func TestDirectoryIsRemoved(t *testing.T) {
	const script = `[ -e "$dir/second" ] && exit 0
trap '' TERM
exec sleep 60`
	u, job, dir := newUnits(t, manager{}, script)
	if err := u.Start(job); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the hook", func() bool { return runs(t, dir) == 1 })
	first := members(hook.UnitName(job))
	write(t, dir, "second")
	if err := os.RemoveAll(job.Dir); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(job.Dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := u.Start(job); err != nil {
		t.Fatal(err)
	}
	if status, err := u.Wait(t.Context(), job); status != 0 || err != nil {
		t.Errorf("Wait = %d, %v", status, err)
	}
	for _, pid := range first {
		if alive(pid) {
			t.Errorf("process %d of the first run lives", pid)
		}
	}
}

// What anybody may read of a unit holds nothing of the command.
func TestUnitHoldsNoSecret(t *testing.T) {
	seen := &watching{}
	u, job, _ := newUnits(t, seen, "exit 0")
	job.Token, job.Env = secretToken, append(job.Env, "HTTPS_PROXY=http://user:password@proxy")
	job.Stdin = filepath.Join(job.Dir, "blob")
	if err := os.WriteFile(job.Stdin, []byte("join-secret-of-the-cluster"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := u.Start(job); err != nil {
		t.Fatal(err)
	}
	if status, err := u.Wait(t.Context(), job); status != 0 || err != nil {
		t.Fatalf("Wait = %d, %v", status, err)
	}
	body, err := json.Marshal(seen.service)
	if err != nil {
		t.Fatal(err)
	}
	for _, secret := range []string{secretToken, "password", "join-secret"} {
		if bytes.Contains(body, []byte(secret)) {
			t.Errorf("%q is in the unit: %s", secret, body)
		}
	}
	if exists(filepath.Join(job.Dir, "job")) {
		t.Error("the file with the token stays")
	}
}

// watching keeps what it was asked to start.
type watching struct {
	manager
	service systemd.Service
}

func (w *watching) Start(ctx context.Context, s systemd.Service) error {
	w.service = s
	return w.manager.Start(ctx, s)
}

// A change of the setting does not lose a run.
func TestRunOfTheOtherRunner(t *testing.T) {
	u, job, _ := newUnits(t, manager{}, "sleep 0.3; exit 5")
	other := job
	other.Dir += "-other"
	if err := os.Mkdir(other.Dir, 0o700); err != nil {
		t.Fatal(err)
	}
	processes := &hook.Processes{}
	units, direct := &hook.Either{Units: u, Processes: processes}, &hook.Either{Units: u, Processes: processes, Direct: true}
	if err := errors.Join(units.Start(job), direct.Start(other)); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		runner *hook.Either
		job    hook.Job
	}{{direct, job}, {units, other}} {
		if status, err := tt.runner.Wait(t.Context(), tt.job); status != 5 || err != nil {
			t.Errorf("Wait = %d, %v", status, err)
		}
	}
}

// The journal gets what a hook prints, on both streams, without the secrets and
// in whole lines.
func TestSupervisePrints(t *testing.T) {
	h, dir := newHost(t, `cat; echo "on stderr: $(cat "$1.blob")" >&2
head -c 200000 /dev/zero | tr '\0' x
echo; echo end; exit 6`)
	job := hook.Job{Dir: filepath.Join(dir, "job-1"), Path: h.Path, Verb: hook.Configure, Token: secretToken, Env: []string{"PATH=" + os.Getenv("PATH")}}
	job.Stdin = filepath.Join(job.Dir, "blob")
	body, err := json.Marshal(job)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(job.Dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"job": string(body), "status.reserved": "          ", "blob": "first line of the blob\n" + secretToken + "\n"} {
		if err := os.WriteFile(filepath.Join(job.Dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var stdout, stderr bytes.Buffer
	if code := hook.Supervise(job.Dir, &stdout, &stderr); code != 6 {
		t.Errorf("exit status %d", code)
	}
	if want := "[redacted]\n[redacted]\n[output without line breaks]\nend\n"; stdout.String() != want {
		t.Errorf("standard output %q", stdout.String())
	}
	if !strings.HasPrefix(stderr.String(), "cat: ") || strings.TrimSpace(read(t, job.Dir, "status")) != "6" {
		t.Errorf("standard error %q, status %q", stderr.String(), read(t, job.Dir, "status"))
	}
	if code := hook.Supervise(filepath.Join(dir, "absent"), &stdout, &stderr); code != 125 {
		t.Errorf("without a run: %d", code)
	}
}

// A hook that cannot be executed says so.
func TestSuperviseWithoutAHook(t *testing.T) {
	h, _ := newHost(t, "exit 0")
	if !units() {
		t.Skip("of hooks in units")
	}
	if err := os.WriteFile(h.Path, []byte("\x7fELF nothing"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := h.Run(t.Context(), call(hook.Drain, "op-1", "")); err == nil || !strings.Contains(err.Error(), "exec format error") {
		t.Errorf("Run = %v", err)
	}
}
