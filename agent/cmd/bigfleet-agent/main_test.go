package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	ct "bigfleet-providers/agent/internal/channeltest"
	"bigfleet-providers/shared/command"
)

// binary is the agent as it is shipped.
var binary string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "bigfleet-agent-")
	if err != nil {
		panic(err)
	}
	binary = filepath.Join(dir, "bigfleet-agent")
	out, err := exec.Command("go", "build", "-o", binary, "-ldflags", "-X main.version=1.2.3", ".").CombinedOutput()
	if err != nil {
		panic(fmt.Sprintf("%v: %s", err, out))
	}
	code := m.Run()
	if err := os.RemoveAll(dir); err != nil {
		panic(err)
	}
	os.Exit(code)
}

// host is a host with the real agent, its hook and its files.
type host struct {
	dir, config string
	server      *ct.Server
	out         *lockedBuffer
	cmd         *exec.Cmd
}

type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// noteAndWait is a hook that notes its runs and, in configure, waits for the
// file "go".
const noteAndWait = `echo "$1 $BIGFLEET_COMMAND_ID $BIGFLEET_ATTEMPT" >>"$dir/runs"
[ "$1" = configure ] || exit 0
while [ ! -e "$dir/go" ]; do sleep 0.02; done
echo "end $BIGFLEET_COMMAND_ID" >>"$dir/runs"
`

func newHost(t *testing.T, hook string) *host {
	t.Helper()
	// On tmpfs where there is one, as on a host.
	dir, err := os.MkdirTemp("/dev/shm", "agent-test-")
	if err != nil {
		dir = t.TempDir()
	} else {
		t.Cleanup(func() {
			if err := os.RemoveAll(dir); err != nil {
				t.Error(err)
			}
		})
	}
	path := filepath.Join(dir, "hook")
	if err := os.WriteFile(path, []byte("#!/bin/sh\ndir="+dir+"\n"+hook), 0o700); err != nil {
		t.Fatal(err)
	}
	h := &host{dir: dir, server: ct.Start(t, ct.Options{}), out: &lockedBuffer{}}
	h.config = h.server.Config(t, dir, path)
	t.Cleanup(func() {
		h.kill()
		if t.Failed() {
			text := h.out.String()
			t.Log(text[max(0, len(text)-6000):])
		}
	})
	return h
}

func (h *host) start(t *testing.T) {
	t.Helper()
	h.cmd = exec.Command(binary, "--config", h.config, "--debug")
	h.cmd.Stdout, h.cmd.Stderr = h.out, h.out
	if err := h.cmd.Start(); err != nil {
		t.Fatal(err)
	}
}

// kill ends the agent as a crash does.
func (h *host) kill() {
	if h.cmd == nil {
		return
	}
	_ = h.cmd.Process.Kill() // it may have ended
	_ = h.cmd.Wait()
	h.cmd = nil
}

func (h *host) runs() string {
	body, err := os.ReadFile(filepath.Join(h.dir, "runs"))
	if err != nil {
		return ""
	}
	return string(body)
}

func (h *host) release(t *testing.T) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(h.dir, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
}

func (h *host) waitRun(t *testing.T, line string) {
	t.Helper()
	ct.Eventually(t, line, func() bool { return strings.Contains(h.runs(), line) })
}

// waitSettled waits until the journal says that the provider has the result.
func (h *host) waitSettled(t *testing.T) {
	t.Helper()
	ct.Eventually(t, "a settled result in the journal", func() bool {
		body, err := os.ReadFile(filepath.Join(h.dir, "state", "journal.json"))
		return err == nil && bytes.Contains(body, []byte(`"settled": true`))
	})
}

func (h *host) wantOneGoodRun(t *testing.T, id string) {
	t.Helper()
	ct.Eventually(t, "an ack", func() bool { return len(h.server.Acks()) > 0 })
	h.waitSettled(t)
	for _, a := range h.server.Acks() {
		if a.CommandID != id || !a.OK {
			t.Errorf("ack %+v", a)
		}
	}
	if n := strings.Count(h.runs(), "configure "+id); n != 1 {
		t.Errorf("configure ran %d times:\n%s", n, h.runs())
	}
}

func TestKillWhileTheHookRuns(t *testing.T) {
	h := newHost(t, noteAndWait)
	h.start(t)
	h.server.Deliver(ct.Configure("op-1", "join"))
	h.waitRun(t, "configure op-1 1")
	h.kill()
	h.start(t)
	ct.Eventually(t, "the next agent takes it up", func() bool { return strings.Contains(h.out.String(), "taking up the hook") })
	h.kill()
	h.start(t)
	h.release(t)
	h.wantOneGoodRun(t, "op-1")
}

func TestHookEndsWhileNoAgentRuns(t *testing.T) {
	h := newHost(t, noteAndWait)
	h.start(t)
	h.server.Deliver(ct.Configure("op-1", "join"))
	h.waitRun(t, "configure op-1 1")
	h.kill()
	h.release(t)
	h.waitRun(t, "end op-1")
	h.start(t)
	h.wantOneGoodRun(t, "op-1")
}

func TestKillAroundTheAck(t *testing.T) {
	for _, answered := range []bool{false, true} {
		t.Run(fmt.Sprintf("answered %t", answered), func(t *testing.T) {
			h := newHost(t, noteAndWait)
			h.release(t)
			acked := make(chan struct{})
			hold := make(chan struct{})
			once := sync.OnceFunc(func() { close(acked) })
			h.server.Intercept = func(w http.ResponseWriter, r *http.Request) bool {
				if r.URL.Path != command.PathAck {
					return false
				}
				select {
				case <-acked:
					return false
				default:
				}
				if answered { // taken, but the answer does not arrive
					h.server.Do(func() { h.server.Intercept = nil })
					h.server.ServeHTTP(discard{w}, r)
				}
				once()
				<-hold
				return true
			}
			h.start(t)
			h.server.Deliver(ct.Configure("op-1", "join"))
			<-acked
			h.kill()
			close(hold)
			h.start(t)
			h.wantOneGoodRun(t, "op-1")
		})
	}
}

// discard is a ResponseWriter whose answer goes nowhere.
type discard struct{ http.ResponseWriter }

func (discard) Header() http.Header         { return http.Header{} }
func (discard) Write(p []byte) (int, error) { return len(p), nil }
func (discard) WriteHeader(int)             {}

// Kills at random moments reach the points that no test can name from outside,
// such as between journal and start.
func TestKillAtAnyTime(t *testing.T) {
	h := newHost(t, noteAndWait)
	h.release(t)
	const rounds = 12
	for i := range rounds {
		id := "op-" + strconv.Itoa(i)
		h.server.Deliver(ct.Configure(id, "join"))
		for range 3 {
			h.start(t)
			time.Sleep(rand.N(60 * time.Millisecond)) // the point is not to know where
			h.kill()
		}
		h.start(t)
		ct.Eventually(t, "ack of "+id, func() bool {
			for _, a := range h.server.Acks() {
				if a.CommandID == id {
					return true
				}
			}
			return false
		})
		h.kill()
		if n := strings.Count(h.runs(), "configure "+id+" "); n != 1 {
			t.Fatalf("configure of %s ran %d times:\n%s", id, n, h.runs())
		}
	}
	for _, a := range h.server.Acks() {
		if !a.OK {
			t.Errorf("ack %+v", a)
		}
	}
}

// When the run's shell is killed too, the outcome is not known: what is left is
// ended and the hook runs again as attempt 2.
func TestLostRunIsAnotherAttempt(t *testing.T) {
	h := newHost(t, noteAndWait)
	h.start(t)
	h.server.Deliver(ct.Configure("op-1", "join"))
	h.waitRun(t, "configure op-1 1")
	h.kill()
	pids, err := filepath.Glob(filepath.Join(h.dir, "run", "runs", "*-configure-1", "pid"))
	if err != nil || len(pids) != 1 {
		t.Fatal(pids, err)
	}
	body, err := os.ReadFile(pids[0])
	if err != nil {
		t.Fatal(err)
	}
	shell, err := strconv.Atoi(strings.TrimSpace(string(body)))
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(shell, syscall.SIGKILL); err != nil { // the shell, not its group
		t.Fatal(err)
	}
	h.start(t)
	h.waitRun(t, "configure op-1 2")
	if others := processesWith(t, "BIGFLEET_ATTEMPT=1", h.dir); len(others) > 0 {
		t.Errorf("attempt 1 is still alive: %v", others)
	}
	h.release(t)
	h.waitSettled(t)
	if strings.Count(h.runs(), "end op-1") != 1 {
		t.Errorf("runs:\n%s", h.runs())
	}
}

// processesWith returns the command lines of processes of the hook in dir whose
// environment has entry.
func processesWith(t *testing.T, entry, dir string) []string {
	t.Helper()
	var found []string
	envs, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range envs {
		env, err := os.ReadFile(path)
		if err != nil {
			continue // it ended
		}
		argv, err := os.ReadFile(filepath.Join(filepath.Dir(path), "cmdline"))
		if err == nil && bytes.Contains(env, []byte(entry+"\x00")) && bytes.Contains(append(env, argv...), []byte(dir)) {
			found = append(found, string(argv))
		}
	}
	return found
}

// A stop is not a crash: it is quick, and leaves the hook to the next agent.
func TestStopLeavesTheHook(t *testing.T) {
	h := newHost(t, noteAndWait)
	h.start(t)
	h.server.Deliver(ct.Configure("op-1", "join"))
	h.waitRun(t, "configure op-1 1")
	begun := time.Now()
	if err := h.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := h.cmd.Wait(); err != nil {
		t.Errorf("SIGTERM: %v", err)
	}
	h.cmd = nil
	if took := time.Since(begun); took > 5*time.Second {
		t.Errorf("stopping took %s", took)
	}
	h.release(t)
	h.waitRun(t, "end op-1")
	h.start(t)
	h.wantOneGoodRun(t, "op-1")
}

func TestDamagedJournal(t *testing.T) {
	for name, content := range map[string]string{"empty": "", "half": `{"version":1,"records":[{"comm`, "garbage": "\x00\xff\x00", "newer": `{"version":99}`} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t, noteAndWait)
			h.release(t)
			state := filepath.Join(h.dir, "state")
			if err := os.MkdirAll(state, 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(state, "journal.json"), []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
			h.start(t)
			h.server.Deliver(ct.Configure("op-1", "join"))
			h.wantOneGoodRun(t, "op-1")
			aside, err := filepath.Glob(filepath.Join(state, "journal.json.damaged-*"))
			if err != nil || len(aside) != 1 {
				t.Errorf("set aside: %v, %v", aside, err)
			}
		})
	}
}

func TestSecondAgentIsRefused(t *testing.T) {
	h := newHost(t, noteAndWait)
	h.start(t)
	ct.Eventually(t, "a poll", func() bool { return len(h.server.Polls()) > 0 })
	out, err := exec.Command(binary, "--config", h.config).CombinedOutput()
	if err == nil || !strings.Contains(string(out), "another bigfleet-agent") {
		t.Errorf("second agent: %v, %s", err, out)
	}
}

// TestSecretsStayInside runs a whole life with a hook that prints all it knows,
// on the good path and the bad one, and looks for the token and the blob in all
// that anyone else can see.
func TestSecretsStayInside(t *testing.T) {
	const canary = "canary-5f1d-join-token.0123456789abcdef"
	blob := "#!/bin/sh\nkubeadm join --token " + canary + " 10.0.0.1:6443\n"
	h := newHost(t, `set -x
blob=$(cat)
echo "stdin: $blob" >&2
if [ "$1" = configure ]; then
	cat "$BIGFLEET_BLOB_FILE" >&2; base64 <"$BIGFLEET_BLOB_FILE" >&2; base64 -w0 <"$BIGFLEET_BLOB_FILE" >&2; echo >&2
	echo "error: `+canary+` was refused" >&2
	grep -o '"token": *"[^"]*"' "$dir/config.json" >&2
	env >"$dir/environ-of-hook"
	tr '\0' ' ' </proc/$PPID/cmdline >"$dir/argv-of-shell"
	[ "$BIGFLEET_COMMAND_ID" = good ] || exit 3
fi
`)
	secrets := map[string]string{"token": h.server.Token, "blob": canary, "blob in base64": "a3ViZWFkbSBqb2lu"[:12]}
	h.server.Intercept = func(w http.ResponseWriter, r *http.Request) bool {
		if rand.N(4) > 0 {
			return false
		}
		http.Error(w, "you sent "+r.Header.Get("Authorization"), http.StatusUnauthorized)
		return true
	}
	h.start(t)
	for _, id := range []string{"bad", "good"} {
		h.server.Deliver(ct.Configure(id, blob))
		ct.Eventually(t, "ack of "+id, func() bool {
			for _, a := range h.server.Acks() {
				if a.CommandID == id {
					return true
				}
			}
			return false
		})
	}
	late := ct.Configure("late", blob)
	late.Deadline = time.Now().Add(-time.Minute)
	h.server.Deliver(late)
	ct.Eventually(t, "three acks", func() bool { return len(h.server.Acks()) >= 3 })
	h.waitSettled(t)
	status, err := exec.Command(binary, "--config", h.config, "status").CombinedOutput()
	if err != nil {
		t.Errorf("status: %v", err)
	}
	check, _ := exec.Command(binary, "--config", h.config, "check").CombinedOutput() // may fail: see Intercept
	seen := map[string]string{"log": h.out.String(), "acks": fmt.Sprint(h.server.Acks()), "status": string(status), "check": string(check)}
	for _, proc := range []string{"cmdline", "environ"} {
		body, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", h.cmd.Process.Pid, proc))
		if err != nil {
			t.Fatal(err)
		}
		seen[proc] = string(body)
	}
	err = filepath.WalkDir(h.dir, func(path string, d fs.DirEntry, err error) error {
		// The configuration and the hook itself hold them by design.
		if err != nil || d.IsDir() || path == h.config || filepath.Base(path) == "hook" {
			return err
		}
		body, err := os.ReadFile(path)
		seen[path] = string(body)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for where, text := range seen {
		for name, secret := range secrets {
			if strings.Contains(text, secret) {
				t.Errorf("the %s is in %s:\n%s", name, where, text)
			}
		}
	}
	if !strings.Contains(seen["acks"], "[redacted]") || !strings.Contains(seen["acks"], "was refused") {
		t.Errorf("the acks say nothing useful: %s", seen["acks"])
	}
	if _, ok := seen[filepath.Join(h.dir, "environ-of-hook")]; !ok {
		t.Error("the hook did not run")
	}
}

// An agent whose state directory cannot be written runs, to say so.
func TestUnwritableState(t *testing.T) {
	h := newHost(t, noteAndWait)
	h.release(t)
	if err := os.WriteFile(filepath.Join(h.dir, "state"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	h.start(t)
	h.server.Deliver(ct.Configure("op-1", "join"))
	ct.Eventually(t, "an ack", func() bool { return len(h.server.Acks()) > 0 })
	if a := h.server.Acks()[0]; a.OK || !strings.Contains(a.Error, "cannot record") {
		t.Errorf("ack %+v", a)
	}
	if h.runs() != "" {
		t.Errorf("the hook ran:\n%s", h.runs())
	}
}

// The endpoint's name is known to the proxy only.
func TestProxy(t *testing.T) {
	server := ct.Start(t, ct.Options{Host: "provider.test"})
	target := strings.TrimPrefix(server.URL, "https://")
	_, port, err := net.SplitHostPort(target)
	if err != nil {
		t.Fatal(err)
	}
	server.URL = "https://provider.test:" + port
	asked := make(chan string, 100)
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked <- r.Method + " " + r.Host
		up, err := net.Dial("tcp", target)
		if err != nil {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		defer up.Close()
		w.WriteHeader(http.StatusOK)
		down, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer down.Close()
		go func() { _, _ = io.Copy(up, down) }() // either side may hang up
		_, _ = io.Copy(down, up)
	}))
	t.Cleanup(proxy.Close)
	h := newHost(t, noteAndWait)
	h.release(t)
	h.config, h.server = server.Config(t, h.dir, filepath.Join(h.dir, "hook")), server
	t.Setenv("HTTPS_PROXY", proxy.URL)
	h.start(t)
	server.Deliver(ct.Configure("op-1", "join"))
	h.wantOneGoodRun(t, "op-1")
	if got := <-asked; got != "CONNECT provider.test:"+port {
		t.Errorf("the proxy was asked for %s", got)
	}
	h.kill()
}

func TestVersionAndHelp(t *testing.T) {
	for arg, want := range map[string]string{"version": "1.2.3", "--help": "Usage:", "help": "--config"} {
		out, err := exec.Command(binary, arg).Output()
		if err != nil || !strings.Contains(string(out), want) {
			t.Errorf("%s: %v, %s", arg, err, out)
		}
	}
	for _, args := range [][]string{{"reboot"}, {"--nonsense"}, {"run", "status"}} {
		err := exec.Command(binary, args...).Run()
		if exit, ok := errors.AsType[*exec.ExitError](err); !ok || exit.ExitCode() != 2 {
			t.Errorf("%q: %v, want exit 2", args, err)
		}
	}
}
