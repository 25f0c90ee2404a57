package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// bin is the folder with the built binaries.
var bin string

func TestMain(m *testing.M) {
	code, err := buildAndRun(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func buildAndRun(m *testing.M) (int, error) {
	dir, err := os.MkdirTemp("", "bigfleet-e2e-")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	bin = dir
	for _, pkg := range []string{"./provider/cmd/scaleway", "./provider/cmd/fakecloud", "./provider/cmd/capacityctl", "./agent/cmd/bigfleet-agent"} {
		// The binaries are built with the race detector: a race in them ends the
		// process, and so the test.
		build := exec.Command("go", "build", "-race", "-o", filepath.Join(dir, filepath.Base(pkg)), pkg)
		build.Dir = "../.."
		build.Env = append(os.Environ(), "CGO_ENABLED=1")
		if out, err := build.CombinedOutput(); err != nil {
			return 0, fmt.Errorf("build %s: %w\n%s", pkg, err, out)
		}
	}
	return m.Run(), nil
}
