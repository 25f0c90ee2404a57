package hook_test

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"bigfleet-providers/agent/internal/hook"
)

// smallTmpfs gives h a runtime directory of the given size.
func smallTmpfs(t *testing.T, h *hook.Host, size string) {
	t.Helper()
	if err := os.Mkdir(h.RuntimeDir, 0o700); err != nil {
		t.Fatal(err)
	}
	err := syscall.Mount("tmpfs", h.RuntimeDir, "tmpfs", 0, "size="+size)
	if errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.EACCES) {
		t.Skip("a tmpfs cannot be mounted:", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(h.RuntimeDir, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
}

// Half a blob that did not fit must not stay.
func TestNoRoomForTheBlob(t *testing.T) {
	h, dir := newHost(t, `echo >"$dir/ran"`)
	smallTmpfs(t, h, "64k")
	err := h.Run(t.Context(), call(hook.Configure, "op-1", strings.Repeat("secret\n", 20000)))
	if !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("Run = %v", err)
	}
	if exists(filepath.Join(dir, "ran")) {
		t.Error("the hook ran")
	}
	left, err := filepath.Glob(filepath.Join(h.RuntimeDir, "runs", "*"))
	if err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
	if err := h.Run(t.Context(), call(hook.Configure, "op-1", "x")); err != nil {
		t.Errorf("with a blob that fits: %v", err)
	}
}

// A hook that fills the tmpfs has a result all the same.
func TestNoRoomForTheStatus(t *testing.T) {
	for body, want := range map[string]string{"exit 0": "", "exit 7": "exit status 7"} {
		t.Run(body, func(t *testing.T) {
			h, dir := newHost(t, `dd if=/dev/zero of="$dir/run/fill" bs=4096 2>"$dir/dd"
`+body)
			smallTmpfs(t, h, "64k")
			err := h.Run(t.Context(), call(hook.Configure, "op-1", "x"))
			if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
				t.Errorf("Run = %v", err)
			}
			if !strings.Contains(read(t, dir, "dd"), "No space left") {
				t.Error("the tmpfs was not full")
			}
		})
	}
}

// Nor can a daemon fill it, with files that have lost their names either.
func TestDaemonCannotFillTheTmpfs(t *testing.T) {
	h, dir := newHost(t, `sh -c 'echo $$ >"$0/daemon"; yes daemon | head -c 8000000 >&2; echo >"$0/talked"; exec sleep 60' "$dir" &
until [ -s "$dir/daemon" ]; do sleep 0.02; done`)
	smallTmpfs(t, h, "16m")
	if err := h.Run(t.Context(), call(hook.Configure, "op-1", "x")); err != nil {
		t.Fatal(err)
	}
	daemon, err := strconv.Atoi(strings.TrimSpace(read(t, dir, "daemon")))
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := syscall.Kill(-pgid(t, daemon), syscall.SIGKILL); err != nil {
			t.Error(err)
		}
	}()
	var most uint64
	waitFor(t, "the daemon's output", func() bool {
		var fsys syscall.Statfs_t
		if err := syscall.Statfs(h.RuntimeDir, &fsys); err != nil {
			t.Fatal(err)
		}
		most = max(most, (fsys.Blocks-fsys.Bfree)*uint64(fsys.Bsize))
		return exists(filepath.Join(dir, "talked"))
	})
	if most > 1<<20 {
		t.Errorf("%d bytes were in use", most)
	}
}
