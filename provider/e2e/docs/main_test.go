package docs

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// root is the repository's.
const root = "../../.."

// bin is the folder with the built programs.
var bin string

func TestMain(m *testing.M) {
	if script := os.Getenv(inSandbox); script != "" {
		fmt.Fprintln(os.Stderr, enter(script))
		os.Exit(sandboxExit)
	}
	code, err := buildAndRun(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// buildAndRun builds what `make build` does, and runs the tests.
func buildAndRun(m *testing.M) (int, error) {
	dir, err := os.MkdirTemp("", "bigfleet-docs-")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	bin = filepath.Join(dir, "bin")
	build := exec.Command("go", "build", "-trimpath", "-o", bin+"/", "./agent/cmd/...", "./provider/cmd/...")
	build.Dir = root
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return 0, fmt.Errorf("build: %w\n%s", err, out)
	}
	return m.Run(), nil
}
