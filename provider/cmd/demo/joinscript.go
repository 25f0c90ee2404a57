package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// joinScript is the bootstrap blob of the demo: a script that the hosts run and
// that keeps a diary of it. It does not end before it is released, so that the
// provider can be killed for certain in its middle.
type joinScript struct {
	diary string // one line a begin and one an end
	gate  string // the script goes on when this file exists
}

// scriptRun is what the diary says of one run.
type scriptRun struct{ machine, command string }

func newJoinScript(dir string) (*joinScript, error) {
	j := &joinScript{diary: filepath.Join(dir, "joined"), gate: filepath.Join(dir, "go-on")}
	if strings.Contains(dir, "'") {
		return nil, fmt.Errorf("temporary folder %s: a quote in its name cannot be written into a script; set TMPDIR", dir)
	}
	return j, nil
}

// blob is the script. It waits for the gate for at most half a minute, so that
// none is left waiting if the demo dies.
func (j *joinScript) blob() []byte {
	return fmt.Appendf(nil, `#!/bin/sh
set -eu
say() { echo "$1 $BIGFLEET_MACHINE_ID $BIGFLEET_COMMAND_ID" >>'%s'; }
say begin
n=0
until [ -e '%s' ]; do
  n=$((n + 1))
  [ "$n" -le 300 ] || { echo 'nobody said go on' >&2; exit 1; }
  sleep 0.1
done
say end
`, j.diary, j.gate)
}

// release lets every script end.
func (j *joinScript) release() error { return os.WriteFile(j.gate, nil, 0o600) }

func (j *joinScript) begun() ([]scriptRun, error) { return j.read("begin") }
func (j *joinScript) ended() ([]scriptRun, error) { return j.read("end") }

// read lists the diary's lines of one kind.
func (j *joinScript) read(kind string) ([]scriptRun, error) {
	text, err := os.ReadFile(j.diary)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var runs []scriptRun
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) == 3 && f[0] == kind {
			runs = append(runs, scriptRun{machine: f[1], command: f[2]})
		}
	}
	return runs, nil
}

// ranOnce returns an error unless each machine began and ended its script
// exactly once, under the given operation id.
func (j *joinScript) ranOnce(operations map[string]string) error {
	var errs []error
	for _, kind := range []string{"begin", "end"} {
		runs, err := j.read(kind)
		if err != nil {
			return err
		}
		seen := map[string]int{}
		for _, r := range runs {
			seen[r.machine]++
			if want := operations[r.machine]; r.command != want {
				errs = append(errs, fmt.Errorf("%s: its join script ran under operation %s, want %s", r.machine, r.command, want))
			}
		}
		for m := range operations {
			if seen[m] != 1 {
				errs = append(errs, fmt.Errorf("%s: %d times the %s of a join script, want 1", m, seen[m], kind))
			}
		}
	}
	return errors.Join(errs...)
}
