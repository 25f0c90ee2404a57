package store

import (
	"bytes"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.etcd.io/bbolt"

	"bigfleet-providers/provider/internal/machine"
)

// remove takes a machine through a state and off the list.
func remove(t *testing.T, s *Store, id string, in machine.State) {
	t.Helper()
	must(t, s, id, to(in))
	must(t, s, id, gone)
}

func wantGenerations(t *testing.T, s *Store, want map[string]int) {
	t.Helper()
	for slot, generation := range want {
		if got := s.Generation(slot); got != generation {
			t.Errorf("slot %s: generation %d, want %d", slot, got, generation)
		}
	}
}

// TestGenerationsOutliveMachines removes machines in each way and looks at what
// is remembered: in memory, in the file at that moment, and after a restart.
func TestGenerationsOutliveMachines(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state")
	s := start(t, path)
	for _, step := range []struct {
		id   string
		in   machine.State
		slot string
		want int
	}{
		{"a", machine.Speculative, "a", 1}, // it may be offered again
		{"a", machine.Failed, "a", 2},
		{"a-r2", machine.Speculative, "a", 2},
		{"a-r2", machine.Deleting, "a", 2},
		{"a-r2", machine.Failed, "a", 3},
		{"a", machine.Failed, "a", 3}, // one that was adopted: nothing goes back
		{"b-r4", machine.Speculative, "b", 4},
		{"b-r3", machine.Failed, "b", 4},
	} {
		remove(t, s, step.id, step.in)
		wantGenerations(t, s, map[string]int{step.slot: step.want})
		wantGenerations(t, start(t, copyOf(t, s)), map[string]int{step.slot: step.want})
	}
	want := map[string]int{"a": 3, "b": 4, "c": 1, "a-r2": 1}

	backup := filepath.Join(t.TempDir(), "backup")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	c, err := Backup(path, backup)
	if err != nil {
		t.Fatal(err)
	}
	if len(c.Generations) != 2 || c.Generations["a"] != 3 || c.Generations["b"] != 4 {
		t.Errorf("inspected: %v", c.Generations)
	}
	restored := filepath.Join(t.TempDir(), "restored")
	if _, err := Restore(backup, restored, false, time.Now()); err != nil {
		t.Fatal(err)
	}
	for _, p := range []string{path, backup, restored} {
		wantGenerations(t, start(t, p), want)
	}
}

// copyOf returns the file as a process that is killed now would leave it.
func copyOf(t *testing.T, s *Store) string {
	t.Helper()
	from, err := s.Copy()
	if err != nil {
		t.Fatal(err)
	}
	defer from.Close()
	path := filepath.Join(t.TempDir(), "copy")
	data := new(bytes.Buffer)
	if _, err := data.ReadFrom(from); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, data.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestGenerationsOfOneCommit removes machines of one slot together.
func TestGenerationsOfOneCommit(t *testing.T) {
	eachStore(t, func(t *testing.T, s *Store) {
		t.Helper()
		ids := []string{"a-r3", "a", "a-r2", "b"}
		for _, id := range ids {
			must(t, s, id, to(machine.Failed))
		}
		_, err := s.DoMany(t.Context(), ids, func(cur []machine.Record) ([]machine.Next, error) {
			next := make([]machine.Next, len(cur))
			for i := range cur {
				next[i] = machine.Next{Record: cur[i], Change: machine.Gone}
			}
			return next, nil
		})
		if err != nil {
			t.Fatal(err)
		}
		wantGenerations(t, s, map[string]int{"a": 4, "b": 2})
	})
}

func TestFailedWriteRemembersNothing(t *testing.T) {
	s, next := startFailing(t, filepath.Join(t.TempDir(), "state"))
	must(t, s, "a", to(machine.Failed))
	next <- classify(&fs.PathError{Op: "write", Err: syscall.ENOSPC})
	_, err := s.Do(t.Context(), "a", gone)
	wantUnavailable(t, err, "no space left")
	wantGenerations(t, s, map[string]int{"a": 1})
	must(t, s, "a", gone)
	wantGenerations(t, s, map[string]int{"a": 2})
}

// TestGenerationsAreBounded: the slots that changed longest ago are forgotten,
// in memory and on disk alike, and the log says so.
func TestGenerationsAreBounded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state")
	var log strings.Builder
	s, err := Open(Options{Path: path, Log: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	s.generations.limit = 3 // the committer reads it only for a request, and none came yet
	for i := range 3 {
		remove(t, s, fmt.Sprint("slot-", i), machine.Failed)
	}
	remove(t, s, "slot-0-r2", machine.Failed) // is the newest now
	for i := 3; i < 5; i++ {
		remove(t, s, fmt.Sprint("slot-", i), machine.Failed)
	}
	want := map[string]int{"slot-0": 3, "slot-1": 1, "slot-2": 1, "slot-3": 2, "slot-4": 2}
	wantGenerations(t, s, want)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	for _, slot := range []string{"slot-1", "slot-2"} {
		if !strings.Contains(log.String(), "first="+slot) {
			t.Errorf("the log does not name %s:\n%s", slot, log.String())
		}
	}

	s = start(t, path)
	wantGenerations(t, s, want)
	s.generations.limit = 3
	remove(t, s, "slot-5", machine.Failed) // the order of age survives a restart
	wantGenerations(t, s, map[string]int{"slot-0": 1, "slot-3": 2, "slot-5": 2})
}

// TestFirstReleaseHasNoGenerations opens a file without their bucket.
func TestFirstReleaseHasNoGenerations(t *testing.T) {
	path := fixture(t, "v1.state")
	s := start(t, path)
	wantGenerations(t, s, map[string]int{"bare": 1})
	remove(t, s, "bare", machine.Failed)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	wantGenerations(t, start(t, path), map[string]int{"bare": 2})
}

func TestDamagedGenerationIsRefused(t *testing.T) {
	in := func(change func(*bbolt.Bucket) error) func(*bbolt.Tx) error {
		return func(tx *bbolt.Tx) error { return change(tx.Bucket([]byte(generationsBucket))) }
	}
	for name, change := range map[string]func(*bbolt.Tx) error{
		"a flipped bit": in(func(b *bbolt.Bucket) error {
			v := bytes.Clone(b.Get([]byte("a")))
			v[len(v)-1] ^= 1
			return b.Put([]byte("a"), v)
		}),
		"another slot's": in(func(b *bbolt.Bucket) error { return b.Put([]byte("other"), b.Get([]byte("a"))) }),
		"no value":       in(func(b *bbolt.Bucket) error { return b.Put([]byte("a"), nil) }),
		"nothing to remember": in(func(b *bbolt.Bucket) error {
			return b.Put([]byte("a"), sign(generationsBucket, "a", make([]byte, sumBytes)))
		}),
		"one is lost":  in(func(b *bbolt.Bucket) error { return b.Delete([]byte("a")) }),
		"all are lost": func(tx *bbolt.Tx) error { return tx.DeleteBucket([]byte(generationsBucket)) },
		"nobody counted them": func(tx *bbolt.Tx) error {
			return tx.Bucket([]byte(metaBucket)).Delete([]byte(generationsKey))
		},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "state")
			s := start(t, path)
			remove(t, s, "a", machine.Failed)
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			edit(t, path, change)
			if _, err := Open(Options{Path: path}); err == nil || !strings.Contains(err.Error(), recovery) || !strings.Contains(err.Error(), "generation") {
				t.Errorf("got %v", err)
			}
		})
	}
}
