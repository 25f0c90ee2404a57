package main

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	ct "bigfleet-providers/agent/internal/channeltest"
	"bigfleet-providers/shared/command"
)

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

// When the run's supervisor is killed too, the outcome is not known: what is left is
// ended and the hook runs again as attempt 2.
func TestLostRunIsAnotherAttempt(t *testing.T) {
	h := newHost(t, noteAndWait)
	h.start(t)
	h.server.Deliver(ct.Configure("op-1", "join"))
	h.waitRun(t, "configure op-1 1")
	h.kill()
	h.killSupervisor(t)
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

// killSupervisor kills what supervises the configure that runs, and nothing else.
func (h *host) killSupervisor(t *testing.T) {
	t.Helper()
	paths, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		body, err := os.ReadFile(path)
		if err != nil {
			continue // it ended
		}
		argv := strings.Split(string(body), "\x00")
		run := func(arg string) bool {
			return strings.HasPrefix(arg, h.dir) && strings.HasSuffix(arg, "-configure-1")
		}
		if !slices.ContainsFunc(argv, run) || !slices.Contains(argv, "bigfleet-hook") && !slices.Contains(argv, "supervise") {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		if err != nil {
			t.Fatal(err)
		}
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		return
	}
	t.Fatal("nothing supervises the hook")
}

// A crash may cost the journal too. The run itself is known all the same.
func TestKillAndDamagedJournal(t *testing.T) {
	damage := func(t *testing.T, h *host) {
		t.Helper()
		h.kill()
		if err := os.WriteFile(filepath.Join(h.dir, "state", "journal.json"), []byte(`{"version":1,"rec`), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	begin := func(t *testing.T) *host {
		t.Helper()
		h := newHost(t, noteAndWait)
		h.start(t)
		h.server.Deliver(ct.Configure("op-1", "join"))
		h.waitRun(t, "configure op-1 1")
		return h
	}
	t.Run("the hook runs", func(t *testing.T) {
		h := begin(t)
		damage(t, h)
		h.start(t)
		ct.Eventually(t, "the next agent takes it up", func() bool { return strings.Contains(h.out.String(), "taking up the hook") })
		h.release(t)
		h.wantOneGoodRun(t, "op-1")
	})
	t.Run("the hook ended", func(t *testing.T) {
		h := begin(t)
		damage(t, h)
		h.release(t)
		h.waitRun(t, "end op-1")
		h.start(t)
		h.wantOneGoodRun(t, "op-1")
	})
	t.Run("the run is lost too", func(t *testing.T) {
		h := begin(t)
		damage(t, h)
		h.killSupervisor(t)
		h.start(t)
		h.waitRun(t, "configure op-1 2")
		h.release(t)
		h.waitSettled(t)
		if strings.Count(h.runs(), "end op-1") != 1 {
			t.Errorf("runs:\n%s", h.runs())
		}
	})
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

// An agent whose journal goes away works on.
func TestLogThatGoesAway(t *testing.T) {
	h := newHost(t, "exit 0")
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	h.cmd = exec.Command(binary, "--config", h.config, "--debug")
	h.cmd.Stdout, h.cmd.Stderr = w, w
	if err := h.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(w.Close(), r.Close()); err != nil {
		t.Fatal(err)
	}
	h.server.Deliver(ct.Configure("op-1", "join"))
	ct.Eventually(t, "a result", func() bool { return len(h.server.Acks()) > 0 })
}
