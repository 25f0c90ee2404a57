package symlink

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

func TestTarget(t *testing.T) {
	dir := t.TempDir()
	in := func(name string) string { return filepath.Join(dir, name) }
	if err := errors.Join(os.MkdirAll(in("deep/er"), 0o700), os.WriteFile(in("deep/file"), nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	for name, to := range map[string]string{
		"relative": "deep/file",
		"absolute": in("deep/file"),
		"twice":    "relative",
		"dangling": "deep/none",
		"nowhere":  "none/none",
		"folder":   "deep/er",
		"around":   "folder/../file", // is deep/file, and not file
		"loop":     "loop",
	} {
		if err := os.Symlink(to, in(name)); err != nil {
			t.Fatal(err)
		}
	}
	for name, want := range map[string]string{
		"deep/file":   "deep/file",
		"none":        "none",
		"none/at/all": "none/at/all",
		"relative":    "deep/file",
		"absolute":    "deep/file",
		"twice":       "deep/file",
		"dangling":    "deep/none",
		"nowhere":     "none/none",
	} {
		if got, err := Target(in(name)); err != nil || filepath.Clean(got) != in(want) {
			t.Errorf("%s: %q, %v; want %q", name, got, err, in(want))
		}
	}
	got, err := Target(in("around"))
	if err != nil {
		t.Fatal(err)
	}
	a, err1 := os.Stat(got)
	b, err2 := os.Stat(in("deep/file"))
	if err := errors.Join(err1, err2); err != nil || !os.SameFile(a, b) {
		t.Errorf("through a link and back: %q, %v", got, err)
	}
	if _, err := Target(in("loop")); !errors.Is(err, syscall.ELOOP) {
		t.Errorf("loop: %v", err)
	}
}
