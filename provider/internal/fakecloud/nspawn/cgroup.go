package nspawn

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// killPatience is how long killed processes may take to be gone.
const killPatience = 10 * time.Second

// ownGroups lists the directories of the cgroups that this process is in, one
// for each hierarchy that is mounted: version 1, its systemd hierarchy, and
// version 2, in any mixture.
func ownGroups() ([]string, error) {
	list, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return nil, err
	}
	var dirs []string
	for line := range strings.Lines(string(list)) {
		fields := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(fields) != 3 {
			return nil, fmt.Errorf("/proc/self/cgroup: line %q", line)
		}
		mount := "/sys/fs/cgroup"
		switch controller, named := strings.CutPrefix(fields[1], "name="); {
		case named || controller != "":
			mount = filepath.Join(mount, controller)
		case isDir(mount + "/unified"):
			mount += "/unified"
		}
		if dir := filepath.Join(mount, fields[2]); isDir(dir) {
			dirs = append(dirs, dir)
		}
	}
	return dirs, nil
}

func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// makeGroups makes an empty cgroup of the name in every hierarchy.
func makeGroups(name string) ([]string, error) {
	own, err := ownGroups()
	if err != nil {
		return nil, err
	}
	var made []string
	for _, parent := range own {
		dir := filepath.Join(parent, name)
		// A real reboot forgets all cgroups. Directories of the last boot would
		// confuse the guest's own bookkeeping.
		if err := removeGroup(dir); err != nil {
			return nil, err
		}
		if err := os.Mkdir(dir, 0o750); err != nil {
			return nil, err
		}
		for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
			// A new cpuset of version 1 has no processor and takes no process.
			if have, err := os.ReadFile(filepath.Join(dir, file)); err != nil || len(strings.TrimSpace(string(have))) > 0 {
				continue
			}
			value, err := os.ReadFile(filepath.Join(parent, file))
			if err == nil && len(strings.TrimSpace(string(value))) > 0 {
				err = os.WriteFile(filepath.Join(dir, file), value, 0)
			}
			if err != nil {
				return nil, err
			}
		}
		made = append(made, dir)
	}
	return made, nil
}

// groupsLike lists the cgroups below our own that match the pattern.
func groupsLike(pattern string) ([]string, error) {
	own, err := ownGroups()
	if err != nil {
		return nil, err
	}
	var found []string
	for _, parent := range own {
		match, err := filepath.Glob(filepath.Join(parent, pattern))
		if err != nil {
			return nil, err
		}
		found = append(found, match...)
	}
	return found, nil
}

// removeGroup kills what is in a cgroup and removes it with all below it. One
// that does not exist is fine.
func removeGroup(dir string) error {
	for deadline := time.Now().Add(killPatience); ; time.Sleep(20 * time.Millisecond) {
		var dirs []string
		alive := 0
		err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
			if errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			if err != nil || !entry.IsDir() {
				return err
			}
			dirs = append(dirs, path)
			n, err := killGroup(path)
			alive += n
			return err
		})
		if err != nil {
			return err
		}
		slices.Reverse(dirs)
		var left error
		for _, d := range dirs {
			if err := os.Remove(d); err != nil && !errors.Is(err, fs.ErrNotExist) {
				left = err
			}
		}
		if left == nil {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("cgroup %s: %d processes in it after SIGKILL: %w", dir, alive, left)
		}
	}
}

// killGroup kills the processes of one cgroup and tells how many there were.
func killGroup(dir string) (int, error) {
	list, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENODEV) {
			return 0, nil
		}
		return 0, err
	}
	n := 0
	for word := range strings.FieldsSeq(string(list)) {
		pid, err := strconv.Atoi(word)
		if err != nil || pid <= 0 {
			continue // 0 stands for a process of another PID namespace
		}
		n++
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
			return n, err
		}
	}
	return n, nil
}
