package agent

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// whoElseWrites reports everybody but root and the agent's own user who could
// put another file in place of the one at path: its endpoint and CA decide whose
// commands run here as root.
func whoElseWrites(path string, info fs.FileInfo) error {
	var errs []error
	if uid, ok := owner(info); ok && uid != 0 && uid != os.Geteuid() {
		errs = append(errs, fmt.Errorf("it belongs to user %d, who may name another provider in it (chown root %s)", uid, path))
	}
	target, err := filepath.EvalSymlinks(path)
	if err == nil {
		target, err = filepath.Abs(target)
	}
	if err != nil {
		return errors.Join(append(errs, err)...)
	}
	for dir := filepath.Dir(target); ; dir = filepath.Dir(dir) {
		info, err := os.Stat(dir)
		if err != nil {
			return errors.Join(append(errs, err)...)
		}
		uid, ok := owner(info)
		// In a sticky directory only the owner of a file replaces it.
		open := info.Mode().Perm()&0o022 != 0 && info.Mode()&fs.ModeSticky == 0
		if open || ok && uid != 0 && uid != os.Geteuid() {
			errs = append(errs, fmt.Errorf("others than root may replace it, by their right to write in %s (chown root and chmod go-w %s)", dir, dir))
		}
		if dir == filepath.Dir(dir) {
			return errors.Join(errs...)
		}
	}
}

func owner(info fs.FileInfo) (uid int, ok bool) {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, false
	}
	return int(stat.Uid), true
}
