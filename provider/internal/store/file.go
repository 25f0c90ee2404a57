package store

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/debug"
	"sync/atomic"
	"syscall"

	"go.etcd.io/bbolt"

	statev1 "bigfleet-providers/proto/bigfleet/state/v1"
	"bigfleet-providers/shared/symlink"
)

// The state file is one bbolt database, mode 0600. Every value starts with a
// checksum (see seal); messages are those of bigfleet.state.v1.
//
//	meta
//	├── version      of this schema, 4 bytes
//	├── instance     16 random bytes, made with the file
//	├── head         Head: last revision given out, number of machines
//	├── generations  how many there are, 8 bytes; missing without their bucket
//	├── owner        Owner; missing in files of the first releases
//	├── restored     when a copy became this file, Unix nanoseconds, 8 bytes; missing if never
//	├── ownership    Ownership; missing until a start has taken an owner epoch
//	├── inventoried  when every server that the cloud had was known, Unix nanoseconds, 8 bytes; empty in files
//	│                of the first releases, missing until then
//	└── sealed       empty; missing until a sealed blob was written, see remains.go
//	machines
//	└── <machine id>  Record, with marks, operations and binding: one key a decision
//	marks
//	└── <id without a machine>  UnknownMarks
//	generations      missing until there is one
//	└── <slot>   Generation, of slots where an id must not come back
const (
	metaBucket        = "meta"
	machinesBucket    = "machines"
	marksBucket       = "marks"
	generationsBucket = "generations"

	versionKey     = "version"
	instanceKey    = "instance"
	headKey        = "head"
	generationsKey = "generations"
	ownerKey       = "owner"
	restoredKey    = "restored"
	ownershipKey   = "ownership"
	inventoriedKey = "inventoried"
	sealedKey      = "sealed"
)

// recovery is what the operator of a damaged file can do.
const recovery = "restore a copy of the file (capacityctl state restore), or move it away and start again: machines are then adopted from their cloud tags"

// file is the persister in a bbolt database. All methods but size and copyTo
// belong to one goroutine at a time.
type file struct {
	db       *bbolt.DB
	raw      *os.File
	dir      string // its folder
	path     string // where it is found
	readOnly bool
	fresh    bool
	upgraded []uint64 // the schema versions that open led it through
	tx       int      // id of the last transaction
	bytes    atomic.Int64
	marked   atomic.Bool // it may hold remains of sealed blobs
	remains  error       // why they could not be dropped at open
	swept    sweeping    // of what others left beside it, at open
	// wedged says that a call into bbolt did not return: its locks may be held
	// for ever, and only the descriptor can be closed.
	wedged atomic.Bool
}

// openFile locks and opens the owner's state file, or makes it. One of an older
// schema is upgraded; another owner's is refused as it is.
func openFile(name string, l ladder, o Owner) (*file, error) {
	path, err := symlink.Target(name) // a link stays one, also while there is no file yet
	if err != nil {
		return nil, remedy(err)
	}
	f, err := openExisting(path, os.O_RDWR)
	if errors.Is(err, fs.ErrNotExist) {
		f, err = createFile(path, l)
	}
	if err != nil {
		return nil, remedy(err)
	}
	if err := f.prepare(path, l, o); err != nil {
		return nil, errors.Join(err, f.close())
	}
	f.swept.files, f.swept.err = f.sweep(path, name)
	// A copy that cannot be made is no reason not to start.
	clean, err := f.withoutRemains(path)
	clean.remains = err
	return clean, nil
}

// remedy adds what an operator can do about what the system says of the file.
func remedy(err error) error {
	switch {
	case errors.Is(err, syscall.EROFS):
		return fmt.Errorf("%w; make its file system writable again, which an I/O error may have ended (see the kernel's log), and start again", err)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%w; the file and its folder must be writable for the user of this process", err)
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return fmt.Errorf("%w; make room for it, and start again", err)
	case errors.Is(err, syscall.EISDIR):
		return fmt.Errorf("%w; name a file in it", err)
	default:
		return err
	}
}

// prepare makes an open file one of this release's and the owner's.
func (f *file) prepare(path string, l ladder, o Owner) error {
	if _, _, err := f.steps(l); err != nil {
		return err
	}
	have, err := f.owner()
	if err != nil {
		return err
	}
	if err := have.refuse(o); err != nil {
		return err
	}
	if err := f.upgrade(l, path); err != nil {
		return err
	}
	return errors.Join(f.belongTo(o), f.readMark())
}

// openExisting locks and opens a state file as it is. With os.O_RDONLY it takes
// the lock that readers share.
func openExisting(path string, flag int) (*file, error) {
	// Without O_NONBLOCK a path that is no file could keep the open waiting.
	raw, err := os.OpenFile(path, flag|syscall.O_NONBLOCK, 0)
	if err != nil {
		if to, e := os.Readlink(path); e == nil {
			return nil, fmt.Errorf("is a symbolic link to %s: %w", to, withoutPath(err))
		}
		return nil, withoutPath(err)
	}
	f := &file{raw: raw, dir: filepath.Dir(path), path: path, readOnly: flag == os.O_RDONLY}
	if err := f.open(path); err != nil {
		return nil, errors.Join(err, f.close())
	}
	return f, nil
}

func (f *file) open(path string) error {
	info, err := f.raw.Stat()
	if err != nil {
		return withoutPath(err)
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("is not a regular file (%s)", info.Mode().Type())
	}
	if err := lock(f.raw, f.readOnly, lockWait); err != nil {
		return err
	}
	// A restore puts another file into the place of the one it has locked.
	if now, err := os.Stat(path); err != nil || !os.SameFile(info, now) {
		return errors.New("was replaced while waiting for its lock; start again")
	}
	// Read it once from end to end: bbolt maps it with random access advice, and
	// a cold start would otherwise wait for every page alone. Under the lock, or
	// another process would change what is being checked.
	n, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{f.raw}, make([]byte, 1<<20))
	if err != nil {
		return damaged("read: %w", withoutPath(err))
	}
	if n == 0 {
		return damaged("it is empty, which no state file ever is")
	}
	switch err := verify(f.raw, n); {
	case errors.Is(err, errForeign):
		return err
	case err != nil:
		return damaged("%w", err)
	}
	return f.openDB(path)
}

// openDB gives the locked descriptor to bbolt, so that the lock is never let
// go between the check and the use.
func (f *file) openDB(path string) error {
	err := f.guard(func() (err error) {
		f.db, err = bbolt.Open(path, 0o600, &bbolt.Options{
			Timeout:  lockWait,
			ReadOnly: f.readOnly,
			OpenFile: func(string, int, os.FileMode) (*os.File, error) { return f.raw, nil },
		})
		return err
	})
	if err != nil {
		return fmt.Errorf("cannot be opened: %w; %s", err, recovery)
	}
	return nil
}

// createFile makes the file under another name and puts it into place: a
// process that dies in between leaves no half-made state file behind, and one
// that was made meanwhile is not replaced.
func createFile(path string, l ladder) (_ *file, err error) {
	raw, err := os.CreateTemp(filepath.Dir(path), newPattern(path))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("cannot be created: its directory %s: %w; create it, owned by the provider's user, or mount its volume", filepath.Dir(path), withoutPath(err))
	case err != nil:
		return nil, fmt.Errorf("cannot be made: %w", withoutPath(err))
	}
	f := &file{raw: raw, dir: filepath.Dir(path), path: path, fresh: true}
	defer func() {
		err = errors.Join(err, removeIfThere(raw.Name()))
		if err != nil {
			err = errors.Join(err, f.close())
		}
	}()
	if err := f.openDB(raw.Name()); err != nil {
		return nil, err
	}
	if err := f.initialise(l.version()); err != nil {
		return nil, fmt.Errorf("cannot be made: %w", err)
	}
	if err := putNew(raw.Name(), path); err != nil {
		if errors.Is(err, fs.ErrExist) {
			return nil, errors.New("was made by another process at the same moment")
		}
		return nil, fmt.Errorf("cannot be made: %w", err)
	}
	if err := syncDir(filepath.Dir(path)); err != nil {
		return nil, fmt.Errorf("cannot be made: %w", err)
	}
	return f, nil
}

// initialise writes the schema into a new database.
func (f *file) initialise(version uint64) error {
	return f.db.Update(func(tx *bbolt.Tx) error {
		meta, err := tx.CreateBucket([]byte(metaBucket))
		if err != nil {
			return err
		}
		for _, b := range []string{machinesBucket, marksBucket} {
			if _, err := tx.CreateBucket([]byte(b)); err != nil {
				return err
			}
		}
		if err := putVersion(meta, version); err != nil {
			return err
		}
		if err := putInstance(meta); err != nil {
			return err
		}
		return putHead(meta, 0, 0)
	})
}

// putInstance gives the file a new instance id: cursors from before are foreign.
func putInstance(meta *bbolt.Bucket) error {
	instance := make([]byte, sumBytes+instanceBytes)
	if _, err := rand.Read(instance[sumBytes:]); err != nil {
		return err
	}
	return meta.Put([]byte(instanceKey), sign(metaBucket, instanceKey, instance))
}

func putHead(meta *bbolt.Bucket, revision uint64, machines int) error {
	v, err := seal(metaBucket, headKey, &statev1.Head{Revision: revision, Machines: uint64(machines)})
	if err != nil {
		return err
	}
	return meta.Put([]byte(headKey), v)
}

// errDamaged marks what a restart does not mend.
var errDamaged = errors.New("is damaged")

// errForeign is why a file that never was a database is refused.
var errForeign = errors.New("is no state file: name another --state")

func damaged(format string, args ...any) error {
	return fmt.Errorf("%w: %w; %s", errDamaged, fmt.Errorf(format, args...), recovery)
}

// guard runs a call that reads the mapped file and turns a panic into an error:
// a page that is damaged, or that the disk cannot deliver.
func guard(call func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if p := recover(); p != nil {
			err = damaged("%v", p)
		}
	}()
	return call()
}

// guard does the same for calls into bbolt, which leaves its locks held.
func (f *file) guard(call func() error) error {
	err := guard(call)
	if errors.Is(err, errDamaged) {
		f.wedged.Store(true)
	}
	return err
}

func (f *file) size() int64 { return f.bytes.Load() }

func (f *file) close() error {
	if f.db != nil && !f.wedged.Load() {
		return f.db.Close()
	}
	if err := f.raw.Close(); !errors.Is(err, fs.ErrClosed) { // bbolt may have closed it
		return err
	}
	return nil
}

// withoutPath removes what the caller says anyway.
func withoutPath(err error) error {
	if pe := (*fs.PathError)(nil); errors.As(err, &pe) {
		return pe.Err
	}
	return err
}
