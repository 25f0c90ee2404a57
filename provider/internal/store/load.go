package store

import (
	"cmp"
	"encoding/binary"
	"errors"
	"runtime"
	"slices"
	"time"

	"go.etcd.io/bbolt"
	"golang.org/x/sync/errgroup"
	"google.golang.org/protobuf/proto"

	statev1 "bigfleet-providers/proto/bigfleet/state/v1"
	"bigfleet-providers/provider/internal/machine"
)

// load fills the store from the file.
func (f *file) load(s *Store) error {
	return f.guard(func() error {
		tx, err := f.db.Begin(false)
		if err != nil {
			return err
		}
		f.tx = tx.ID()
		f.bytes.Store(tx.Size())
		return errors.Join(read(tx, s), tx.Rollback())
	})
}

func read(tx *bbolt.Tx, s *Store) error {
	head, err := readMeta(tx, s)
	if err != nil {
		return err
	}
	loaded, err := readMachines(tx, s.view)
	if err != nil {
		return err
	}
	if uint64(len(loaded)) != head.Machines {
		return damaged("it holds %d machines and should hold %d", len(loaded), head.Machines)
	}
	slices.SortFunc(loaded, func(a, b loadedMachine) int { return cmp.Compare(a.revision, b.revision) })
	s.index.reserve(len(loaded))
	last := uint64(0)
	for _, m := range loaded {
		if m.revision <= last || m.revision > head.Revision {
			return damaged("machine %q has revision %d, which another has or nobody was given", m.rec.ID, m.revision)
		}
		last = m.revision
		s.index.put(m.rec.ID, m.rec, m.view)
	}
	s.index.head = head.Revision
	return errors.Join(readMarks(tx, &s.marks), readGenerations(tx, &s.generations))
}

func readMeta(tx *bbolt.Tx, s *Store) (*statev1.Head, error) {
	v, err := metaValue(tx, instanceKey)
	if err != nil {
		return nil, err
	}
	if copy(s.instance[:], v) != instanceBytes {
		return nil, damaged("its instance id has %d bytes and not %d", len(v), instanceBytes)
	}
	if tx.Bucket([]byte(metaBucket)).Get([]byte(restoredKey)) != nil {
		v, err := metaValue(tx, restoredKey)
		if err != nil {
			return nil, err
		}
		if len(v) != 8 {
			return nil, damaged("meta record %q has %d bytes and not 8", restoredKey, len(v))
		}
		s.restored = fromNano(int64(binary.BigEndian.Uint64(v)))
	}
	if tx.Bucket([]byte(metaBucket)).Get([]byte(inventoriedKey)) != nil {
		v, err := metaValue(tx, inventoriedKey)
		if err != nil {
			return nil, err
		}
		at := time.Time{}
		if len(v) == 8 { // the first releases wrote nothing into it
			at = fromNano(int64(binary.BigEndian.Uint64(v)))
		}
		s.inventoried.Store(&at)
	}
	if err := readOwnership(tx, s); err != nil {
		return nil, err
	}
	v, err = metaValue(tx, headKey)
	if err != nil {
		return nil, err
	}
	head := new(statev1.Head)
	if err := proto.Unmarshal(v, head); err != nil {
		return nil, damaged("meta record %q: %w", headKey, err)
	}
	return head, nil
}

// metaValue reads a record of the meta bucket, which must be there.
func metaValue(tx *bbolt.Tx, key string) ([]byte, error) {
	v, err := open(metaBucket, key, tx.Bucket([]byte(metaBucket)).Get([]byte(key)))
	if err != nil {
		return nil, damaged("meta record %q: %w", key, err)
	}
	return v, nil
}

type loadedMachine struct {
	revision uint64 // the record's, beside it: to sort them is to read nothing else
	rec      *machine.Record
	view     []byte
}

// loadChunk is how many records a worker decodes at a time.
const loadChunk = 512

// readMachines decodes on all processors: it is nearly all of the time that a
// start takes once the file is in memory.
func readMachines(tx *bbolt.Tx, view func(*machine.Record) []byte) ([]loadedMachine, error) {
	type item struct{ key, value []byte }
	var (
		dec     decoder
		workers errgroup.Group
		chunks  [][]loadedMachine
	)
	workers.SetLimit(runtime.GOMAXPROCS(0))
	start := func(items []item) {
		out := make([]loadedMachine, len(items))
		chunks = append(chunks, out)
		workers.Go(func() error {
			return guard(func() error {
				for i, it := range items {
					id := string(it.key)
					rec, err := dec.record(id, it.value)
					if err != nil {
						return damaged("record of machine %q: %w", id, err)
					}
					out[i] = loadedMachine{rec.Revision, rec, view(rec)}
				}
				return nil
			})
		})
	}
	items := make([]item, 0, loadChunk)
	err := tx.Bucket([]byte(machinesBucket)).ForEach(func(k, v []byte) error {
		if items = append(items, item{k, v}); len(items) == loadChunk {
			start(items)
			items = make([]item, 0, loadChunk)
		}
		return nil
	})
	if err == nil && len(items) > 0 {
		start(items)
	}
	// The workers read the mapped pages: the transaction must outlive them.
	if err := errors.Join(err, workers.Wait()); err != nil {
		return nil, err
	}
	return slices.Concat(chunks...), nil
}

func readMarks(tx *bbolt.Tx, t *markTable) error {
	entries := map[string]agedEntry[machine.Marks]{}
	err := tx.Bucket([]byte(marksBucket)).ForEach(func(k, v []byte) error {
		id := string(k)
		age, marks, err := unknownMarks(id, v)
		if err != nil {
			return damaged("fencing marks of id %q: %w", id, err)
		}
		entries[id] = agedEntry[machine.Marks]{id, age, marks}
		return nil
	})
	if err != nil {
		return err
	}
	for _, e := range byAge(entries) {
		t.put(e.key, e.age, e.value)
	}
	return nil
}

func readGenerations(tx *bbolt.Tx, g *generations) error {
	bucket, counted := tx.Bucket([]byte(generationsBucket)), tx.Bucket([]byte(metaBucket)).Get([]byte(generationsKey)) != nil
	if bucket == nil && !counted {
		return nil
	}
	want, err := metaValue(tx, generationsKey)
	if err != nil {
		return err
	}
	if bucket == nil || len(want) != 8 {
		return damaged("it has lost the generations of slots")
	}
	entries := map[string]agedEntry[int]{}
	err = bucket.ForEach(func(k, v []byte) error {
		slot := string(k)
		age, generation, err := rememberedGeneration(slot, v)
		if err != nil {
			return damaged("generation of slot %q: %w", slot, err)
		}
		entries[slot] = agedEntry[int]{slot, age, generation}
		return nil
	})
	if err != nil {
		return err
	}
	if n := binary.BigEndian.Uint64(want); n != uint64(len(entries)) {
		return damaged("it holds the generations of %d slots and should hold those of %d", len(entries), n)
	}
	for _, e := range byAge(entries) {
		g.put(e.key, e.age, e.value)
	}
	return nil
}
