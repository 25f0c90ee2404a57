package hook_test

import (
	"context"
	"errors"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"bigfleet-providers/agent/internal/hook"
)

// daemonise starts what left the hook's process group and notes its pid.
const daemonise = `setsid sh -c 'echo $$ >"$0/stray"; exec sleep 60' "$dir" &
until [ -s "$dir/stray" ]; do sleep 0.02; done
`

func strayOf(t *testing.T, dir string) int {
	t.Helper()
	pid, err := strconv.Atoi(strings.TrimSpace(read(t, dir, "stray")))
	if err != nil {
		t.Fatal(err)
	}
	return pid
}

func TestWhatLeftTheGroup(t *testing.T) {
	superseded := errors.New("superseded")
	tests := []struct {
		name, end string
		cut       error // the cause that ends the hook, if it does not by itself
		lives     bool
	}{
		{"success", "exit 0", nil, true},
		{"failure", "exit 1", nil, !units()}, // a control group has no way out
		{"superseded", "exec sleep 60", superseded, false},
		{"out of time", "exec sleep 60", hook.ErrDeadline, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			h, dir := newHost(t, daemonise+tt.end)
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			result := make(chan error, 1)
			go func() { result <- h.Run(ctx, call(hook.Drain, "op-1", "")) }()
			waitFor(t, "the daemon", func() bool { return exists(filepath.Join(dir, "stray")) && read(t, dir, "stray") != "" })
			stray := strayOf(t, dir)
			defer func() {
				if err := syscall.Kill(stray, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
					t.Error(err)
				}
			}()
			if tt.cut != nil {
				cancel(tt.cut)
			}
			if err := <-result; (err == nil) != (tt.name == "success") || tt.cut != nil && !errors.Is(err, tt.cut) {
				t.Errorf("Run = %v", err)
			}
			if alive(stray) != tt.lives {
				t.Errorf("the daemon lives: %t", alive(stray))
			}
		})
	}
}

// What bears the mark of another run is left alone.
func TestStrayOfAnotherRun(t *testing.T) {
	other, otherDir := newHost(t, daemonise)
	if err := other.Run(t.Context(), call(hook.Configure, "op-1", "x")); err != nil {
		t.Fatal(err)
	}
	stray := strayOf(t, otherDir)
	defer func() {
		if err := syscall.Kill(stray, syscall.SIGKILL); err != nil {
			t.Error(err)
		}
	}()
	h, _ := newHost(t, "exec sleep 60")
	ctx, cancel := context.WithTimeoutCause(t.Context(), 100*time.Millisecond, hook.ErrDeadline)
	defer cancel()
	if err := h.Run(ctx, call(hook.Configure, "op-2", "x")); !errors.Is(err, hook.ErrDeadline) {
		t.Errorf("Run = %v", err)
	}
	if !alive(stray) {
		t.Error("another run's daemon was killed")
	}
}

// At the deadline a stubborn hook is dead and its last words are known: a polite
// end lies before it.
func TestKilledAtTheDeadline(t *testing.T) {
	const limit = 4 * time.Second
	h, _ := newHost(t, `trap 'echo asked >&2' TERM
echo working >&2
while :; do sleep 0.05; done`)
	ctx, cancel := context.WithTimeoutCause(t.Context(), limit, hook.ErrDeadline)
	defer cancel()
	begun := time.Now()
	err := h.Run(ctx, call(hook.Drain, "op-1", ""))
	took := time.Since(begun)
	if !errors.Is(err, hook.ErrDeadline) || !strings.Contains(err.Error(), "working") || !strings.Contains(err.Error(), "asked") {
		t.Errorf("Run = %v", err)
	}
	// Under load the kill itself takes a moment; a hook that is not killed stays for ever.
	if late := took - limit; late < -50*time.Millisecond || late > 30*time.Second {
		t.Errorf("the hook was killed %s after its deadline", late)
	}
}

// A polite hook does not use up the time.
func TestAskedBeforeTheDeadline(t *testing.T) {
	const limit = 8 * time.Second
	h, dir := newHost(t, `trap 'echo >"$dir/asked"; exit 1' TERM
while :; do sleep 0.05; done`)
	ctx, cancel := context.WithTimeoutCause(t.Context(), limit, hook.ErrDeadline)
	defer cancel()
	if err := h.Run(ctx, call(hook.Drain, "op-1", "")); !errors.Is(err, hook.ErrDeadline) {
		t.Errorf("Run = %v", err)
	}
	if ctx.Err() != nil || !exists(filepath.Join(dir, "asked")) {
		t.Errorf("the hook was not asked before its deadline: %v", ctx.Err())
	}
}
