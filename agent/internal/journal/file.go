package journal

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"bigfleet-providers/shared/symlink"
)

const (
	fileName    = "journal.json"
	lockName    = "lock"
	version     = 1
	maxFile     = 4 << 20 // a full journal of the longest records is under 1 MiB
	keepDamaged = 5
)

// ErrLocked says that another agent works on the same state directory.
var ErrLocked = errors.New("state directory is in use")

// document is the file's content.
type document struct {
	Version int      `json:"version"`
	Records []Record `json:"records"`
}

// File is a journal in a file. All methods may be called from many goroutines.
type File struct {
	dir  string
	lock *os.File

	mu   sync.Mutex
	list list
}

// Open reads the journal in dir, which it makes if needed, and locks dir
// against a second agent until Close.
//
// A damaged file is set aside as journal.json.damaged-<time> and the journal
// starts empty: the provider still knows which command is open. A directory
// that cannot be written is no error either, since an agent that does not run
// cannot say so; Put fails then. The only error is ErrLocked.
func Open(dir string, log *slog.Logger) (*File, error) {
	f := &File{dir: dir}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		log.Error("no journal can be written, commands will be refused; make the state directory writable", "dir", dir, "error", err)
		return f, nil
	}
	lock, err := lockDir(dir)
	switch {
	case errors.Is(err, ErrLocked):
		return nil, err
	case err != nil:
		log.Error("the state directory cannot be locked against a second agent", "dir", dir, "error", err)
	}
	f.lock = lock
	switch records, err := read(f.path()); {
	case err == nil:
		f.list = records
	case errors.Is(err, fs.ErrNotExist):
	default:
		f.setAside(err, log)
	}
	return f, nil
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

// Close releases the directory for another agent.
func (f *File) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.lock == nil {
		return nil
	}
	return f.lock.Close()
}

func (f *File) path() string { return filepath.Join(f.dir, fileName) }

func read(path string) (list, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	body, err := io.ReadAll(io.LimitReader(file, maxFile+1))
	switch {
	case err != nil:
		return nil, err
	case len(body) > maxFile:
		return nil, fmt.Errorf("over %d bytes", maxFile)
	case len(bytes.TrimSpace(body)) == 0:
		return nil, errors.New("empty file")
	}
	var doc document
	if err := json.Unmarshal(body, &doc); err != nil {
		return nil, err
	}
	if doc.Version != version {
		return nil, fmt.Errorf("version %d, this agent reads version %d", doc.Version, version)
	}
	var l list
	for _, rec := range doc.Records {
		if rec.Command.CommandID == "" {
			return nil, errors.New("a record without command_id")
		}
		l = l.with(rec)
	}
	return l, nil
}

// setAside keeps the damaged file for whoever looks into it. Only the last few
// are kept.
func (f *File) setAside(cause error, log *slog.Logger) {
	path, err := symlink.Target(f.path())
	aside := path + ".damaged-" + time.Now().UTC().Format("20060102T150405.000Z")
	if err == nil {
		err = os.Rename(path, aside)
	}
	if err != nil {
		log.Error("the journal is damaged and cannot be set aside", "path", f.path(), "cause", cause, "error", err)
		return
	}
	log.Error("the journal was damaged and is set aside; starting with an empty one", "path", aside, "cause", cause)
	old, err := filepath.Glob(path + ".damaged-*")
	if err != nil || len(old) <= keepDamaged {
		return
	}
	slices.Sort(old)
	for _, path := range old[:len(old)-keepDamaged] {
		if err := os.Remove(path); err != nil {
			log.Warn("an old damaged journal cannot be removed", "path", path, "error", err)
		}
	}
}

// Get returns the record of the command.
func (f *File) Get(commandID string) (Record, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.list.get(commandID)
}

// Records returns every record, oldest first.
func (f *File) Records() []Record {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.list.records()
}

// Put stores rec in place of the record of the same command, if any. When it
// returns nil the record is on disk; when it fails nothing changed. A directory
// that was removed is made again: every Put writes the whole journal.
func (f *File) Put(rec Record) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	next := f.list.with(rec)
	body, err := json.MarshalIndent(document{Version: version, Records: next}, "", " ")
	if err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	if err := f.hold(); err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	if err := replace(f.path(), append(body, '\n')); err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	f.list = next
	return nil
}

// hold makes a directory that was removed under the agent and takes its lock
// again, which went with it: another agent may have been quicker.
func (f *File) hold() error {
	if f.lock != nil {
		mine, mineErr := f.lock.Stat()
		there, err := os.Stat(f.lock.Name())
		if mineErr == nil && err == nil && os.SameFile(mine, there) {
			return nil
		}
	}
	if err := os.MkdirAll(f.dir, 0o700); err != nil {
		return err
	}
	lock, err := lockDir(f.dir)
	if err != nil {
		return err
	}
	if f.lock != nil {
		err = f.lock.Close()
	}
	f.lock = lock
	return errors.Join(err, syncDir(filepath.Dir(f.dir)))
}

// replace writes a file such that a crash leaves either the old or the new one.
// What a killed agent left of the new one is written over by the next: the name is
// always the same, and the lock lets one agent write.
func replace(path string, body []byte) (err error) {
	if path, err = symlink.Target(path); err != nil {
		return err
	}
	dir := filepath.Dir(path)
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
	return syncDir(dir)
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
