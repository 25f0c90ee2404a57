package main

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// stopGrace is how long a program may take to stop before it is killed.
const stopGrace = 10 * time.Second

// process is a program that the demo started. Whoever starts one must end it
// with stop or kill, which wait until it is gone.
type process struct {
	name string
	log  string // the file that takes its output
	cmd  *exec.Cmd
	gone chan struct{} // closed when it has exited; err is set by then
	err  error
	told bool // its unexpected end was reported by check
}

// launch starts a program of bin that writes to the log file, appending.
func launch(name, path, log string, env, args []string) (*process, error) {
	out, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer out.Close() // the child has its own descriptor
	// Not CommandContext: the end of a process is always waited for, and a
	// provider that is cut off by a context could not give back what it holds.
	cmd := exec.Command(path, args...) //nolint:noctx // see above
	cmd.Env = env
	cmd.Stdout, cmd.Stderr = out, out
	// A group of its own keeps the terminal's Ctrl-C from reaching it: the demo
	// stops its programs in order.
	// And should the demo be killed, they are told to stop all the same.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w (build it with: make build)", name, err)
	}
	p := &process{name: name, log: log, cmd: cmd, gone: make(chan struct{})}
	go func() {
		p.err = cmd.Wait()
		close(p.gone)
	}()
	return p, nil
}

// plainEnvironment is what the programs get of this process's environment:
// variables that configure another provider on this machine must not reach
// ours.
func plainEnvironment() []string {
	var env []string
	for _, name := range []string{"PATH", "HOME", "TMPDIR", "LANG"} {
		if value, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+value)
		}
	}
	return env
}

// check returns an error when the process has exited by itself.
func (p *process) check() error {
	select {
	case <-p.gone:
		p.told = true
		return fmt.Errorf("%s exited by itself (%w); its log: %s", p.name, orClean(p.err), p.log)
	default:
		return nil
	}
}

func orClean(err error) error {
	if err == nil {
		return errors.New("with success")
	}
	return err
}

// kill is kill -9.
func (p *process) kill() {
	p.signal(syscall.SIGKILL)
	<-p.gone
}

// stop asks the process to stop and returns an error unless it does so cleanly
// and in time, or check has told of its end before.
func (p *process) stop() error {
	p.signal(syscall.SIGTERM)
	select {
	case <-p.gone:
	case <-time.After(stopGrace):
		p.kill()
		return fmt.Errorf("%s did not stop within %s of SIGTERM and was killed; its log: %s", p.name, stopGrace, p.log)
	}
	if p.err != nil && !p.told {
		return fmt.Errorf("%s stopped with an error (%w); its log: %s", p.name, p.err, p.log)
	}
	return nil
}

// signal sends sig; a process that is gone already needs none, and the wait
// that follows tells.
func (p *process) signal(sig syscall.Signal) { _ = p.cmd.Process.Signal(sig) }

// tail returns the last n lines of a file, or what kept it from being read.
func tail(path string, n int) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimRight(string(text), "\n"), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}

// freePorts finds n loopback addresses that nobody listens on. They are held
// together until all are found, so that no two are the same.
func freePorts(n int) ([]string, error) {
	var held []net.Listener
	defer func() {
		for _, l := range held {
			l.Close()
		}
	}()
	addrs := make([]string, n)
	for i := range addrs {
		l, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
		if err != nil {
			return nil, fmt.Errorf("find a free port: %w", err)
		}
		held = append(held, l)
		addrs[i] = l.Addr().String()
	}
	return addrs, nil
}

// hostMark is in the environment of everything that runs on a fake host, with
// the folder that stands for the host's disk.
const hostMark = "BIGFLEET_FAKE_HOST="

// hostProcesses lists the processes on the fake hosts whose disks are in the
// folder, whoever their parents are now.
func hostProcesses(dir string) ([]int, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	mark := []byte(hostMark + dir + string(filepath.Separator))
	var found []int
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue // not a process
		}
		// One that has exited meanwhile, or that is another user's, cannot be
		// read and is not ours.
		environment, err := os.ReadFile("/proc/" + e.Name() + "/environ")
		if err == nil && slices.ContainsFunc(bytes.Split(environment, []byte{0}), func(entry []byte) bool {
			return bytes.HasPrefix(entry, mark)
		}) {
			found = append(found, pid)
		}
	}
	return found, nil
}
