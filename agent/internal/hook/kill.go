package hook

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	politeness = 5 * time.Second // between TERM and KILL, at most
	killWait   = 2 * time.Second // for what was killed to be gone
)

// mark is what every process of the run has in its environment, unless it
// cleaned that. It names one run on this host, where a command's id would not:
// two attempts share that.
func mark(job Job) string { return "BIGFLEET_RUN=" + job.Dir }

// Stop implements Runner.
func (p *Processes) Stop(job Job, patience time.Duration, strays bool) error {
	pgid, err := p.claimedPid(job)
	if err != nil || pgid == 0 {
		return err
	}
	asked := map[int]bool{} // once only: a second TERM may cut a hook's cleaning short
	for end := time.Now().Add(patience); ; time.Sleep(look / 4) {
		left := survey(job, pgid, strays)
		if left.none() {
			return nil
		}
		if !time.Now().Before(end) {
			break
		}
		if err := left.signal(syscall.SIGTERM, asked); err != nil {
			return err
		}
	}
	var left remains
	for end := time.Now().Add(killWait); time.Now().Before(end); time.Sleep(look / 4) {
		left = survey(job, pgid, strays)
		if left.none() {
			return nil
		}
		// Again in each round: what forks meanwhile is found by the next.
		if err := left.signal(syscall.SIGKILL, nil); err != nil {
			return err
		}
	}
	return fmt.Errorf("of the hook's process group %d something is alive after SIGKILL (a process in uninterruptible sleep: look at its storage)", pgid)
}

// remains is what lives of a run.
type remains struct {
	job    Job
	group  int   // the run's process group, 0 when nobody is in it
	strays []int // processes that have left it
}

func (r remains) none() bool { return r.group == 0 && len(r.strays) == 0 }

// signal signals what is not in except, and adds it there.
func (r remains) signal(sig syscall.Signal, except map[int]bool) error {
	if r.group != 0 && !except[-r.group] {
		if err := syscall.Kill(-r.group, sig); err != nil && !errors.Is(err, syscall.ESRCH) {
			return fmt.Errorf("kill the hook's process group %d: %w", r.group, err)
		}
	}
	for _, pid := range r.strays {
		if except[pid] {
			continue
		}
		if err := signalMarked(pid, sig, r.job); err != nil {
			return fmt.Errorf("kill process %d, which the hook started: %w", pid, err)
		}
	}
	if except != nil {
		except[-r.group] = true
		for _, pid := range r.strays {
			except[pid] = true
		}
	}
	return nil
}

// signalMarked signals a process of the run and no other that got its number
// since: os.Process holds on to the process, not to the number, and the mark is
// looked at again behind that.
func signalMarked(pid int, sig syscall.Signal, job Job) error {
	process, err := os.FindProcess(pid)
	if err != nil {
		return err
	}
	defer func() { _ = process.Release() }() // closes a descriptor; there is nothing to do about it
	if !isMarked(pid, job) {
		return nil
	}
	if err := process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	return nil
}

// survey looks for living processes of the run: those in the group pgid, and
// with strays the agent's user's others that bear the run's mark. A number that
// another group or process got later does not count.
func survey(job Job, pgid int, strays bool) remains {
	left := remains{job: job}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return left
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		group, living := groupOf(pid)
		switch {
		case !living:
		case group == pgid:
			if isMarked(pid, job) {
				left.group = pgid
			}
		case strays && isOwn(e) && isMarked(pid, job):
			left.strays = append(left.strays, pid)
		}
	}
	return left
}

func isOwn(proc os.DirEntry) bool {
	info, err := proc.Info()
	if err != nil {
		return false // it ended
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(stat.Uid) == os.Geteuid()
}

func isMarked(pid int, job Job) bool {
	env, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "environ"))
	if err != nil {
		return false // it ended, or is somebody else's
	}
	want := []byte(mark(job))
	for entry := range bytes.SplitSeq(env, []byte{0}) {
		if bytes.Equal(entry, want) {
			return true
		}
	}
	return false
}

// groupOf reads the process group out of /proc/PID/stat, see proc_pid_stat(5).
// Zombies do not live.
func groupOf(pid int) (pgid int, living bool) {
	stat, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return 0, false
	}
	// The name in parentheses may itself hold spaces and parentheses.
	_, rest, _ := bytes.Cut(stat[max(0, bytes.LastIndexByte(stat, ')')):], []byte(") "))
	fields := strings.Fields(string(rest)) // state, ppid, pgrp, …
	if len(fields) < 3 || fields[0] == "Z" {
		return 0, false
	}
	pgid, err = strconv.Atoi(fields[2])
	return pgid, err == nil
}
