package host

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
)

// killMarked kills every process whose environment has the entry, or one of
// whose arguments lies in dir, and returns how many there were. The second
// finds those that were started with an environment of their own.
func killMarked(entry, dir string) (int, error) {
	list, err := os.ReadDir("/proc")
	if err != nil {
		return 0, err
	}
	killed := 0
	for _, e := range list {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		// The handle is taken first: it stays with the process that is looked at
		// when the number is reused.
		p, err := os.FindProcess(pid)
		if err != nil {
			continue
		}
		if isMarked(e.Name(), entry, dir) {
			killed++
			if kerr := p.Signal(syscall.SIGKILL); kerr != nil && !errors.Is(kerr, os.ErrProcessDone) {
				return killed, kerr
			}
		}
		if err := p.Release(); err != nil {
			return killed, err
		}
	}
	return killed, nil
}

// isMarked is false for what cannot be read: processes that ended, and other
// users', which are not ours.
func isMarked(pid, entry, dir string) bool {
	return slices.ContainsFunc(entries(pid, "environ"), func(e []byte) bool { return string(e) == entry }) ||
		slices.ContainsFunc(entries(pid, "cmdline"), func(a []byte) bool { return bytes.HasPrefix(a, []byte(dir+"/")) })
}

func entries(pid, name string) [][]byte {
	content, err := os.ReadFile(filepath.Join("/proc", pid, name))
	if err != nil {
		return nil
	}
	return bytes.Split(content, []byte{0})
}
