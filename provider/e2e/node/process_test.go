package node

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
	"time"

	"bigfleet-providers/provider/e2e/host/hosttest"
)

// process is a program that runs until the test ends.
type process struct {
	name string
	cmd  *exec.Cmd
	log  hosttest.Log
	done chan struct{} // closed once it was waited for
}

// start starts a program of the control plane.
func (c *cluster) start(t *testing.T, path string, args ...string) {
	t.Helper()
	p := &process{name: filepath.Base(path), cmd: exec.Command(path, args...), done: make(chan struct{})}
	p.cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + c.dir} // no proxy, no user's kubeconfig
	p.cmd.Stdout, p.cmd.Stderr = &p.log, &p.log
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	started := make(chan error)
	go func() {
		// A death signal is sent when the thread that forked ends, not the process.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := p.cmd.Start()
		started <- err
		if err != nil {
			return
		}
		_ = p.cmd.Wait() // its exit code is in ProcessState
		close(p.done)
	}()
	if err := <-started; err != nil {
		t.Fatal(err)
	}
	c.programs = append(c.programs, p)
}

// check fails the test at once when a program has ended.
func (c *cluster) check(t *testing.T) {
	t.Helper()
	for _, p := range c.programs {
		select {
		case <-p.done:
			t.Fatalf("%s of cluster %s ended: %s", p.name, c.name, p.cmd.ProcessState)
		default:
		}
	}
}

// explain logs what a cluster knows.
func (c *cluster) explain(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	for _, what := range []string{"nodes,pods", "events"} {
		cmd := exec.CommandContext(ctx, program("kubectl"), "--kubeconfig", c.kubeconfig(), "get", what, "--output=wide")
		out, err := cmd.CombinedOutput()
		t.Logf("cluster %s, %s (%v):\n%s", c.name, what, err, hosttest.Tail(string(out), 30))
	}
}

// stop ends all programs. The API server would wait for the watches of kubelets,
// and nothing is kept.
func (c *cluster) stop(t *testing.T) {
	if t.Failed() {
		c.explain(t)
	}
	for _, p := range c.programs {
		_ = p.cmd.Process.Kill() // it may have ended by itself
		<-p.done
		if t.Failed() {
			t.Logf("%s of cluster %s:\n%s", p.name, c.name, hosttest.Tail(p.log.String(), 15))
		}
	}
	if c.client != nil {
		c.client.CloseIdleConnections()
	}
}
