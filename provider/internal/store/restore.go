package store

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"go.etcd.io/bbolt"

	"bigfleet-providers/provider/internal/machine"
	"bigfleet-providers/shared/symlink"
)

// RestoreHold is how long after a restore nothing may be removed on the word of
// the restored records alone: servers that are in use now may look unclaimed, or
// left over.
const RestoreHold = 24 * time.Hour

// maxInASecond bounds the restores onto one file whose kept files have the same
// second in their names.
const maxInASecond = 100

// Restored says what Restore did.
type Restored struct {
	Contents
	Replaced string // where the file before is now; "" if there was none
	Rewound  int    // machines whose operation was not over in the copy
}

// Restore makes a copy of a state file the state file at dest. The copy is
// verified first, and so is the result before it appears. A file at dest is
// refused, unless force is set: then it is kept beside, and no provider may run
// on it.
//
// The result is another lineage, with an instance id of its own: a cursor from
// what happened after the copy was made is foreign to it, and gets a full list
// instead of a delta with a gap. Operations that were under way in the copy are
// dropped, see machine.Rewind.
func Restore(src, dest string, force bool, now time.Time) (*Restored, error) {
	return restore(src, dest, force, now, schema)
}

func restore(src, dest string, force bool, now time.Time, l ladder) (r *Restored, err error) {
	from, err := openExisting(src, os.O_RDONLY)
	if err != nil {
		return nil, at(src, err)
	}
	defer func() { err = errors.Join(err, from.close()) }()
	if _, err := from.inspect(l); err != nil {
		return nil, at(src, err)
	}

	// Where a link leads to: a rename over the link itself would leave that file as
	// it is, with a volume that is not mounted for the new one.
	name := dest
	if dest, err = symlink.Target(dest); err != nil {
		return nil, at(name, err)
	}
	r = new(Restored)
	old, err := os.OpenFile(dest, os.O_RDWR, 0)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, at(dest, withoutPath(err))
	default:
		defer func() { err = errors.Join(err, old.Close()) }()
		if sameFile(from.raw, old) {
			return nil, at(dest, errors.New("is the copy itself; name another file"))
		}
		if !force {
			return nil, at(dest, errors.New("exists already; with --force it is kept under another name"))
		}
		// Held until the end, so that no provider starts on the file meanwhile.
		if err := lock(old, false, lockWait); err != nil {
			return nil, at(dest, err)
		}
		r.Replaced = dest + ".replaced-" + now.UTC().Format("20060102T150405Z")
	}
	write := func(to *os.File) error {
		return errors.Join(giveTo(to, dest), from.copyTo(to))
	}
	err = writeFile(dest, write, func(temp string) error {
		if err := r.rewind(temp, now, l); err != nil {
			return err
		}
		if r.Replaced == "" {
			return putNew(temp, dest)
		}
		// At any moment there is a whole file at dest: a provider that finds none
		// would start from nothing.
		kept := r.Replaced
		err := keep(old, dest, kept)
		for n := 2; errors.Is(err, fs.ErrExist) && n <= maxInASecond; n++ {
			r.Replaced = fmt.Sprintf("%s-%d", kept, n)
			err = keep(old, dest, r.Replaced)
		}
		if err != nil {
			return fmt.Errorf("keep it under another name: %w", err)
		}
		return os.Rename(temp, dest)
	})
	if err != nil {
		return nil, at(dest, err)
	}
	return r, nil
}

func sameFile(a, b *os.File) bool {
	x, err1 := a.Stat()
	y, err2 := b.Stat()
	return err1 == nil && err2 == nil && os.SameFile(x, y)
}

// rewind makes the copy at path a lineage of its own, and verifies it.
func (r *Restored) rewind(path string, now time.Time, l ladder) error {
	f, err := openExisting(path, os.O_RDWR)
	if err != nil {
		return err
	}
	if err = f.upgrade(l, ""); err == nil {
		err = f.guard(func() error {
			return f.db.Update(func(tx *bbolt.Tx) error {
				r.Rewound, err = rewind(tx, now)
				return err
			})
		})
	}
	if err := errors.Join(err, f.close()); err != nil {
		return err
	}
	c, err := inspect(path, l)
	if err != nil {
		return err
	}
	r.Contents = *c
	return nil
}

func rewind(tx *bbolt.Tx, now time.Time) (int, error) {
	meta := tx.Bucket([]byte(metaBucket))
	if err := putInstance(meta); err != nil {
		return 0, err
	}
	when := binary.BigEndian.AppendUint64(make([]byte, sumBytes), uint64(now.UnixNano()))
	if err := meta.Put([]byte(restoredKey), sign(metaBucket, restoredKey, when)); err != nil {
		return 0, err
	}
	// The copy is to own what it finds, whatever the state that it was copied from
	// did since.
	if err := meta.Delete([]byte(ownershipKey)); err != nil {
		return 0, err
	}
	owner, err := readOwner(tx)
	if err != nil {
		return 0, err
	}
	machines := tx.Bucket([]byte(machinesBucket))
	var (
		dec     decoder
		enc     = encoder{provider: owner.Provider}
		changes []*change
		rewound int
	)
	err = machines.ForEach(func(k, v []byte) error {
		rec, err := dec.record(string(k), v)
		if err != nil {
			return damaged("record of machine %q: %w", k, err)
		}
		next, changed := machine.Rewind(*rec, now, RestoreHold)
		if !changed {
			return nil
		}
		if rec.State.Transitional() {
			rewound++
		}
		c := &change{id: rec.ID, rec: &next}
		changes = append(changes, c)
		return enc.record(c)
	})
	if err != nil {
		return 0, err
	}
	// After the walk: a bucket must not change under it.
	for _, c := range changes {
		if err := machines.Put([]byte(c.id), c.data); err != nil {
			return 0, err
		}
	}
	return rewound, nil
}
