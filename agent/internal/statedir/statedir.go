// Package statedir is the directory in which an agent keeps what survives a
// restart. One agent works in it at a time, what is written is durable, and it
// holds the state of this machine on this host alone: what an image brought of
// another is set aside.
package statedir

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"

	"bigfleet-providers/shared/symlink"
)

const (
	lockName = "lock"
	maxFile  = 4 << 20 // a full journal of the longest records is under 1 MiB
)

// ErrLocked says that another agent works on the same directory.
var ErrLocked = errors.New("state directory is in use")

// Dir is a state directory. All methods may be called from many goroutines.
type Dir struct {
	path  string
	owner Owner
	log   *slog.Logger

	mu      sync.Mutex
	lock    *os.File
	settled bool // what is here is the owner's, and marked so
	foreign bool // what is here is another's, and could not be set aside yet
	// unmarked is the machine that what is here is known to be of, should it have
	// no mark.
	unmarked string
	setAside func(dir string) (string, error) // a variable for tests only
}

// Open makes the directory if needed, locks it against a second agent until
// Close, and sets aside what it holds of another owner. unmarked is the machine
// that the content is known to be of where an older agent left no mark, "" where
// that is not known.
//
// A directory that cannot be written is no error, since an agent that does not
// run cannot say so: Write fails then, until it can be. The only error is
// ErrLocked.
func Open(path string, owner Owner, unmarked string, log *slog.Logger) (*Dir, error) {
	d := &Dir{path: path, owner: owner, unmarked: unmarked, log: log, setAside: setAside}
	err := d.hold()
	if errors.Is(err, ErrLocked) {
		return nil, err
	}
	if err == nil {
		err = d.settle()
	}
	if err != nil {
		log.Error("the state directory cannot be written, commands wait until it can; make it writable, free space there", "dir", path, "error", err)
	}
	return d, nil
}

// Close releases the directory for another agent.
func (d *Dir) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.lock == nil {
		return nil
	}
	return d.lock.Close()
}

// Path is where the file of that name is.
func (d *Dir) Path(name string) string { return filepath.Join(d.path, name) }

// Read returns the content of a file. While another owner's state cannot be set
// aside, there is none.
func (d *Dir) Read(name string) ([]byte, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.foreign {
		return nil, fs.ErrNotExist
	}
	return ReadFile(d.path, name)
}

// ReadFile returns the content of a file in the directory at path, which it
// neither locks nor judges.
func ReadFile(path, name string) ([]byte, error) {
	file, err := os.Open(filepath.Join(path, name))
	if err != nil {
		return nil, err
	}
	defer file.Close()
	body, err := io.ReadAll(io.LimitReader(file, maxFile+1))
	if err == nil && len(body) > maxFile {
		err = fmt.Errorf("%s: over %d bytes", file.Name(), maxFile)
	}
	if err != nil {
		return nil, err
	}
	return body, nil
}

// Write replaces a file such that a crash leaves either the old or the new one.
// When it returns nil, the file is there after a crash. A directory that was
// removed is made again.
func (d *Dir) Write(name string, body []byte) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.hold(); err != nil {
		return err
	}
	if err := d.settle(); err != nil {
		return err
	}
	return replace(d.Path(name), body)
}

// hold makes the directory and takes its lock, unless it has both. The lock goes
// with a directory that is removed under the agent: another may be quicker then.
func (d *Dir) hold() error {
	if d.lock != nil {
		mine, mineErr := d.lock.Stat()
		there, err := os.Stat(d.lock.Name())
		if mineErr == nil && err == nil && os.SameFile(mine, there) {
			return nil
		}
	}
	if err := os.MkdirAll(d.path, 0o700); err != nil {
		return err
	}
	lock, err := lockDir(d.path)
	if err != nil {
		return err
	}
	if d.lock != nil {
		err = d.lock.Close()
	}
	d.lock, d.settled = lock, false
	return errors.Join(err, syncDir(filepath.Dir(d.path)))
}

// lockDir locks dir until the file that it returns is closed.
func lockDir(dir string) (*os.File, error) {
	lock, err := os.OpenFile(filepath.Join(dir, lockName), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return nil, errors.Join(fmt.Errorf("%w: another bigfleet-agent holds %s: stop it first", ErrLocked, lock.Name()), lock.Close())
	}
	return lock, nil
}

// replace writes a file durably. What a killed agent left of the new one is
// written over by the next: the name is always the same, and the lock lets one
// agent write.
func replace(path string, body []byte) (err error) {
	if path, err = symlink.Target(path); err != nil {
		return err
	}
	temp, err := os.OpenFile(path+".tmp", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, ignoreNotExist(os.Remove(temp.Name())))
		}
	}()
	_, err = temp.Write(body)
	if err == nil {
		err = temp.Sync()
	}
	if err = errors.Join(err, temp.Close()); err != nil {
		return err
	}
	if err = os.Rename(temp.Name(), path); err != nil {
		return err
	}
	return syncDir(filepath.Dir(path))
}

// syncDir makes a rename in dir durable.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

func ignoreNotExist(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
