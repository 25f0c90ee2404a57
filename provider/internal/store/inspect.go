package store

import (
	"errors"
	"fmt"
	"os"
	"time"

	"bigfleet-providers/provider/internal/machine"
)

// Contents is what a state file holds.
type Contents struct {
	Version  uint64 // of the schema, as found
	Owner    Owner  // zero if the file does not say
	Instance [16]byte
	Restored time.Time        // when a copy became this file; zero if it never was
	Revision uint64           // the last one given out
	Bytes    int64            // in use
	Machines []machine.Record // the longest unchanged first
	// Unknown are the fencing marks of ids that no machine has.
	Unknown map[string]machine.Marks
	// Generations are those that may fill a slot next, see Store.Generation.
	Generations map[string]int
}

// Inspect reads a state file as Open does, with every check that Open makes,
// and changes nothing. It waits for no provider: a file that one runs on is
// refused with ErrLocked. The error is one line that names the file and what to
// do.
func Inspect(path string) (*Contents, error) {
	c, err := inspect(path, schema)
	if err != nil {
		return nil, at(path, remedy(err))
	}
	return c, nil
}

// Check is what Open would say of a file and its owner, as an error of one line.
// It changes nothing; a file that is not there, and one that a provider runs on,
// it cannot judge: fs.ErrNotExist, ErrLocked.
func Check(path string, o Owner) error {
	c, err := Inspect(path)
	if err != nil {
		return err
	}
	if err := c.Owner.refuse(o); err != nil {
		return at(path, err)
	}
	return nil
}

func inspect(path string, l ladder) (*Contents, error) {
	f, err := openExisting(path, os.O_RDONLY)
	if err != nil {
		return nil, err
	}
	c, err := f.inspect(l)
	return c, errors.Join(err, f.close())
}

func (f *file) inspect(l ladder) (*Contents, error) {
	have, steps, err := f.steps(l)
	if err != nil {
		return nil, err
	}
	if len(steps) > 0 {
		return f.inspectUpgraded(have, l)
	}
	return f.contents()
}

// contents reads a file of this release's version.
func (f *file) contents() (*Contents, error) {
	have, err := f.version()
	if err != nil {
		return nil, err
	}
	s := &Store{view: func(*machine.Record) []byte { return nil }}
	s.index.init()
	s.marks.init()
	s.generations.init()
	if err := f.load(s); err != nil {
		return nil, err
	}
	owner, err := f.owner()
	if err != nil {
		return nil, err
	}
	c := &Contents{
		Version: have, Owner: owner, Instance: s.instance, Restored: s.restored, Revision: s.index.head, Bytes: f.size(),
		Unknown:     make(map[string]machine.Marks, s.marks.len()),
		Generations: make(map[string]int, s.generations.len()),
	}
	s.Records(func(r machine.Record) bool {
		c.Machines = append(c.Machines, r)
		return true
	})
	for id, e := range s.marks.entries {
		c.Unknown[id] = e.value
	}
	for slot, e := range s.generations.entries {
		c.Generations[slot] = e.value
	}
	return c, nil
}

// inspectUpgraded reads a file of an older version through a copy that is
// upgraded and then dropped.
func (f *file) inspectUpgraded(have uint64, l ladder) (c *Contents, err error) {
	dir, err := os.MkdirTemp("", "bigfleet-state-")
	if err != nil {
		return nil, fmt.Errorf("has schema version %d, and cannot be copied to be read: %w", have, err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	path := dir + "/state"
	if err := f.keepCopy(path); err != nil {
		return nil, fmt.Errorf("has schema version %d, and cannot be copied to be read: %w", have, err)
	}
	up, err := openExisting(path, os.O_RDWR)
	if err != nil {
		return nil, err
	}
	if err = up.upgrade(l, ""); err == nil {
		c, err = up.contents()
	}
	if err := errors.Join(err, up.close()); err != nil {
		return nil, err
	}
	c.Version = have
	return c, nil
}

// at names the state file in an error.
func at(path string, err error) error { return fmt.Errorf("state file %s: %w", path, err) }
