// Package hooks_test runs the shipped hooks under dash, which is /bin/sh on
// Debian, with stand-ins for the programs that they call.
package hooks_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// built is the agent's program, made once.
var built = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "hooks-test-")
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "bigfleet-agent")
	// As make build does, with which it shares what is compiled.
	build := exec.Command("go", "build", "-trimpath", "-o", path, "bigfleet-providers/agent/cmd/bigfleet-agent")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w: %s", err, out)
	}
	return path, nil
})

func TestMain(m *testing.M) {
	code := m.Run()
	if path, err := built(); err == nil {
		if err := os.RemoveAll(filepath.Dir(path)); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	}
	os.Exit(code)
}

func agentProgram(t *testing.T) string {
	t.Helper()
	path, err := built()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// host is a host in a folder: root is its file system, as far as hooks look.
type host struct {
	dir, root string
	hook      string // file in this folder
	env       []string
}

// tools are the programs that the hooks change a host with. The real ones must
// never be called.
var tools = []string{
	"agent", "cloud-init", "ip", "ip6tables-restore", "ip6tables-save", "iptables-restore", "iptables-save", "ipvsadm",
	"journalctl", "k3s", "kubeadm", "nft", "systemctl", "umount",
}

func newHost(t *testing.T, hook string) *host {
	t.Helper()
	dash, err := exec.LookPath("dash")
	if err != nil {
		t.Skip("dash is not installed:", err)
	}
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	h := &host{dir: t.TempDir(), hook: hook}
	h.root = filepath.Join(h.dir, "root")
	for _, dir := range []string{"bin", "run", "root"} {
		if err := os.Mkdir(filepath.Join(h.dir, dir), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	// Nothing else of the host is on the path.
	for _, name := range []string{"awk", "cat", "chmod", "cp", "cut", "date", "env", "find", "grep", "head", "ls", "mkdir", "mktemp", "mv", "rm", "sed", "sleep", "sort", "tail", "tr"} {
		path, err := exec.LookPath(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(path, filepath.Join(h.dir, "bin", name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(dash, filepath.Join(h.dir, "bin", "sh")); err != nil {
		t.Fatal(err)
	}
	for _, name := range tools {
		h.tool(t, name, "")
	}
	h.env = []string{
		"dir=" + h.dir, "root=" + h.root, "PATH=" + filepath.Join(h.dir, "bin"), "BIGFLEET_ROOT=" + h.root,
		"BIGFLEET_AGENT=" + filepath.Join(h.dir, "bin", "agent"), "BIGFLEET_BLOB_FILE=" + filepath.Join(h.dir, "run", "blob"),
		"BIGFLEET_NODE_NAME=node-1", "BIGFLEET_PROVIDER_ID=scaleway://instance/fr-par-1/1234", "BIGFLEET_CLUSTER_ID=c-1",
		"BIGFLEET_MACHINE_ID=m-1", "BIGFLEET_HOOKS_DIR=" + here, "BIGFLEET_COMMAND_ID=op-1", "BIGFLEET_ATTEMPT=1", "BIGFLEET_GRACE_SECONDS=30", "BIGFLEET_JOIN_PAUSE=0.01",
	}
	return h
}

// tool makes a program that notes its calls and runs the shell script body. The
// agent reads blobs as it does, and that is no call.
func (h *host) tool(t *testing.T, name, body string) {
	t.Helper()
	blob := ""
	if name == "agent" {
		blob = "[ \"$1\" != blob ] || exec " + agentProgram(t) + " \"$@\"\n"
	}
	h.write(t, "bin/"+name, "#!/bin/sh\n"+blob+"echo \""+name+" $*\" >>\"$dir/calls\"\n"+body+"\n", 0o700)
}

func (h *host) without(t *testing.T, name string) {
	t.Helper()
	if err := os.Remove(filepath.Join(h.dir, "bin", name)); err != nil {
		t.Fatal(err)
	}
}

// write makes a file, relative to the host's folder.
func (h *host) write(t *testing.T, name, text string, mode os.FileMode) {
	t.Helper()
	path := filepath.Join(h.dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
}

func (h *host) read(t *testing.T, name string) string {
	t.Helper()
	body, err := os.ReadFile(filepath.Join(h.dir, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}

func (h *host) mode(t *testing.T, name string) os.FileMode {
	t.Helper()
	info, err := os.Stat(filepath.Join(h.dir, name))
	if err != nil {
		t.Fatal(err)
	}
	return info.Mode().Perm()
}

func (h *host) exists(name string) bool {
	_, err := os.Lstat(filepath.Join(h.dir, name))
	return err == nil
}

func (h *host) set(name, value string) { h.env = append(h.env, name+"="+value) }

// run returns what the hook printed and whether it succeeded.
func (h *host) run(t *testing.T, args ...string) (output string, ok bool) {
	t.Helper()
	cmd := exec.Command("dash", append([]string{h.hook}, args...)...)
	cmd.Env = h.env
	out, err := cmd.CombinedOutput()
	if exit := new(exec.ExitError); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return string(out), err == nil
}

// must runs a verb that succeeds, and returns the calls that it made.
func (h *host) must(t *testing.T, verb string) []string {
	t.Helper()
	if err := os.RemoveAll(filepath.Join(h.dir, "calls")); err != nil {
		t.Fatal(err)
	}
	if out, ok := h.run(t, verb); !ok {
		t.Fatalf("%s failed: %s", verb, out)
	}
	return h.calls()
}

// mustFail runs a verb that fails and says why.
func (h *host) mustFail(t *testing.T, verb, why string) {
	t.Helper()
	if out, ok := h.run(t, verb); ok || !strings.Contains(out, why) {
		t.Errorf("%s: %t, %q is missing in: %s", verb, ok, why, out)
	}
}

func (h *host) calls() []string {
	body, err := os.ReadFile(filepath.Join(h.dir, "calls"))
	if err != nil {
		return nil
	}
	return strings.Split(strings.TrimSpace(string(body)), "\n")
}

func called(calls []string, prefix string) int {
	n := 0
	for _, c := range calls {
		if strings.HasPrefix(c, prefix) {
			n++
		}
	}
	return n
}

// files lists what is on the host, without folders.
func (h *host) files(t *testing.T) []string {
	t.Helper()
	var files []string
	err := filepath.WalkDir(h.root, func(path string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			files = append(files, strings.TrimPrefix(path, h.root))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// A hook is plain POSIX shell.
func TestShell(t *testing.T) {
	for _, hook := range []string{"bootstrap", "kubeadm", "k3s", "clean-network"} {
		if out, err := exec.Command("dash", "-n", hook).CombinedOutput(); err != nil {
			t.Errorf("%s: %v: %s", hook, err, out)
		}
		if out, err := exec.Command("shellcheck", "-s", "dash", hook).CombinedOutput(); errors.Is(err, exec.ErrNotFound) {
			t.Skip("shellcheck is not installed")
		} else if err != nil {
			t.Errorf("%s: %v:\n%s", hook, err, out)
		}
		if info, err := os.Stat(hook); err != nil || info.Mode().Perm() != 0o755 {
			t.Errorf("%s: %v, %v, want mode 0755", hook, info.Mode(), err)
		}
	}
}

func TestUsage(t *testing.T) {
	for _, hook := range []string{"bootstrap", "kubeadm", "k3s"} {
		h := newHost(t, hook)
		for _, args := range [][]string{nil, {"reboot"}, {""}} {
			if out, ok := h.run(t, args...); ok || !strings.Contains(out, "configure|ready|drain") {
				t.Errorf("%s %q: %t, %s", hook, args, ok, out)
			}
		}
		if calls := h.calls(); len(calls) > 0 {
			t.Errorf("%s: %q", hook, calls)
		}
	}
}
