package main

import (
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	ct "bigfleet-providers/agent/internal/channeltest"
)

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

// An agent whose state directory cannot be written runs, to say so.
func TestUnwritableState(t *testing.T) {
	h := newHost(t, noteAndWait)
	h.release(t)
	if err := os.WriteFile(filepath.Join(h.dir, "state"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	h.start(t)
	h.server.Deliver(ct.Configure("op-1", "join"))
	ct.Eventually(t, "the reason in the log", func() bool { return strings.Contains(h.out.String(), "cannot record") })
	if h.runs() != "" || len(h.server.Acks()) > 0 {
		t.Errorf("the hook ran, or the command was refused: %s, %v", h.runs(), h.server.Acks())
	}
	if err := os.Remove(filepath.Join(h.dir, "state")); err != nil {
		t.Fatal(err)
	}
	ct.Eventually(t, "an ack", func() bool { return len(h.server.Acks()) > 0 })
	if a := h.server.Acks()[0]; !a.OK {
		t.Errorf("ack %+v", a)
	}
}

// The same when it is removed under a running agent, but that can be mended.
func TestRemovedState(t *testing.T) {
	h := newHost(t, noteAndWait)
	h.release(t)
	h.start(t)
	ct.Eventually(t, "a poll", func() bool { return len(h.server.Polls()) > 0 })
	if err := os.RemoveAll(filepath.Join(h.dir, "state")); err != nil {
		t.Fatal(err)
	}
	h.server.Deliver(ct.Configure("op-1", "join"))
	h.wantOneGoodRun(t, "op-1")
}

// The report on a hook that nothing but SIGKILL ends, and on what left its
// process group, leaves at the deadline.
func TestStubbornHook(t *testing.T) {
	h := newHost(t, `trap '' TERM
setsid sleep 1000 &
echo "3 pods are left" >&2
while [ -d "$dir" ]; do sleep 0.05; done
`)
	h.start(t)
	cmd := ct.Drain("op-1")
	cmd.Deadline = time.Now().Add(4 * time.Second)
	h.server.Deliver(cmd)
	ct.Eventually(t, "an ack", func() bool { return len(h.server.Acks()) > 0 })
	late := time.Since(cmd.Deadline)
	if a := h.server.Acks()[0]; a.OK || !strings.Contains(a.Error, "deadline passed: 3 pods are left") {
		t.Errorf("ack %+v", a)
	}
	// The Date header has whole seconds; under load the kill takes a moment.
	if late > 2*time.Second {
		t.Errorf("the ack came %s after the deadline", late)
	}
	if others := processesWith(t, "BIGFLEET_COMMAND_ID=op-1", h.dir); len(others) > 0 {
		t.Errorf("alive: %q", others)
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
	for arg, want := range map[string]string{"version": "bigfleet-agent 1.2.3 (go", "--version": "bigfleet-agent 1.2.3 (go", "--help": "Usage:", "help": "--config"} {
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
