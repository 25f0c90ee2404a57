package store

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"syscall"
)

// newPattern and copyPattern name, for os.CreateTemp, the files that are about to
// take the place of the one at path, and the copies of it that are handed out.
func newPattern(path string) string  { return filepath.Base(path) + ".new-*" }
func copyPattern(path string) string { return filepath.Base(path) + ".copy-*" }

// sweeping is how many files a sweep removed, and why not all.
type sweeping struct {
	files int
	err   error
}

// sweep removes what killed processes left beside the open file at path, and
// beside the link to it by which it was named, and says how many files that were. Each may be as large as the state: a provider
// that is killed at every start would fill the disk with them. A file that
// somebody has locked is in use and stays.
func (f *file) sweep(path, name string) (removed int, err error) {
	var errs []error
	for _, place := range slices.Compact([]string{path, name}) {
		dir := filepath.Dir(place)
		entries, err := os.ReadDir(dir)
		errs = append(errs, err)
		ours := regexp.MustCompile(`^` + regexp.QuoteMeta(filepath.Base(place)) + `(\.v[0-9]+)?\.(new|copy)-[0-9]+$`)
		for _, e := range slices.DeleteFunc(entries, func(e os.DirEntry) bool { return !ours.MatchString(e.Name()) }) {
			done, err := f.removeUnused(filepath.Join(dir, e.Name()))
			errs = append(errs, err)
			if done {
				removed++
			}
		}
	}
	return removed, errors.Join(errs...)
}

// removeUnused removes a file that nobody has locked. It may be a second name of
// this one: whoever was killed had just put it into place.
func (f *file) removeUnused(name string) (bool, error) {
	left, err := os.OpenFile(name, os.O_RDWR|syscall.O_NONBLOCK|syscall.O_NOFOLLOW, 0)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ELOOP):
		return false, nil // it is gone, or no file of ours
	case err != nil:
		return false, err
	}
	defer left.Close()
	info, err := left.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return false, err
	}
	mine, err := f.raw.Stat()
	if err != nil {
		return false, err
	}
	if !os.SameFile(info, mine) {
		if err := lock(left, false, 0); errors.Is(err, ErrLocked) {
			return false, nil
		} else if err != nil {
			return false, err
		}
	}
	return true, os.Remove(name)
}
