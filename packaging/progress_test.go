package packaging

import (
	"bufio"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// stubGo is a toolchain that takes its time: it waits for the test at each step.
const stubGo = `#!/bin/sh
case $1 in
list)
  echo "go: downloading example.com/a v1.0.0" >&2
  read -r _ <"$FIFO"
  printf '%s\n' example.com/a example.com/b example.com/c
  ;;
build)
  printf '%s\n' example.com/a example.com/b >&2
  read -r _ <"$FIFO"
  [ -z "${BROKEN:-}" ] || {
    printf '# example.com/c\nc/c.go:1:1: it is broken\n' >&2
    exit 1
  }
  ;;
esac
`

// make build and make demo say what they wait for, before they wait.
func TestBuildSaysWhatItWaitsFor(t *testing.T) {
	need(t, "dash", "shellcheck")
	run(t, exec.Command("shellcheck", "--shell=dash", "../.ci/build"))
	for _, broken := range []string{"", "yes"} {
		t.Run("broken="+broken, func(t *testing.T) {
			dir := t.TempDir()
			fifo := filepath.Join(dir, "fifo")
			if err := errors.Join(os.WriteFile(filepath.Join(dir, "go"), []byte(stubGo), 0o700), syscall.Mkfifo(fifo, 0o600)); err != nil {
				t.Fatal(err)
			}
			cmd := exec.Command("dash", "../.ci/build", "v1", "1")
			cmd.Env = []string{"PATH=" + dir + ":/usr/bin:/bin", "FIFO=" + fifo, "BROKEN=" + broken, "TMPDIR=" + dir}
			said, err := cmd.StderrPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			var lines []string
			in := bufio.NewScanner(said)
			until := func(text string) {
				for in.Scan() {
					if lines = append(lines, in.Text()); strings.Contains(in.Text(), text) {
						return
					}
				}
				t.Fatalf("%q was not said:\n%s", text, strings.Join(lines, "\n"))
			}
			goOn := func() {
				if err := os.WriteFile(fifo, []byte("\n"), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			until("downloads its modules")
			until(": 1 modules downloaded")
			goOn()
			until(": 2 of 3 packages compiled")
			goOn()
			if broken == "" {
				until("Built in ")
			} else {
				until("it is broken")
			}
			if err := cmd.Wait(); (err == nil) != (broken == "") {
				t.Error(err)
			}
			if all := strings.Join(lines, "\n"); strings.Contains(all, "example.com/a") {
				t.Errorf("Go's own lines are among it:\n%s", all)
			}
			if left, err := filepath.Glob(filepath.Join(dir, "tmp.*")); err != nil || len(left) > 0 {
				t.Errorf("left behind: %q, %v", left, err)
			}
		})
	}
}
