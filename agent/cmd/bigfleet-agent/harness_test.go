package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	ct "bigfleet-providers/agent/internal/channeltest"
)

// binary is the agent as it is shipped.
var binary string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "bigfleet-agent-")
	if err != nil {
		panic(err)
	}
	binary = filepath.Join(dir, "bigfleet-agent")
	if built := os.Getenv("BIGFLEET_TEST_AGENT"); built != "" {
		binary = built // where there is no Go, such as in a guest
	} else {
		// As make build does, with which it shares what is compiled.
		build := exec.Command("go", "build", "-trimpath", "-o", binary, "-ldflags", "-X main.version=1.2.3", ".")
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := build.CombinedOutput(); err != nil {
			panic(fmt.Sprintf("%v: %s", err, out))
		}
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
// file "go", but not past the end of a test that failed.
const noteAndWait = `echo "$1 $BIGFLEET_COMMAND_ID $BIGFLEET_ATTEMPT" >>"$dir/runs"
[ "$1" = configure ] || exit 0
while [ -d "$dir" ] && [ ! -e "$dir/go" ]; do sleep 0.02; done
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
