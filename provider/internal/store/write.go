package store

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"

	"go.etcd.io/bbolt"

	statev1 "bigfleet-providers/proto/bigfleet/state/v1"
)

// write commits the batch in one transaction.
func (f *file) write(b *batch) error {
	return f.guard(func() error {
		tx, err := f.db.Begin(true)
		if err != nil {
			return err
		}
		// A transaction that failed must have left no trace, and nobody else may
		// have written.
		if tx.ID() != f.tx+1 {
			return errors.Join(fmt.Errorf("transaction %d follows %d: the file is not as it was left", tx.ID(), f.tx), tx.Rollback())
		}
		mark := !f.marked.Load() && holdsSealed(b)
		if mark {
			if err := putMark(tx); err != nil {
				return errors.Join(err, tx.Rollback())
			}
		}
		if err := put(tx, b); err != nil {
			return errors.Join(err, tx.Rollback())
		}
		size := tx.Size()
		if err := tx.Commit(); err != nil {
			return classify(err)
		}
		f.tx++
		if mark {
			f.marked.Store(true)
		}
		f.bytes.Store(size)
		return f.inPlace()
	})
}

// room writes so many bytes to a file beside the state, where the state would end
// if it grew by them: a limit on the size of files counts too.
func (f *file) room(bytes int) error {
	to, err := os.CreateTemp(f.copyPlace())
	if err != nil {
		return fmt.Errorf("%w: %w", errFull, withoutPath(err))
	}
	_, err = to.WriteAt(make([]byte, bytes), f.size())
	if err == nil {
		err = to.Sync()
	}
	if err = errors.Join(err, to.Close(), os.Remove(to.Name())); err != nil {
		return fmt.Errorf("%w: %w", errFull, withoutPath(err))
	}
	return nil
}

// inPlace makes sure that a restart would find what was written. A file that
// was removed, or that another was put in place of, can still be written, for
// nobody.
func (f *file) inPlace() error {
	ours, err := f.raw.Stat()
	if err != nil {
		return withoutPath(err)
	}
	found, err := os.Stat(f.path)
	switch {
	case errors.Is(err, fs.ErrNotExist), err == nil && !os.SameFile(ours, found):
		return fmt.Errorf("state file %s was removed or replaced while in use; stop the provider before that", f.path)
	default:
		return nil // whoever cannot look has no reason to doubt
	}
}

// A batch that adds many machines is that of a new state, in the order of keys: it
// leaves full pages behind and not, as bbolt does by default, half empty ones. A
// tenth stays free for records that grow.
const (
	manyAdded     = 512
	manyAddedFill = 0.9
)

func put(tx *bbolt.Tx, b *batch) error {
	machines, marks := tx.Bucket([]byte(machinesBucket)), tx.Bucket([]byte(marksBucket))
	if b.added >= manyAdded {
		machines.FillPercent = manyAddedFill
	}
	for _, id := range b.evicted {
		if err := marks.Delete([]byte(id)); err != nil {
			return err
		}
	}
	for _, c := range b.order {
		id := []byte(c.id)
		into, outOf := machines, marks
		if c.rec == nil {
			into, outOf = marks, machines
		}
		if err := outOf.Delete(id); err != nil {
			return err
		}
		if c.data == nil {
			if err := into.Delete(id); err != nil {
				return err
			}
			continue
		}
		if err := into.Put(id, c.data); err != nil {
			return err
		}
	}
	if err := putGenerations(tx, b); err != nil {
		return err
	}
	meta := tx.Bucket([]byte(metaBucket))
	if !b.inventoried.IsZero() {
		when := binary.BigEndian.AppendUint64(make([]byte, sumBytes), uint64(b.inventoried.UnixNano()))
		if err := meta.Put([]byte(inventoriedKey), sign(metaBucket, inventoriedKey, when)); err != nil {
			return err
		}
	}
	if b.ownership != nil {
		if err := putOwnership(meta, *b.ownership); err != nil {
			return err
		}
	}
	if !b.listed {
		return nil
	}
	return putHead(meta, b.head, b.machines)
}

func putGenerations(tx *bbolt.Tx, b *batch) error {
	if len(b.generations) == 0 {
		return nil
	}
	bucket, err := tx.CreateBucketIfNotExists([]byte(generationsBucket))
	if err != nil {
		return err
	}
	for _, slot := range b.forgotten {
		if err := bucket.Delete([]byte(slot)); err != nil {
			return err
		}
	}
	for slot, e := range b.generations {
		v, err := seal(generationsBucket, slot, &statev1.Generation{Generation: uint64(e.value), Age: e.age})
		if err != nil {
			return err
		}
		if err := bucket.Put([]byte(slot), v); err != nil {
			return err
		}
	}
	// Lost pages, or a bucket that lost its name, would let ids come back.
	n := binary.BigEndian.AppendUint64(make([]byte, sumBytes), uint64(b.remembered))
	return tx.Bucket([]byte(metaBucket)).Put([]byte(generationsKey), sign(metaBucket, generationsKey, n))
}

// classify finds the failed commits that left the file as it was: a page could
// not be written for lack of space, so the page that makes the transaction
// count was not written either. A failed sync tells nothing, whatever its
// number says.
func classify(err error) error {
	if pe := (*fs.PathError)(nil); errors.As(err, &pe) && pe.Op == "write" {
		for _, full := range []error{syscall.ENOSPC, syscall.EDQUOT, syscall.EFBIG} {
			if errors.Is(pe.Err, full) {
				return fmt.Errorf("%w: %w", errFull, pe.Err)
			}
		}
	}
	return fmt.Errorf("commit: %w", err)
}
