package store

import (
	"encoding/binary"
	"fmt"
	"os"

	"go.etcd.io/bbolt"

	"bigfleet-providers/shared/symlink"
)

// firstVersion is the schema version of the first release.
const firstVersion = 1

// upgrade rewrites a file of one schema version into the next. Its transaction
// also sets the new version, so that it happens as a whole or not at all.
type upgrade func(tx *bbolt.Tx) error

// ladder is the way from firstVersion to the version of this release, a step a
// version: the step at i leads from version firstVersion+i to the next.
type ladder []upgrade

// schema is this release's. A new version is needed only when an older release
// could misread the file: fields that it may ignore need none.
var schema = ladder{}

// SchemaVersion is the version of state files that this release writes.
func SchemaVersion() uint64 { return schema.version() }

func (l ladder) version() uint64 { return firstVersion + uint64(len(l)) }

// from returns the steps that lead from a version to this release's, or why
// there are none.
func (l ladder) from(have uint64) (ladder, error) {
	switch current := l.version(); {
	case have > current:
		return nil, fmt.Errorf("has schema version %d, and this release reads version %d; run the release that wrote it, or a newer one, or restore a copy from before the upgrade", have, current)
	case have < firstVersion:
		return nil, damaged("schema version %d never was", have)
	default:
		return l[have-firstVersion:], nil
	}
}

// readVersion reads the schema version. Of a newer one nothing else can be
// judged, so that it comes first.
func readVersion(tx *bbolt.Tx) (uint64, error) {
	for _, b := range []string{metaBucket, machinesBucket, marksBucket} {
		if tx.Bucket([]byte(b)) == nil {
			return 0, fmt.Errorf("is another program's database, or damaged: bucket %q is missing; check the path, or %s", b, recovery)
		}
	}
	v, err := metaValue(tx, versionKey)
	if err != nil {
		return 0, err
	}
	if len(v) > 8 {
		return 0, damaged("its schema version has %d bytes", len(v))
	}
	var n uint64
	for _, b := range v { // of another width, perhaps, in a later release
		n = n<<8 | uint64(b)
	}
	return n, nil
}

// putVersion writes a schema version. Its width is that of the first release,
// which has to read it to refuse it.
func putVersion(meta *bbolt.Bucket, version uint64) error {
	v := binary.BigEndian.AppendUint32(make([]byte, sumBytes), uint32(version))
	return meta.Put([]byte(versionKey), sign(metaBucket, versionKey, v))
}

// version reads the schema version of an open file.
func (f *file) version() (v uint64, err error) {
	err = f.guard(func() error {
		return f.db.View(func(tx *bbolt.Tx) error {
			v, err = readVersion(tx)
			return err
		})
	})
	return v, err
}

// steps returns the schema version of an open file, and what leads from it to
// the ladder's.
func (f *file) steps(l ladder) (have uint64, steps ladder, err error) {
	if have, err = f.version(); err != nil {
		return 0, nil, err
	}
	steps, err = l.from(have)
	return have, steps, err
}

// upgrade brings an open file to the version of the ladder, one transaction a
// step. Before each, the file as it is is kept under keep and the version, if
// keep is not "": the older release reads that copy, and not this file any more.
func (f *file) upgrade(l ladder, keep string) error {
	have, steps, err := f.steps(l)
	if err != nil {
		return err
	}
	for i, step := range steps {
		from := have + uint64(i)
		if keep != "" {
			if err := f.keepCopy(fmt.Sprintf("%s.v%d", keep, from)); err != nil {
				return fmt.Errorf("cannot be upgraded from schema version %d: keep a copy first: %w", from, err)
			}
		}
		err := f.guard(func() error {
			return f.db.Update(func(tx *bbolt.Tx) error {
				if err := step(tx); err != nil {
					return err
				}
				return putVersion(tx.Bucket([]byte(metaBucket)), from+1)
			})
		})
		if err != nil {
			return fmt.Errorf("cannot be upgraded from schema version %d to %d, and is as it was: %w; run the earlier release on it", from, from+1, err)
		}
		f.upgraded = append(f.upgraded, from+1)
	}
	return nil
}

// keepCopy copies the file as a whole, under a name that appears only once the
// copy is complete. One of an earlier upgrade is replaced: this one is newer.
func (f *file) keepCopy(path string) error {
	path, err := symlink.Target(path)
	if err != nil {
		return err
	}
	return writeFile(path, func(to *os.File) error {
		return f.guard(func() error {
			return f.db.View(func(tx *bbolt.Tx) error {
				_, err := tx.WriteTo(to)
				return err
			})
		})
	}, func(temp string) error { return os.Rename(temp, path) })
}
