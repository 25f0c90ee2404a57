package journal

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	"bigfleet-providers/agent/internal/statedir"
	"bigfleet-providers/shared/symlink"
)

const (
	fileName    = "journal.json"
	version     = 1
	keepDamaged = 5
)

// document is the file's content.
type document struct {
	Version int      `json:"version"`
	Records []Record `json:"records"`
}

// File is a journal in a state directory. All methods may be called from many
// goroutines.
type File struct {
	dir *statedir.Dir

	mu   sync.Mutex
	list list
}

// Open reads the journal in dir.
//
// A damaged file is set aside as journal.json.damaged-<time> and the journal
// starts empty: the provider still knows which command is open.
func Open(dir *statedir.Dir, log *slog.Logger) *File {
	f := &File{dir: dir}
	body, err := dir.Read(fileName)
	if err == nil {
		f.list, err = decode(body)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENOTDIR) {
		f.setAside(err, log)
	}
	return f
}

// MachineOf returns the machine whose commands the journal in the directory at
// path holds, "" when it holds none or cannot be read.
func MachineOf(path string) string {
	body, err := statedir.ReadFile(path, fileName)
	if err != nil {
		return ""
	}
	l, err := decode(body)
	if err != nil || len(l) == 0 {
		return ""
	}
	return l[len(l)-1].Command.MachineID
}

func (f *File) path() string { return f.dir.Path(fileName) }

func decode(body []byte) (list, error) {
	if len(bytes.TrimSpace(body)) == 0 {
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
	if err := f.dir.Write(fileName, append(body, '\n')); err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	f.list = next
	return nil
}
