package journal_test

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"bigfleet-providers/agent/internal/journal"
	"bigfleet-providers/agent/internal/statedir"
	"bigfleet-providers/shared/command"
)

var (
	quiet = slog.New(slog.DiscardHandler)
	at    = time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)
)

func record(id string) journal.Record {
	return journal.Record{
		Command: command.Command{CommandID: id, Kind: command.Configure, MachineID: "m-1", ClusterID: "c-1", Deadline: at},
		Step:    "configure", Attempt: 1, BootID: "boot-1", Started: at, Deadline: time.Hour,
	}
}

// file is a journal and the directory that it holds.
type file struct {
	*journal.File
	dir *statedir.Dir
}

func (f file) Close() error { return f.dir.Close() }

func open(t *testing.T, dir string) file {
	t.Helper()
	d, err := lock(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil && !errors.Is(err, os.ErrClosed) {
			t.Error(err)
		}
	})
	return file{journal.Open(d, quiet), d}
}

func lock(dir string) (*statedir.Dir, error) {
	return statedir.Open(dir, statedir.Owner{MachineID: "m-1"}, journal.MachineOf(dir), quiet)
}

type both interface {
	Get(string) (journal.Record, bool)
	Records() []journal.Record
	Put(journal.Record) error
}

// each runs a test against both kinds of journal.
func each(t *testing.T, f func(t *testing.T, j both)) {
	t.Run("memory", func(t *testing.T) { f(t, &journal.Memory{}) })
	t.Run("file", func(t *testing.T) { f(t, open(t, t.TempDir())) })
}

func put(t *testing.T, j both, rec journal.Record) {
	t.Helper()
	if err := j.Put(rec); err != nil {
		t.Fatal(err)
	}
}

func TestPutAndGet(t *testing.T) {
	each(t, func(t *testing.T, j both) {
		if _, ok := j.Get("op-1"); ok || len(j.Records()) > 0 {
			t.Error("a new journal has records")
		}
		first, second := record("op-1"), record("op-2")
		put(t, j, first)
		put(t, j, second)
		first.Step, first.Ack = "ready", &command.Ack{CommandID: "op-1", OK: true, Started: at, Finished: at}
		put(t, j, first)
		if diff := cmp.Diff([]journal.Record{first, second}, j.Records()); diff != "" {
			t.Error(diff)
		}
		got, ok := j.Get("op-1")
		if diff := cmp.Diff(first, got); !ok || diff != "" {
			t.Error(diff)
		}
		got.Ack.OK = false
		if again, _ := j.Get("op-1"); !again.Ack.OK {
			t.Error("a record is not a copy")
		}
	})
}

func TestNoBlob(t *testing.T) {
	each(t, func(t *testing.T, j both) {
		rec := record("op-1")
		rec.Command.Blob = []byte("join")
		put(t, j, rec)
		if got, _ := j.Get("op-1"); got.Command.Blob != nil {
			t.Error("the journal holds the blob")
		}
		if rec.Command.Blob == nil {
			t.Error("the caller's blob is gone")
		}
	})
}

func TestBounded(t *testing.T) {
	each(t, func(t *testing.T, j both) {
		put(t, j, record("open"))
		for i := range journal.Keep * 2 {
			rec := record(fmt.Sprint(i))
			rec.Settled = true
			put(t, j, rec)
		}
		if n := len(j.Records()); n != journal.Keep {
			t.Errorf("%d records", n)
		}
		if _, ok := j.Get("open"); !ok {
			t.Error("an open command was dropped before settled ones")
		}
		if _, ok := j.Get(fmt.Sprint(journal.Keep*2 - 1)); !ok {
			t.Error("the last one was dropped")
		}
		for i := range journal.Keep + 1 {
			put(t, j, record(fmt.Sprintf("open-%d", i)))
		}
		if n := len(j.Records()); n != journal.Keep {
			t.Errorf("%d records, none of them settled", n)
		}
	})
}

func TestReopen(t *testing.T) {
	dir := t.TempDir()
	f := open(t, dir)
	rec := record("op-1")
	put(t, f, rec)
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]journal.Record{rec}, open(t, dir).Records()); diff != "" {
		t.Error(diff)
	}
	info, err := os.Stat(filepath.Join(dir, "journal.json"))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	left, err := filepath.Glob(filepath.Join(dir, "*.tmp*"))
	if err != nil || len(left) > 0 {
		t.Errorf("temporary files stay: %v, %v", left, err)
	}
}

// Agents that are killed in the middle of a write leave one file at most, and it
// is gone with the next write.
func TestKilledWritesDoNotPileUp(t *testing.T) {
	dir := t.TempDir()
	full := filepath.Join(dir, "journal.json.tmp")
	if err := os.Symlink("/dev/full", full); err != nil {
		t.Fatal(err)
	}
	f := open(t, dir)
	if err := f.Put(record("op-1")); err == nil {
		t.Fatal("a write to a full disk succeeded")
	}
	if err := os.WriteFile(full, bytes.Repeat([]byte("half a journal"), 1000), 0o600); err != nil {
		t.Fatal(err)
	}
	put(t, f, record("op-2"))
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if got := open(t, dir).Records(); len(got) != 1 || got[0].Command.CommandID != "op-2" {
		t.Errorf("the journal has %v", got)
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 3 {
		t.Errorf("the folder has %v, %v; want the journal, its lock and its owner", entries, err)
	}
}

// The file's form: an agent of another version reads it after an upgrade.
func TestGolden(t *testing.T) {
	dir := t.TempDir()
	f := open(t, dir)
	rec := record("op-1")
	rec.Ack, rec.Settled = &command.Ack{CommandID: "op-1", Error: "hook configure: exit status 1", Started: at, Finished: at.Add(time.Second)}, true
	put(t, f, rec)
	put(t, f, record("op-2"))
	got, err := os.ReadFile(filepath.Join(dir, "journal.json"))
	if err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile("testdata/journal.json")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Error(diff)
	}
}

func TestDamaged(t *testing.T) {
	good, err := os.ReadFile("testdata/journal.json")
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string][]byte{
		"empty": {}, "blank": []byte("\n"), "half": good[:len(good)/2], "zeroes": make([]byte, 4096), "another version": []byte(`{"version":2}`),
		"no id": []byte(`{"version":1,"records":[{}]}`), "huge": bytes.Repeat([]byte(" "), 5<<20),
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, "journal.json"), content, 0o600); err != nil {
				t.Fatal(err)
			}
			f := open(t, dir)
			if len(f.Records()) > 0 {
				t.Error("records out of damage")
			}
			put(t, f, record("op-1"))
			aside, err := filepath.Glob(filepath.Join(dir, "journal.json.damaged-*"))
			if err != nil || len(aside) != 1 {
				t.Fatalf("set aside: %v, %v", aside, err)
			}
			if kept, err := os.ReadFile(aside[0]); err != nil || !bytes.Equal(kept, content) {
				t.Errorf("what was set aside is not what was there: %v", err)
			}
		})
	}
}

func TestFewDamagedFilesAreKept(t *testing.T) {
	dir := t.TempDir()
	for i := range 12 {
		old := filepath.Join(dir, fmt.Sprintf("journal.json.damaged-20200101T0000%02d.000Z", i))
		if err := os.WriteFile(old, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "journal.json"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	open(t, dir)
	left, err := filepath.Glob(filepath.Join(dir, "journal.json.damaged-*"))
	if err != nil || len(left) != 5 || strings.Contains(left[4], ".damaged-2020") {
		t.Errorf("%d are left: %v, %v", len(left), left, err)
	}
}

func TestLocked(t *testing.T) {
	dir := t.TempDir()
	f := open(t, dir)
	if _, err := lock(dir); !errors.Is(err, statedir.ErrLocked) {
		t.Errorf("second Open: %v", err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	open(t, dir)
}

// An agent on a disk that cannot be written must run, to say so.
func TestUnwritable(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	f := open(t, filepath.Join(path, "state"))
	if err := f.Put(record("op-1")); err == nil {
		t.Error("Put succeeded")
	}
	if len(f.Records()) > 0 {
		t.Error("a record that is not on disk is shown")
	}
}

func TestFailedPutChangesNothing(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	f := open(t, dir)
	put(t, f, record("op-1"))
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(dir, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	rec := record("op-1")
	rec.Attempt = 2
	if err := f.Put(rec); err == nil {
		t.Fatal("Put succeeded")
	}
	if got, _ := f.Get("op-1"); got.Attempt != 1 {
		t.Errorf("attempt %d after a failed Put", got.Attempt)
	}
}

// Somebody who removes the directory of a running agent must not make it refuse
// commands from then on.
func TestRemovedDirectoryIsMadeAgain(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "lib", "state")
	f := open(t, dir)
	put(t, f, record("op-1"))
	for range 2 {
		if err := os.RemoveAll(filepath.Dir(dir)); err != nil {
			t.Fatal(err)
		}
		put(t, f, record("op-2"))
	}
	info, err := os.Stat(dir)
	if err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the directory: %v, %v", info, err)
	}
	if _, err := lock(dir); !errors.Is(err, statedir.ErrLocked) {
		t.Errorf("a second agent in the new directory: %v", err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]journal.Record{record("op-1"), record("op-2")}, open(t, dir).Records()); diff != "" {
		t.Error(diff)
	}
}

// Two agents on one directory would run a hook twice.
func TestRemovedDirectoryOfAnotherAgent(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	f := open(t, dir)
	put(t, f, record("op-1"))
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	second := open(t, dir)
	if err := f.Put(record("op-1")); !errors.Is(err, statedir.ErrLocked) {
		t.Errorf("Put into another agent's directory: %v", err)
	}
	if err := second.Close(); err != nil {
		t.Fatal(err)
	}
	put(t, f, record("op-1"))
}

// TestLinksStayLinks: a journal that lies elsewhere is written there, and a
// damaged one set aside there.
func TestLinksStayLinks(t *testing.T) {
	dir, volume := t.TempDir(), t.TempDir()
	path, file := filepath.Join(dir, "journal.json"), filepath.Join(volume, "its-journal")
	if err := os.Symlink(file, path); err != nil {
		t.Fatal(err)
	}
	f := open(t, dir)
	put(t, f, record("op-1"))
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Lstat(path); err != nil || info.Mode().Type() != os.ModeSymlink {
		t.Errorf("the link is one no more: %v", err)
	}
	f = open(t, dir)
	if got := f.Records(); len(got) != 1 {
		t.Errorf("by the link: %v", got)
	}
	if err := errors.Join(f.Close(), os.WriteFile(file, []byte("{"), 0o600)); err != nil {
		t.Fatal(err)
	}
	f = open(t, dir)
	put(t, f, record("op-2"))
	aside, _ := filepath.Glob(file + ".damaged-*")
	if info, err := os.Lstat(path); err != nil || info.Mode().Type() != os.ModeSymlink || len(aside) != 1 {
		t.Errorf("after damage the link is one no more, %v, or the damaged file is not beside the new one: %q", err, aside)
	}
}
