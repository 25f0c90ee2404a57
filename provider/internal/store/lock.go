package store

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// lockWait is how long Open waits for another process to let go of the file:
// long enough for one that is about to exit, short enough to be noticed.
const lockWait = time.Second

// lock takes the file for this process; the lock goes with the process.
// With shared, others may take it shared too.
func lock(f *os.File, shared bool, wait time.Duration) error {
	how := syscall.LOCK_EX
	if shared {
		how = syscall.LOCK_SH
	}
	deadline := time.Now().Add(wait)
	for {
		err := syscall.Flock(int(f.Fd()), how|syscall.LOCK_NB)
		switch {
		case err == nil:
			return nil
		case !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR):
			return fmt.Errorf("cannot be locked: %w", err)
		case time.Now().After(deadline):
			return fmt.Errorf("%w%s (waited %s): another provider runs on it, or an earlier one is still stopping; stop it first", ErrLocked, holder(f), wait)
		}
		time.Sleep(lockWait / 20)
	}
}

// ErrLocked is why a state file that another process has open is refused.
var ErrLocked = errors.New("is locked by another process")

// holder names the process that holds the lock, as far as the kernel tells.
func holder(f *os.File) string {
	info, err := f.Stat()
	if err != nil {
		return ""
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return ""
	}
	locks, err := os.ReadFile("/proc/locks")
	if err != nil {
		return ""
	}
	pid := flockHolder(string(locks), st.Dev, st.Ino)
	if pid <= 0 { // none, or one outside this container
		return ""
	}
	name, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
	if err != nil {
		return fmt.Sprintf(", pid %d", pid)
	}
	return fmt.Sprintf(", pid %d (%s)", pid, strings.TrimSpace(string(name)))
}

// flockHolder finds the holder of a lock in the text of /proc/locks, see
// proc_locks(5); 0 if there is none.
func flockHolder(locks string, dev, inode uint64) int {
	want := fmt.Sprintf("%02x:%02x:%d", unix.Major(dev), unix.Minor(dev), inode)
	for line := range strings.Lines(locks) {
		// "1: FLOCK  ADVISORY  WRITE 4711 08:01:1234 0 EOF"; waiters have "->".
		f := strings.Fields(line)
		if len(f) < 6 || f[1] != "FLOCK" || f[5] != want {
			continue
		}
		if pid, err := strconv.Atoi(f[4]); err == nil {
			return pid
		}
	}
	return 0
}
