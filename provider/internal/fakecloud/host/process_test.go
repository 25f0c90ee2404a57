package host

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"bigfleet-providers/agent"
	"bigfleet-providers/cloudinit"
	"bigfleet-providers/provider/internal/fakecloud"
	"bigfleet-providers/shared/command"
)

// binDir is made for the run of all tests.
var binDir string

func TestMain(m *testing.M) {
	var err error
	if binDir, err = os.MkdirTemp("", "bigfleet-agent-test"); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		_ = os.RemoveAll(binDir) // the system's temporary directory is cleaned anyway
		os.Exit(code)
	}))
}

// agentBinary builds the real agent once.
var agentBinary = sync.OnceValues(func() (string, error) {
	path := filepath.Join(binDir, "bigfleet-agent")
	// As make build does, with which it shares what is compiled.
	build := exec.Command("go", "build", "-trimpath", "-o", path, "bigfleet-providers/agent/cmd/bigfleet-agent")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the agent: %w\n%s", err, out)
	}
	return path, nil
})

func newProcessHosts(t *testing.T, opts ProcessOptions) *Hosts {
	t.Helper()
	if testing.Short() {
		t.Skip("builds and runs the agent")
	}
	var err error
	if opts.AgentBinary, err = agentBinary(); err != nil {
		t.Fatal(err)
	}
	opts.Dir = t.TempDir()
	h, err := NewProcess(opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.Close)
	return h
}

// marked lists the processes of a host.
func marked(t *testing.T, tree string) []int {
	t.Helper()
	list, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		t.Fatal(err)
	}
	var pids []int
	for _, p := range list {
		if isMarked(filepath.Base(p), marker+"="+tree, tree) {
			pid, _ := strconv.Atoi(filepath.Base(p)) // the glob matches digits; a name is no pid of ours
			pids = append(pids, pid)
		}
	}
	return pids
}

func awaitTrue(t *testing.T, what string, cond func() bool) {
	t.Helper()
	for end := time.Now().Add(15 * time.Second); !cond(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("timed out: %s", what)
		}
	}
}

func read(t *testing.T, parts ...string) string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(parts...))
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

func TestProcess(t *testing.T) {
	c := newChannel(t)
	var log logBuffer
	h := newProcessHosts(t, ProcessOptions{Log: log.logger()})
	tree := h.Tree("s1")
	base := []byte("#cloud-config\nwrite_files: [{path: /etc/theirs, content: x, permissions: '0640'}]\n")
	data := userData(t, cloudinit.Params{Endpoint: c.URL, CAPEM: c.ca, MachineID: "m1", Base: base})

	h.Boot(fakecloud.Guest{ServerID: "s1", Boot: 1, UserData: data})
	c.awaitParked(t, "m1", 1)
	info, err := os.Stat(filepath.Join(tree, agent.DefaultConfigPath))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the agent's config: %v %v", info, err)
	}
	if read(t, tree, "etc/theirs") != "x" {
		t.Error("the operator's file is not there")
	}

	// A script blob runs, and what it leaves behind lives as long as the host.
	blob := "#!/bin/sh\necho ran >ran\nsetsid sleep 1000 >/dev/null 2>&1 &\n"
	if ack := c.send(t, "m1", command.Configure, "op-1", blob); !ack.OK {
		t.Errorf("configure: %+v\n%s", ack, read(t, tree, AgentLog))
	}
	if read(t, tree, "ran") != "ran\n" || read(t, tree, Joined) != "cluster-a\n" {
		t.Error("the blob did not run")
	}
	if ack := c.send(t, "m1", command.Configure, "op-2", "#!/bin/sh\necho no luck >&2\nexit 3\n"); ack.OK || !strings.Contains(ack.Error, "no luck") {
		t.Errorf("configure that fails: %+v", ack)
	}
	if n := len(marked(t, tree)); n < 2 {
		t.Errorf("%d processes on the host, want the agent and what the blob left", n)
	}

	h.Halt("s1")
	awaitTrue(t, "the host's processes end", func() bool { return len(marked(t, tree)) == 0 })
	c.awaitParked(t, "m1", 0)

	// A reboot finds the disk: the journal knows the command, and it is not run again.
	h.Boot(fakecloud.Guest{ServerID: "s1", Boot: 2, UserData: []byte("ignored")})
	c.awaitParked(t, "m1", 1)
	runs := read(t, tree, HookLog)
	if ack := c.send(t, "m1", command.Configure, "op-1", blob); !ack.OK {
		t.Errorf("configure again: %+v", ack)
	}
	if again := read(t, tree, HookLog); again != runs {
		t.Errorf("ran again:\n%s", again)
	}
	if err := os.WriteFile(filepath.Join(tree, HookLog), bytes.Repeat([]byte("x"), maxLogBytes), 0o600); err != nil {
		t.Fatal(err)
	}
	if ack := c.send(t, "m1", command.Drain, "op-3", ""); !ack.OK {
		t.Errorf("drain: %+v", ack)
	}
	if log := read(t, tree, HookLog); !strings.HasPrefix(log, "drain op-3 1 ") || strings.Count(log, "\n") != 1 {
		t.Errorf("a full log of runs goes on with %.60q", log)
	}
	if _, err := os.Stat(filepath.Join(tree, Joined)); !os.IsNotExist(err) {
		t.Errorf("still joined after drain: %v", err)
	}

	h.Gone("s1")
	awaitTrue(t, "the tree goes", func() bool { _, err := os.Stat(tree); return os.IsNotExist(err) })
	h.Close()
	if strings.Contains(log.String(), testToken) {
		t.Error("the token is in the log")
	}
}

// systemd starts an agent again that was killed; so does a host.
func TestProcessRestartsAgent(t *testing.T) {
	c := newChannel(t)
	h := newProcessHosts(t, ProcessOptions{})
	h.Boot(fakecloud.Guest{ServerID: "s1", Boot: 1, UserData: c.userData(t, "m1")})
	c.awaitParked(t, "m1", 1)
	pids := marked(t, h.Tree("s1"))
	if len(pids) != 1 {
		t.Fatalf("processes %v, want one agent", pids)
	}
	if err := syscall.Kill(pids[0], syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	c.awaitParked(t, "m1", 0)
	c.awaitParked(t, "m1", 1)
	h.Close()
	if left := marked(t, h.Tree("s1")); len(left) > 0 {
		t.Errorf("left after Close: %v", left)
	}
	if _, err := os.Stat(h.Tree("s1")); err != nil {
		t.Errorf("the disk is gone after Close: %v", err)
	}
}

// A blob that hangs and ignores SIGTERM does not keep a host from going off.
func TestHaltEndsHangingHook(t *testing.T) {
	c := newChannel(t)
	h := newProcessHosts(t, ProcessOptions{})
	tree := h.Tree("s1")
	h.Boot(fakecloud.Guest{ServerID: "s1", Boot: 1, UserData: c.userData(t, "m1")})
	c.awaitParked(t, "m1", 1)
	c.change(func() {
		c.commands["m1"] = command.Command{
			CommandID: "op-1", Kind: command.Configure, MachineID: "m1", ClusterID: "c", Deadline: time.Now().Add(time.Hour),
			Blob: []byte("#!/bin/sh\ntrap '' TERM\ntouch hangs\nwhile :; do sleep 1; done\n"),
		}
	})
	awaitTrue(t, "the blob runs", func() bool { _, err := os.Stat(filepath.Join(tree, "hangs")); return err == nil })
	h.Halt("s1")
	h.Close()
	if left := marked(t, tree); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

func TestProcessBrokenUserData(t *testing.T) {
	var log logBuffer
	h := newProcessHosts(t, ProcessOptions{Log: log.logger()})
	h.Boot(fakecloud.Guest{ServerID: "../s1", Boot: 1, UserData: []byte("#cloud-config\nwrite_files: [{path: ../../../etc/x, content: y}]\n")})
	log.await(t, "no agent will run on this server")
	if read(t, h.Tree("../s1"), "etc/x") != "y" {
		t.Error("the files are not written")
	}
	// The second boot of a host without an agent is as quiet as the first.
	h.Boot(fakecloud.Guest{ServerID: "../s1", Boot: 2})
	h.Close()
	if n := strings.Count(log.String(), "no agent will run"); n != 1 {
		t.Errorf("said %d times", n)
	}
}

func TestProcessOwnHook(t *testing.T) {
	hook := filepath.Join(t.TempDir(), "it's a hook")
	if err := os.WriteFile(hook, []byte("#!/bin/sh\necho \"$1\" >>\"$BIGFLEET_FAKE_HOST/calls\"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	c := newChannel(t)
	h := newProcessHosts(t, ProcessOptions{HookPath: hook})
	h.Boot(fakecloud.Guest{ServerID: "s1", Boot: 1, UserData: c.userData(t, "m1")})
	if ack := c.send(t, "m1", command.Configure, "op-1", "x"); !ack.OK {
		t.Errorf("%+v", ack)
	}
	if got := read(t, h.Tree("s1"), "calls"); got != "configure\nready\n" {
		t.Errorf("calls: %q", got)
	}
}

func TestNewProcessRefuses(t *testing.T) {
	plain := filepath.Join(t.TempDir(), "plain")
	if err := os.WriteFile(plain, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	_, err := NewProcess(ProcessOptions{Dir: "/does/not/exist", AgentBinary: plain, HookPath: "/neither"})
	for _, want := range []string{"Dir: ", "AgentBinary: ", "HookPath: "} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("no %q in %v", want, err)
		}
	}
}

func TestBoundedLog(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	l, err := openLog(path, 100)
	if err != nil {
		t.Fatal(err)
	}
	line := append(bytes.Repeat([]byte("x"), 29), '\n')
	for range 100 {
		if _, err := l.Write(line); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{path, path + ".1"} {
		if n := len(read(t, name)); n == 0 || n > 100 {
			t.Errorf("%s: %d bytes", filepath.Base(name), n)
		}
	}
}
