package store

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

// The two ways to give a file a name that is free, atomically. File systems may
// lack either: CIFS, FAT and exFAT have no hard links, NFS, 9p and FUSE know no
// flags of a rename. Tests replace them.
var (
	hardLink      = os.Link
	renameToEmpty = func(from, to string) error {
		return unix.Renameat2(unix.AT_FDCWD, from, unix.AT_FDCWD, to, unix.RENAME_NOREPLACE)
	}
)

// writeFile makes a file of mode 0600: written under another name, synced, then
// put into place by the last function, which gets that name.
func writeFile(path string, write func(*os.File) error, place func(temp string) error) (err error) {
	dir := filepath.Dir(path)
	temp, err := os.CreateTemp(dir, newPattern(path))
	if err != nil {
		return withoutPath(err)
	}
	defer func() { err = errors.Join(err, removeIfThere(temp.Name())) }()
	err = write(temp)
	if err == nil {
		err = temp.Sync()
	}
	if err = errors.Join(err, temp.Close()); err != nil {
		return err
	}
	if err := place(temp.Name()); err != nil {
		return err
	}
	return syncDir(dir)
}

// putNew gives the file temp the name path, and fails with fs.ErrExist if there
// is one already. The name temp may stay.
func putNew(temp, path string) error {
	err := hardLink(temp, path)
	if err == nil || errors.Is(err, fs.ErrExist) {
		return err
	}
	err = renameToEmpty(temp, path)
	if err == nil || errors.Is(err, fs.ErrExist) {
		return err
	}
	// The first process that makes the file owns the name. It is locked until the rename
	// has replaced it, so that a provider that finds it waits for what follows.
	reserved, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return withoutPath(err)
	}
	err = lock(reserved, false, lockWait)
	if err == nil {
		err = os.Rename(temp, path)
	}
	if err != nil {
		err = errors.Join(err, os.Remove(path))
	}
	return errors.Join(err, reserved.Close())
}

// keep gives the file at path, open as f, a second name: its own, or that of a
// copy where a file has one name only.
func keep(f *os.File, path, name string) error {
	err := hardLink(path, name)
	if err == nil || errors.Is(err, fs.ErrExist) {
		return err
	}
	write := func(to *os.File) error {
		_, err := io.Copy(to, io.NewSectionReader(f, 0, 1<<62))
		return errors.Join(giveTo(to, path), err)
	}
	return writeFile(name, write, func(temp string) error { return putNew(temp, name) })
}

func removeIfThere(name string) error {
	if err := os.Remove(name); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// giveTo makes a file that root writes for another user that user's own: the
// owner of the file at path or, where there is none, of its folder.
func giveTo(f *os.File, path string) error {
	if os.Geteuid() != 0 {
		return nil
	}
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		info, err = os.Stat(filepath.Dir(path))
	}
	if err != nil {
		return err
	}
	mine, err := f.Stat()
	if err != nil {
		return err
	}
	want, ok1 := info.Sys().(*syscall.Stat_t)
	have, ok2 := mine.Sys().(*syscall.Stat_t)
	if !ok1 || !ok2 || have.Uid == want.Uid && have.Gid == want.Gid {
		return nil // FAT and CIFS have one owner for all, and refuse another
	}
	return f.Chown(int(want.Uid), int(want.Gid))
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
