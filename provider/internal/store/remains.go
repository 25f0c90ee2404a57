package store

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"go.etcd.io/bbolt"
)

// A page that bbolt frees keeps its bytes until another takes its place, and to
// write over a value changes another page than the one it lies in. So of a sealed
// blob that was erased something can remain in the file. A file that ever held
// one is marked; the next start copies what lives into a new file and drops the
// old one, and backups are copied that way too.
//
// What the disk itself keeps of a dropped file is out of reach here.

// compactTx bounds a transaction of a copy, in bytes.
const compactTx = 4 << 20

// holdsSealed says whether a batch writes a sealed blob.
func holdsSealed(b *batch) bool {
	for _, c := range b.order {
		if c.rec != nil && c.rec.Op != nil && len(c.rec.Op.Sealed) > 0 {
			return true
		}
	}
	return false
}

func putMark(tx *bbolt.Tx) error {
	return tx.Bucket([]byte(metaBucket)).Put([]byte(sealedKey), sign(metaBucket, sealedKey, make([]byte, sumBytes)))
}

// readMark reads whether the file may hold remains.
func (f *file) readMark() error {
	return f.guard(func() error {
		return f.db.View(func(tx *bbolt.Tx) error {
			f.marked.Store(tx.Bucket([]byte(metaBucket)).Get([]byte(sealedKey)) != nil)
			return nil
		})
	})
}

// withoutRemains puts a file with the same content and nothing else into the
// place of f, which it closes. If that fails, f is returned as it was, with the
// error.
func (f *file) withoutRemains(path string) (*file, error) {
	if !f.marked.Load() {
		return f, nil
	}
	dir := filepath.Dir(path)
	if err := roomFor(f.size(), dir); err != nil {
		return f, err
	}
	clean, err := f.compact(dir, newPattern(path))
	if err != nil {
		return f, err
	}
	temp := clean.raw.Name()
	clean.dir, clean.path, clean.fresh, clean.upgraded, clean.swept = f.dir, f.path, f.fresh, f.upgraded, f.swept
	err = giveTo(clean.raw, path)
	if err == nil {
		// It takes the place of a file that is whole: so must it be.
		_, err = clean.contents()
	}
	if err == nil {
		err = os.Rename(temp, path)
	}
	if err != nil {
		return f, errors.Join(err, clean.close(), os.Remove(temp))
	}
	return clean, errors.Join(syncDir(dir), f.close())
}

// compact copies what lives in the file into a new one in dir, locked and open.
func (f *file) compact(dir, pattern string) (_ *file, err error) {
	raw, err := os.CreateTemp(dir, pattern) // 0600
	if err != nil {
		return nil, withoutPath(err)
	}
	to := &file{raw: raw, dir: dir, path: raw.Name()}
	defer func() {
		if err != nil {
			err = errors.Join(err, to.close(), os.Remove(raw.Name()))
		}
	}()
	if err := to.openDB(raw.Name()); err != nil {
		return nil, err
	}
	to.db.NoSync = true // once, at the end
	err = f.guard(func() error {
		if err := bbolt.Compact(to.db, f.db, compactTx); err != nil {
			return err
		}
		return to.db.Update(func(tx *bbolt.Tx) error {
			// It holds the blobs of operations under way, but no remains of others.
			return tx.Bucket([]byte(metaBucket)).Delete([]byte(sealedKey))
		})
	})
	if err != nil {
		return nil, err
	}
	to.db.NoSync = false
	return to, to.db.Sync()
}

// cleanCopy writes what lives in a copy of a state file to a new file without a
// name in dir, at its start, and closes the copy.
func cleanCopy(from *os.File, dir, pattern string) (_ *os.File, err error) {
	f := &file{raw: from, dir: dir, path: from.Name(), readOnly: true}
	defer func() { err = errors.Join(err, f.close()) }()
	if err := f.openDB(from.Name()); err != nil {
		return nil, err
	}
	return f.cleanCopy(dir, pattern)
}

func (f *file) cleanCopy(dir, pattern string) (*os.File, error) {
	clean, err := f.compact(dir, pattern)
	if err != nil {
		return nil, err
	}
	name := clean.raw.Name()
	to, err := os.Open(name)
	if err := errors.Join(err, os.Remove(name), clean.close()); err != nil {
		if to != nil {
			err = errors.Join(err, to.Close())
		}
		return nil, err
	}
	return to, nil
}

// cleanCopyTo writes a copy without remains. dir is for what lies in between.
func (f *file) cleanCopyTo(w io.Writer, dir string) error {
	if !f.marked.Load() {
		return f.copyTo(w)
	}
	from, err := f.cleanCopy(dir, copyPattern(f.path))
	if err != nil {
		return fmt.Errorf("copy it without the remains of erased blobs: %w", err)
	}
	_, err = io.Copy(w, from)
	return errors.Join(err, from.Close())
}
