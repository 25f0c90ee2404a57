package e2e

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// canaries are what must not be seen anywhere, by name.
type canaries map[string]string

// in reports every canary in content.
func (c canaries) in(t *testing.T, where string, content []byte) {
	t.Helper()
	for _, name := range c.found(content) {
		t.Errorf("%s holds the %s", where, name)
	}
}

// found names the canaries in content, also in the encodings in which bytes are
// printed and stored.
func (c canaries) found(content []byte) []string {
	var names []string
	for name, secret := range c {
		raw := []byte(secret)
		// An encoding in base64 depends on what is before it, up to three ways.
		forms := [][]byte{raw, []byte(hex.EncodeToString(raw)), fmt.Appendf(nil, "%v", raw)}
		for skip := range 3 {
			part := raw[skip:]
			forms = append(forms, []byte(base64.RawStdEncoding.EncodeToString(part[:len(part)/3*3])))
		}
		if slices.ContainsFunc(forms, func(form []byte) bool { return bytes.Contains(content, form) }) {
			names = append(names, name)
		}
	}
	return names
}

// inFiles looks into every file below a folder.
func (c canaries) inFiles(t *testing.T, dir string, except ...string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if slices.Contains(except, path) {
			return fs.SkipDir
		}
		if !d.Type().IsRegular() {
			return nil
		}
		content, err := os.ReadFile(path)
		c.in(t, path, content)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// inProcesses looks at the command lines of a process and of all that it started,
// which everybody on the machine can read, and at the environments of those that
// it started: agents and hooks.
func (c canaries) inProcesses(t *testing.T, pid int) (places []string) {
	t.Helper()
	look := func(what, command string, content []byte) {
		for _, name := range c.found(content) {
			places = append(places, fmt.Sprintf("the %s of %q holds the %s", what, command, name))
		}
	}
	found, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	parents := map[string]string{}
	for _, path := range found {
		if stat, err := os.ReadFile(path); err == nil { // else it ended
			// pid (name) state parent
			parents[filepath.Base(filepath.Dir(path))] = strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))[1]
		}
	}
	first := fmt.Sprint(pid)
	for p := range parents {
		up := p
		for up != first && parents[up] != "" {
			up = parents[up]
		}
		if up != first {
			continue
		}
		content, err := os.ReadFile("/proc/" + p + "/cmdline")
		if err == nil {
			look("command line", string(content), content)
		}
		if p == first {
			continue
		}
		if env, err := os.ReadFile("/proc/" + p + "/environ"); err == nil {
			look("environment", string(content), env)
		}
	}
	return places
}

// TestCanariesAreFound: what looks for secrets finds them.
func TestCanariesAreFound(t *testing.T) {
	t.Parallel()
	hidden := canaries{"argument": "canary-in-an-argument", "variable": "canary-in-a-variable"}
	child := exec.CommandContext(t.Context(), "sh", "-c", "sleep 60; : "+hidden["argument"])
	child.Env = []string{"PATH=" + os.Getenv("PATH"), "X=" + hidden["variable"]}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = child.Process.Kill() // nothing else ends it
		_ = child.Wait()
	}()
	// The shell's own child has the environment, the shell the argument.
	await(t, "the canaries", func() bool {
		found := strings.Join(hidden.inProcesses(t, os.Getpid()), "\n")
		return strings.Contains(found, "holds the argument") && strings.Contains(found, "holds the variable")
	})
	for _, form := range []string{
		"x canary-in-a-variable y", hex.EncodeToString([]byte("canary-in-a-variable")), string(fmt.Appendf(nil, "%v", []byte("canary-in-a-variable"))),
		base64.StdEncoding.EncodeToString([]byte("canary-in-a-variable")), base64.StdEncoding.EncodeToString([]byte("1canary-in-a-variable2")), base64.StdEncoding.EncodeToString([]byte("12canary-in-a-variable")),
	} {
		if got := hidden.found([]byte(form)); len(got) != 1 || got[0] != "variable" {
			t.Errorf("%q is found in %q", got, form)
		}
	}
}
