package crash

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// keptLines is how much of a log is kept for a failure's report.
const keptLines = 400

// process is one life of the provider.
type process struct {
	cmd  *exec.Cmd
	done chan struct{} // closed once it was waited for and its log is read

	mu    sync.Mutex
	lines []string
	watch func(line string)
}

// start runs the program; watch sees every line of its log and must not block.
func start(env, args []string, watch func(line string), attr *syscall.SysProcAttr) (*process, error) {
	p := &process{cmd: exec.Command(program, args...), done: make(chan struct{}), watch: watch}
	p.cmd.Env, p.cmd.SysProcAttr = env, attr
	r, w := io.Pipe()
	p.cmd.Stdout, p.cmd.Stderr = w, w
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	read := make(chan struct{})
	go func() {
		defer close(read)
		p.read(r)
	}()
	go func() {
		defer close(p.done)
		_ = p.cmd.Wait() // its exit code is in ProcessState
		w.Close()
		<-read
	}()
	return p, nil
}

func (p *process) read(r io.Reader) {
	in := bufio.NewReader(r)
	for {
		line, err := in.ReadString('\n')
		if line = strings.TrimRight(line, "\n"); line != "" {
			p.mu.Lock()
			if p.lines = append(p.lines, line); len(p.lines) > 2*keptLines {
				p.lines = append([]string(nil), p.lines[keptLines:]...)
			}
			p.mu.Unlock()
			if p.watch != nil {
				p.watch(line)
			}
		}
		if err != nil {
			return
		}
	}
}

// log is the end of what the process logged.
func (p *process) log() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return strings.Join(p.lines, "\n")
}

func (p *process) said(text string) bool { return strings.Contains(p.log(), text) }

// signalKill ends the process as a power cut would, and does not wait.
func (p *process) signalKill() { _ = p.cmd.Process.Kill() } // it may have ended by itself

func (p *process) kill() {
	p.signalKill()
	<-p.done
}

// killed says whether the process ended by our kill, and not by itself.
func (p *process) killed() bool {
	status, ok := p.cmd.ProcessState.Sys().(syscall.WaitStatus)
	return ok && status.Signaled() && status.Signal() == syscall.SIGKILL
}

// exit waits for the process to end by itself and returns its exit code.
func (p *process) exit(t *testing.T, within time.Duration) int {
	t.Helper()
	select {
	case <-p.done:
	case <-time.After(within):
		t.Fatalf("the provider did not end within %s:\n%s", within, p.log())
	}
	return p.cmd.ProcessState.ExitCode()
}

// environment is what a provider sees: nothing of the developer's own.
func environment(extra ...string) []string {
	// The race detector would sleep a second at each exit.
	return append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + os.TempDir(), "GORACE=halt_on_error=1 exitcode=66 atexit_sleep_ms=0"}, extra...)
}
