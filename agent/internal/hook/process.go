package hook

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	look      = 100 * time.Millisecond // how often a run is looked at
	claimWait = 2 * time.Second        // for a shell between its claim and its pid
)

// supervisor is the script that owns a run. See the package comment.
//
//go:embed supervisor.sh
var supervisor string

// keeper is the script that keeps what the hook and its daemons print. See the
// package comment.
//
//go:embed keeper.sh
var keeper string

// Processes runs hooks as plain processes, each in a process group of its own.
// Its zero value is ready; all methods may be called from many goroutines.
type Processes struct {
	mu       sync.Mutex
	children map[string]chan struct{} // by Job.Dir; closed when the child was reaped
}

// Start implements Runner.
func (p *Processes) Start(job Job) error {
	if err := os.WriteFile(reservedPath(job), []byte("          "), 0o600); err != nil {
		return err
	}
	// No context: the hook outlives this agent, Stop ends it.
	cmd := exec.CommandContext(context.Background(), "/bin/sh", "-c", supervisor, "bigfleet-hook", job.Dir, job.Path, string(job.Verb))
	cmd.Env = append(slices.Clip(job.Env), mark(job))
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if job.Stdin != "" {
		stdin, err := os.Open(job.Stdin)
		if err != nil {
			return err
		}
		defer stdin.Close()
		cmd.Stdin = stdin
	}
	stderr, err := keep(job)
	if err != nil {
		return err
	}
	defer stderr.Close()
	cmd.Stderr = stderr
	if err := cmd.Start(); err != nil {
		return err
	}
	reaped := make(chan struct{})
	p.mu.Lock()
	if p.children == nil {
		p.children = map[string]chan struct{}{}
	}
	p.children[job.Dir] = reaped
	p.mu.Unlock()
	// Ends with the child. An agent that stops leaves it behind, as it leaves
	// the child.
	go func() {
		defer close(reaped)
		_ = cmd.Wait() // the status file tells the outcome, also to the next agent
		p.mu.Lock()
		delete(p.children, job.Dir)
		p.mu.Unlock()
	}()
	return nil
}

// keep starts the job's keeper and returns the pipe to it. The keeper is in a
// session of its own and without the run's mark: whoever kills the run must not
// kill it, which ends with the last process that holds the pipe.
func keep(job Job) (*os.File, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer r.Close()
	cmd := exec.CommandContext(context.Background(), "/bin/sh", "-c", keeper, "bigfleet-keeper", job.Dir)
	cmd.Env = []string{"LANG=C", "PATH=" + searchPath()}
	cmd.Stdin = r
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return nil, errors.Join(err, w.Close())
	}
	go func() { _ = cmd.Wait() }() // reaps; ends like the goroutine in Start
	return w, nil
}

// Wait implements Runner.
func (p *Processes) Wait(ctx context.Context, job Job) (int, error) {
	p.mu.Lock()
	reaped := p.children[job.Dir] // nil blocks for ever: not our child
	p.mu.Unlock()
	tick := time.NewTicker(look)
	defer tick.Stop()
	begun := time.Now()
	for {
		alive := p.alive(job, begun)
		if status, ok, err := readStatus(job); ok || err != nil {
			return status, err
		}
		if !alive {
			return 0, ErrLost
		}
		select {
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		case <-reaped:
			reaped = nil
		case <-tick.C:
		}
	}
}

// alive tells whether the run's supervisor runs. A run without a claim is
// claimed here, so that a supervisor that comes late ends without running the
// hook.
func (p *Processes) alive(job Job, begun time.Time) bool {
	p.mu.Lock()
	_, child := p.children[job.Dir]
	p.mu.Unlock()
	if child {
		return true
	}
	pid, err := readPid(job)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		claim, err := os.OpenFile(pidPath(job), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if err != nil {
			return errors.Is(err, fs.ErrExist) // lost the race: look again
		}
		_, err = claim.WriteString("0\n")
		return errors.Join(err, claim.Close()) != nil
	case err != nil:
		return time.Since(begun) < claimWait
	}
	return isSupervisor(pid, job)
}

// Ended implements Runner.
func (p *Processes) Ended(job Job) bool { return ended(job) }

func ended(job Job) bool {
	_, ended, err := readStatus(job)
	return ended || err != nil
}

// claimedPid returns the run's process group, 0 when it has none. It waits a
// moment for a supervisor that was just started.
func (p *Processes) claimedPid(job Job) (int, error) {
	for begun := time.Now(); ; time.Sleep(look / 4) {
		pid, err := readPid(job)
		if err == nil {
			return pid, nil
		}
		if !p.alive(job, begun) {
			return 0, nil
		}
		if time.Since(begun) > claimWait {
			return 0, fmt.Errorf("the hook's supervisor does not start: %w", err)
		}
	}
}

func pidPath(job Job) string      { return filepath.Join(job.Dir, "pid") }
func statusPath(job Job) string   { return filepath.Join(job.Dir, "status") }
func reservedPath(job Job) string { return filepath.Join(job.Dir, "status.reserved") }

func readPid(job Job) (int, error) { return readNumber(pidPath(job)) }

// readStatus returns the hook's exit status if it has ended.
func readStatus(job Job) (status int, ended bool, err error) {
	status, err = readNumber(statusPath(job))
	if errors.Is(err, fs.ErrNotExist) {
		return 0, false, nil
	}
	return status, err == nil, err
}

func readNumber(path string) (int, error) {
	body, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(strings.TrimSpace(string(body)))
}

// isSupervisor tells whether pid is the run's supervisor and not a process that
// got its number later.
func isSupervisor(pid int, job Job) bool {
	argv, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "cmdline"))
	return err == nil && bytes.Contains(argv, []byte("\x00"+job.Dir+"\x00"))
}
