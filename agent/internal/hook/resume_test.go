package hook_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"bigfleet-providers/agent/internal/hook"
)

const waitForGo = `echo "$BIGFLEET_ATTEMPT" >>"$dir/runs"
while [ ! -e "$dir/go" ]; do sleep 0.02; done
echo "done, blob was $(cat)" >&2
[ ! -e "$dir/fail" ]`

// restarted is the same host with another agent.
func restarted(t *testing.T, h *hook.Host) *hook.Host {
	t.Helper()
	return &hook.Host{Path: h.Path, RuntimeDir: h.RuntimeDir, Token: h.Token, Runner: newRunner(t), Log: h.Log}
}

// detach starts the hook and stops the agent while it runs.
func detach(t *testing.T, h *hook.Host, dir string, c hook.Call) {
	t.Helper()
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	result := make(chan error, 1)
	go func() { result <- h.Run(ctx, c) }()
	waitFor(t, "the hook", func() bool { return exists(filepath.Join(dir, "runs")) })
	cancel(hook.ErrStopping)
	if err := <-result; !errors.Is(err, hook.ErrStopping) {
		t.Fatalf("Run = %v", err)
	}
}

func TestResume(t *testing.T) {
	for _, fail := range []bool{false, true} {
		t.Run(fmt.Sprintf("fail %t", fail), func(t *testing.T) {
			h, dir := newHost(t, waitForGo)
			detach(t, h, dir, call(hook.Configure, "op-1", "join-secret-of-the-cluster"))
			if fail {
				write(t, dir, "fail")
			}
			next := restarted(t, h)
			result := make(chan error, 1)
			// The next agent does not have the blob, but must cut it out all the same.
			go func() { result <- next.Resume(t.Context(), call(hook.Configure, "op-1", "")) }()
			write(t, dir, "go")
			err := <-result
			if fail && (err == nil || !strings.Contains(err.Error(), "done, blob was [redacted]")) || !fail && err != nil {
				t.Errorf("Resume = %v", err)
			}
			again := restarted(t, h).Resume(t.Context(), call(hook.Configure, "op-1", ""))
			if fmt.Sprint(again) != fmt.Sprint(err) {
				t.Errorf("the third agent finds %v, the second found %v", again, err)
			}
			if read(t, dir, "runs") != "1\n" {
				t.Errorf("runs: %q", read(t, dir, "runs"))
			}
		})
	}
}

func write(t *testing.T, dir, name string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestResumeOfNothing(t *testing.T) {
	h, _ := newHost(t, "exit 0")
	if err := h.Resume(t.Context(), call(hook.Configure, "op-1", "")); !errors.Is(err, hook.ErrLost) {
		t.Errorf("Resume = %v", err)
	}
}

func TestResumeEndsAtTheDeadline(t *testing.T) {
	h, dir := newHost(t, waitForGo)
	detach(t, h, dir, call(hook.Configure, "op-1", "x"))
	ctx, cancel := context.WithTimeoutCause(t.Context(), 100*time.Millisecond, hook.ErrDeadline)
	defer cancel()
	if err := restarted(t, h).Resume(ctx, call(hook.Configure, "op-1", "")); err == nil || !errors.Is(err, hook.ErrDeadline) {
		t.Errorf("Resume = %v", err)
	}
}

// With the journal lost, a run that is still alive is ended before another one
// begins.
func TestUnknownRunIsEndedFirst(t *testing.T) {
	h, dir := newHost(t, `echo "begin $BIGFLEET_COMMAND_ID" >>"$dir/runs"
[ "$BIGFLEET_COMMAND_ID" = op-1 ] || exit 0
trap 'echo end >>"$dir/runs"; exit 1' TERM
while :; do sleep 0.05; done`)
	detach(t, h, dir, call(hook.Configure, "op-1", "x"))
	if err := restarted(t, h).Run(t.Context(), call(hook.Configure, "op-2", "x")); err != nil {
		t.Fatal(err)
	}
	if got := read(t, dir, "runs"); got != "begin op-1\nend\nbegin op-2\n" {
		t.Errorf("runs:\n%s", got)
	}
}

// An agent that died between its journal and the hook's start leaves a run
// without an owner; whoever claims it first has it.
func TestLateSupervisorDoesNotRun(t *testing.T) {
	dir := t.TempDir()
	job := hook.Job{Dir: filepath.Join(dir, "run"), Path: "/bin/true", Verb: hook.Drain}
	if err := os.Mkdir(job.Dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := (&hook.Processes{}).Wait(t.Context(), job); !errors.Is(err, hook.ErrLost) {
		t.Fatalf("Wait = %v", err)
	}
	late := &hook.Processes{}
	if err := late.Start(job); err != nil {
		t.Fatal(err)
	}
	if _, err := late.Wait(t.Context(), job); !errors.Is(err, hook.ErrLost) {
		t.Errorf("Wait = %v", err)
	}
	if late.Ended(job) {
		t.Error("the hook ran")
	}
}

// The runtime directory knows what ran when the journal is lost.
func TestAttempts(t *testing.T) {
	h, _ := newHost(t, "exit 0")
	want := func(verb hook.Verb, id string, attempt int) {
		t.Helper()
		if got, err := h.Attempts(call(verb, id, "")); err != nil || got != attempt {
			t.Errorf("Attempts of %s %s = %d, %v, want %d", verb, id, got, err, attempt)
		}
	}
	want(hook.Configure, "op-1", 0)
	for _, attempt := range []int{1, 2, 10} {
		c := call(hook.Configure, "op-1", "x")
		c.Attempt = attempt
		if err := h.Run(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		want(hook.Configure, "op-1", attempt)
	}
	want(hook.Ready, "op-1", 0)
	want(hook.Configure, "op-2", 0)
}
