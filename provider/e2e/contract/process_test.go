package contract

import (
	"bufio"
	"bytes"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// serving is the line in which the provider says where it serves.
var serving = regexp.MustCompile(`msg=serving .*grpc=(\S+)`)

// process is a provider that a test has started.
type process struct {
	cmd  *exec.Cmd
	done chan struct{} // closed once it was waited for
	addr string
	out  log
}

// log keeps what a process prints and tells where it serves.
type log struct {
	addr chan string

	mu   sync.Mutex
	text bytes.Buffer
}

func (l *log) read(r io.Reader) {
	lines := bufio.NewReader(r)
	for {
		line, err := lines.ReadString('\n')
		l.mu.Lock()
		l.text.WriteString(line)
		l.mu.Unlock()
		if m := serving.FindStringSubmatch(line); m != nil {
			l.addr <- m[1]
		}
		if err != nil {
			return
		}
	}
}

// tail is the end of what was printed.
func (l *log) tail() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	lines := strings.Split(l.text.String(), "\n")
	return strings.Join(lines[max(0, len(lines)-40):], "\n")
}

// startProcess starts the provider on free ports and waits until it serves.
func startProcess(t *testing.T, args []string) *process {
	t.Helper()
	p := &process{done: make(chan struct{}), out: log{addr: make(chan string, 1)}}
	p.cmd = exec.Command(bin, append([]string{"--addr=127.0.0.1:0", "--metrics-addr=127.0.0.1:0"}, args...)...)
	// None of the developer's credentials; and the race detector, if the provider
	// has it, would sleep a second at each exit.
	p.cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + os.TempDir(), "GORACE=halt_on_error=1 exitcode=66 atexit_sleep_ms=0"}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	p.cmd.Stdout, p.cmd.Stderr = w, w
	err = p.cmd.Start()
	w.Close()
	if err != nil {
		r.Close()
		t.Fatal(err)
	}
	go func() {
		defer close(p.done)
		p.out.read(r) // until the process is gone
		r.Close()
		_ = p.cmd.Wait() // the exit code is in ProcessState
	}()
	t.Cleanup(func() {
		p.kill()
		if t.Failed() {
			t.Logf("output of the provider:\n%s", p.out.tail())
		}
	})
	select {
	case p.addr = <-p.out.addr:
	case <-p.done:
		t.Fatalf("the provider ended at its start:\n%s", p.out.tail())
	case <-time.After(30 * time.Second):
		t.Fatalf("the provider does not serve:\n%s", p.out.tail())
	}
	return p
}

// kill ends the process as a power cut would.
func (p *process) kill() {
	_ = p.cmd.Process.Kill() // it may have ended by itself
	<-p.done
}

// terminate lets the process stop in its own order.
func (p *process) terminate(t tester) {
	t.Helper()
	_ = p.cmd.Process.Signal(syscall.SIGTERM) // it may have ended by itself
	select {
	case <-p.done:
		if code := p.cmd.ProcessState.ExitCode(); code != 0 {
			t.Errorf("the provider stopped with exit code %d:\n%s", code, p.out.tail())
		}
	case <-time.After(20 * time.Second):
		t.Fatalf("the provider does not stop:\n%s", p.out.tail())
	}
}
