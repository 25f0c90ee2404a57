package crash

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// program is the built provider.
var program string

func TestMain(m *testing.M) {
	code, err := buildAndRun(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func buildAndRun(m *testing.M) (int, error) {
	dir, err := os.MkdirTemp("", "bigfleet-crash-")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	// Some tests run it as another user. It holds a program and no secret.
	if err := os.Chmod(dir, 0o755); err != nil {
		return 0, err
	}
	program = filepath.Join(dir, "scaleway")
	build := exec.Command("go", "build", "-race", "-o", program, "./provider/cmd/scaleway")
	build.Dir = "../../.."
	build.Env = append(os.Environ(), "CGO_ENABLED=1")
	if out, err := build.CombinedOutput(); err != nil {
		return 0, fmt.Errorf("build the provider: %w\n%s", err, out)
	}
	return m.Run(), nil
}
