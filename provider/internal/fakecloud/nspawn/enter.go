package nspawn

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// ErrOff is the error of what needs a running guest.
var ErrOff = errors.New("the guest is off")

// Leader is the guest's PID 1 as this machine numbers it.
func (g *Guest) Leader() (int, error) {
	r := g.current()
	if r == nil {
		return 0, ErrOff
	}
	select {
	case <-r.done:
		return 0, ErrOff
	default:
		return r.leader, nil
	}
}

// awaitLeader waits until nspawn has a child that is PID 1 of its own namespace.
func (r *running) awaitLeader(ctx context.Context) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	for {
		if pid := findLeader(r.cmd.Process.Pid); pid != 0 {
			return pid, nil
		}
		select {
		case <-r.done:
			return 0, fmt.Errorf("systemd-nspawn ended (%s)", r.cmd.ProcessState)
		case <-ctx.Done():
			return 0, fmt.Errorf("no PID 1 within %s: %w", startTime, context.Cause(ctx))
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// findLeader looks for the guest's PID 1: a grandchild of the process, two PID
// namespaces below ours.
func findLeader(spawn int) int {
	files, err := filepath.Glob("/proc/[0-9]*/status")
	if err != nil {
		return 0
	}
	for _, file := range files {
		status, err := os.ReadFile(file)
		if err != nil {
			continue // it has ended
		}
		namespaced := strings.Fields(field(status, "NSpid:"))
		if len(namespaced) < 3 || namespaced[len(namespaced)-1] != "1" {
			continue
		}
		parent, err := os.ReadFile(filepath.Join("/proc", field(status, "PPid:"), "status"))
		if err != nil || field(parent, "PPid:") != strconv.Itoa(spawn) {
			continue
		}
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file))); err == nil {
			return pid
		}
	}
	return 0
}

func field(status []byte, name string) string {
	for line := range strings.Lines(string(status)) {
		if value, ok := strings.CutPrefix(line, name); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// Command prepares a program that runs in the guest as root, with a minimal
// environment.
func (g *Guest) Command(ctx context.Context, program string, args ...string) (*exec.Cmd, error) {
	leader, err := g.Leader()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, "nsenter", append([]string{"--target", strconv.Itoa(leader), "--all", "--", program}, args...)...)
	cmd.Env = []string{
		"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
		"HOME=/root", "LANG=C.UTF-8", "TERM=dumb", "DEBIAN_FRONTEND=noninteractive",
	}
	cmd.WaitDelay = time.Second // what it leaves in the background may keep its output open
	return cmd, nil
}

// Shell runs a script in the guest and returns its standard output. The error
// of one that fails holds what it printed.
func (g *Guest) Shell(ctx context.Context, script string) (string, error) {
	cmd, err := g.Command(ctx, "/bin/sh", "-c", script)
	if err != nil {
		return "", err
	}
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil && !errors.Is(err, exec.ErrWaitDelay) {
		return stdout.String(), fmt.Errorf("in the guest: %w: %s%s", err, stdout.Bytes(), stderr.Bytes())
	}
	return stdout.String(), nil
}
