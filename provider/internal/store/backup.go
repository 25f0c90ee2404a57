package store

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"go.etcd.io/bbolt"
	"golang.org/x/sys/unix"

	"bigfleet-providers/shared/symlink"
)

// ErrNoFile is why a store in memory has no copy.
var ErrNoFile = errors.New("there is no state file: the state is in memory only")

// Copy makes a consistent copy of the state file while changes go on. It is a
// file without a name, at its start; the caller closes it.
//
// A reader of the copy may be as slow as it likes. Were it to read from the
// database itself, it could keep all changes waiting: the file cannot grow while
// a transaction reads it.
func (s *Store) Copy() (*os.File, error) {
	if s.disk == nil {
		return nil, ErrNoFile
	}
	dir, pattern := s.disk.copyPlace()
	if err := roomFor(s.disk.size(), dir); err != nil {
		return nil, err
	}
	to, err := os.CreateTemp(dir, pattern)
	if err != nil {
		return nil, err
	}
	err = os.Remove(to.Name())
	if err == nil {
		err = s.disk.copyTo(to)
	}
	if err == nil {
		_, err = to.Seek(0, io.SeekStart)
	}
	if err != nil {
		return nil, errors.Join(err, to.Close())
	}
	if !s.disk.mayHoldRemains() {
		return to, nil
	}
	// Of the copy, not of the file: changes must not wait for it.
	return cleanCopy(to, dir, pattern)
}

// roomFor refuses a copy that would leave too little for the changes that come
// meanwhile: they would be refused for its sake.
func roomFor(size int64, dir string) error {
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil {
		return fmt.Errorf("free space of %s: %w", dir, err)
	}
	if free, want := int64(fs.Bavail)*fs.Bsize, 2*size; free < want {
		return fmt.Errorf("%s has %d bytes free, and a copy needs twice the file's size, %d, so that changes find room meanwhile; free some space", dir, free, want)
	}
	return nil
}

func (f *file) copyTo(w io.Writer) error {
	if f.wedged.Load() {
		return errors.New("the state file is broken; restart the provider")
	}
	return f.guard(func() error {
		return f.db.View(func(tx *bbolt.Tx) error {
			_, err := tx.WriteTo(w)
			return err
		})
	})
}

func (f *file) copyPlace() (dir, pattern string) { return f.dir, copyPattern(f.path) }

func (f *file) mayHoldRemains() bool { return f.marked.Load() }

// Backup copies the state file at path to dest, which must not exist. No
// provider may run on it; one that does makes copies itself, see Copy. What was
// written is verified before it appears under its name.
func Backup(path, dest string) (*Contents, error) {
	place, err := symlink.Target(dest)
	if err != nil {
		return nil, at(dest, err)
	}
	f, err := openExisting(path, os.O_RDONLY)
	if err != nil {
		return nil, at(path, err)
	}
	if err = f.readMark(); err == nil {
		err = WriteBackup(dest, func(w io.Writer) error { return f.cleanCopyTo(w, filepath.Dir(place)) })
	}
	if err := errors.Join(err, f.close()); err != nil {
		return nil, err
	}
	return Inspect(dest)
}

// WriteBackup writes a copy of a state file to dest, which must not exist:
// under another name first, and only what Inspect finds whole gets its name.
func WriteBackup(dest string, write func(io.Writer) error) error {
	place, err := symlink.Target(dest)
	if err != nil {
		return at(dest, err)
	}
	exists := errors.New("exists already; a backup never replaces another")
	if _, err := os.Lstat(place); err == nil {
		return at(dest, exists)
	}
	err = writeFile(place, func(to *os.File) error { return write(to) }, func(temp string) error {
		if _, err := Inspect(temp); err != nil {
			return err
		}
		return putNew(temp, place)
	})
	if errors.Is(err, fs.ErrExist) {
		err = exists
	}
	if err != nil {
		return at(dest, err)
	}
	return nil
}
