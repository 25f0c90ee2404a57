package hook_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"bigfleet-providers/agent/internal/hook"
)

// smallTmpfs gives h a runtime directory that holds 64 KiB.
func smallTmpfs(t *testing.T, h *hook.Host) {
	t.Helper()
	if err := os.Mkdir(h.RuntimeDir, 0o700); err != nil {
		t.Fatal(err)
	}
	err := syscall.Mount("tmpfs", h.RuntimeDir, "tmpfs", 0, "size=64k")
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
	smallTmpfs(t, h)
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
			smallTmpfs(t, h)
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
