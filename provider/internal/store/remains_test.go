package store

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"bigfleet-providers/provider/internal/machine"
)

// sealedText stands for a sealed blob: long enough to lie in pages of its own.
func sealedText(id string) []byte { return bytes.Repeat([]byte("remains of "+id+"; "), 600) }

func holdsText(t *testing.T, path, text string) bool {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return bytes.Contains(content, []byte(text))
}

// TestErasedBlobsLeaveTheFile: what was erased is gone from the file after a
// restart, and from backups at once; what is in use stays.
func TestErasedBlobsLeaveTheFile(t *testing.T) {
	dir := t.TempDir()
	path, link := filepath.Join(dir, "state"), filepath.Join(dir, "link")
	if err := os.Symlink("state", link); err != nil {
		t.Fatal(err)
	}
	s := start(t, path)
	configuring := func(id string) machine.Mutation {
		return func(cur machine.Record) (machine.Record, machine.Change, error) {
			next := cur.Clone()
			next.ID, next.State = id, machine.Configuring
			next.Op = &machine.Operation{ID: "op-" + id, Kind: machine.Configure, Started: time.Unix(1, 0).UTC(), Deadline: time.Unix(2, 0).UTC(), Sealed: sealedText(id)}
			return next, machine.Visible, nil
		}
	}
	for _, id := range []string{"gone", "lives"} {
		must(t, s, id, configuring(id))
	}
	must(t, s, "gone", func(cur machine.Record) (machine.Record, machine.Change, error) {
		next := cur.Clone()
		next.State, next.Op = machine.Configured, nil
		return next, machine.Visible, nil
	})
	want := records(s)
	const erased, kept = "remains of gone", "remains of lives"
	if !holdsText(t, path, erased) {
		t.Error("the file shows nothing that a start could remove: the test proves nothing")
	}
	backup := filepath.Join(dir, "online")
	from, err := s.Copy()
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(WriteBackup(backup, func(w io.Writer) error { _, err := io.Copy(w, from); return err }), from.Close()); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	offline := filepath.Join(dir, "offline")
	if _, err := Backup(path, offline); err != nil {
		t.Fatal(err)
	}
	for _, copied := range []string{backup, offline} {
		c, err := Inspect(copied)
		if err != nil {
			t.Fatal(err)
		}
		if holdsText(t, copied, erased) || !holdsText(t, copied, kept) {
			t.Errorf("%s holds what was erased, or not what is in use", copied)
		}
		if len(c.Machines) != len(want) || c.Instance != s.Instance() {
			t.Errorf("%s: %d machines, want %d", copied, len(c.Machines), len(want))
		}
	}

	again := start(t, link) // by a link, as some volumes have it
	if holdsText(t, path, erased) || !holdsText(t, path, kept) {
		t.Error("after a restart the file holds what was erased, or not what is in use")
	}
	if diff := cmp.Diff(want, records(again)); diff != "" {
		t.Error(diff)
	}
	if info, err := os.Lstat(link); err != nil || info.Mode().Type() != os.ModeSymlink {
		t.Error("the link is one no more")
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	must(t, again, "gone", to(machine.Idle)) // it can be written
	if err := again.Close(); err != nil {
		t.Fatal(err)
	}

	// Nothing was sealed since: the file stays as it is, and the next one too.
	third := start(t, path)
	if now, err := os.Stat(path); err != nil || !os.SameFile(info, now) {
		t.Error("a file without remains was replaced")
	}
	must(t, third, "late", configuring("late"))
	must(t, third, "late", to(machine.Idle))
	if err := third.Close(); err != nil {
		t.Fatal(err)
	}
	if files, _ := filepath.Glob(filepath.Join(dir, "state*")); len(files) != 1 {
		t.Errorf("left behind: %v", files)
	}
}

// TestRemainsThatCannotBeDropped: the file stays as it is and in use.
func TestRemainsThatCannotBeDropped(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "state")
	s := start(t, path)
	must(t, s, "m", func(cur machine.Record) (machine.Record, machine.Change, error) {
		next := cur.Clone()
		next.State, next.Op = machine.Configuring, &machine.Operation{ID: "op", Kind: machine.Configure, Sealed: sealedText("m")}
		return next, machine.Visible, nil
	})
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	f, err := openExisting(path, os.O_RDWR)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.readMark(); err != nil || !f.marked.Load() {
		t.Fatalf("not marked: %v", err)
	}
	same, err := f.withoutRemains(filepath.Join(dir, "missing", "state"))
	if same != f || err == nil {
		t.Errorf("%v", err)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "*.new-*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
	if _, err := f.contents(); err != nil {
		t.Errorf("it cannot be used any more: %v", err)
	}
	if err := f.close(); err != nil {
		t.Fatal(err)
	}
}
