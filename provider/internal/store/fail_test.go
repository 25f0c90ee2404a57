package store

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"bigfleet-providers/provider/internal/machine"
)

// failing is a disk whose next writes fail.
type failing struct {
	persister
	next  chan error
	tight atomic.Bool // there is no room
}

func (f *failing) room(bytes int) error {
	if f.tight.Load() {
		return fmt.Errorf("%w: %w", errFull, syscall.EDQUOT)
	}
	return f.persister.room(bytes)
}

func (f *failing) write(b *batch) error {
	select {
	case err := <-f.next:
		return err
	default:
		return f.persister.write(b)
	}
}

// startFailing opens a store on a file whose writes fail as told.
func startFailing(t *testing.T, path string) (*Store, chan error) {
	t.Helper()
	s := start(t, path)
	next := make(chan error, 1)
	// The committer reads disk only for a request, and none came yet.
	s.disk = &failing{persister: s.disk, next: next}
	return s, next
}

func wantUnavailable(t *testing.T, err error, because string) {
	t.Helper()
	var refused *machine.Error
	if !errors.As(err, &refused) || refused.Code != machine.Unavailable || !strings.Contains(refused.Text, because) {
		t.Errorf("got error %v, want Unavailable because of %q", err, because)
	}
}

func TestFullDiskRefusesAndRecovers(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state")
	s, next := startFailing(t, path)
	must(t, s, "a", to(machine.Idle))
	before := s.List(Filter{})

	next <- classify(fmt.Errorf("x: %w", &fs.PathError{Op: "write", Path: path, Err: syscall.ENOSPC}))
	_, err := s.Do(t.Context(), "a", to(machine.Configuring))
	wantUnavailable(t, err, "no space left")
	next <- classify(&fs.PathError{Op: "write", Path: path, Err: syscall.EDQUOT})
	_, err = s.Do(t.Context(), "b", mark("s", 1, 1))
	wantUnavailable(t, err, "no space left")
	after := s.List(Filter{Since: before.Revision})
	if len(after.Views) != 0 || !bytes.Equal(after.Revision, before.Revision) || s.Stats().Unknown != 0 || s.Err() != nil {
		t.Errorf("a failed write changed something: %q, %+v, %v", after.Views, s.Stats(), s.Err())
	}

	if rec := must(t, s, "a", to(machine.Configuring)); rec.Revision != 2 {
		t.Errorf("revision %d after a failed write, want 2", rec.Revision)
	}
}

// TestLackOfSpaceIsTold: a store that cannot write says so until it can, although
// no call comes in between, and leaves nothing beside the file.
func TestLackOfSpaceIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "state")
		s, next := startFailing(t, path)
		must(t, s, "a", to(machine.Idle))
		if err := s.Full(); err != nil {
			t.Fatalf("a store that writes is full: %v", err)
		}
		next <- classify(&fs.PathError{Op: "write", Path: path, Err: syscall.ENOSPC})
		_, err := s.Do(t.Context(), "a", to(machine.Configuring))
		wantUnavailable(t, err, "no space left")
		s.disk.(*failing).tight.Store(true)
		for _, want := range []error{syscall.ENOSPC, syscall.EDQUOT, syscall.EDQUOT} {
			if err := s.Full(); !errors.Is(err, want) {
				t.Errorf("Full = %v, want %v", err, want)
			}
			time.Sleep(roomPause + time.Millisecond)
			synctest.Wait()
		}
		s.disk.(*failing).tight.Store(false)
		time.Sleep(roomPause)
		synctest.Wait()
		if err := s.Full(); err != nil {
			t.Errorf("there is room again, and Full = %v", err)
		}
		if left, err := filepath.Glob(path + ".*"); err != nil || len(left) > 0 {
			t.Errorf("left beside the file: %q, %v", left, err)
		}
		must(t, s, "a", to(machine.Configuring))
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	})
}

// TestRoom: what is missing is found on the real file system, by its space and by
// the limit on the size of files.
func TestRoom(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=1m"); err != nil {
		t.Skipf("no small file system: mount: %v", err)
	}
	s, err := Open(Options{Path: filepath.Join(dir, "state"), View: view})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.disk.room(leastRoom); err != nil {
		t.Errorf("an empty file system has no room: %v", err)
	}
	if err := s.disk.room(2 << 20); !errors.Is(err, errFull) || !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("2 MiB on a file system of one: %v", err)
	}
	if err := errors.Join(s.Close(), syscall.Unmount(dir, 0)); err != nil {
		t.Error(err)
	}
}

func TestFailedSyncBreaksTheStore(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state")
	s, next := startFailing(t, path)
	must(t, s, "a", to(machine.Idle))
	// A number that means a full disk when a page is written means nothing when
	// a sync failed.
	next <- classify(syscall.ENOSPC)
	_, err := s.Do(t.Context(), "a", to(machine.Configuring))
	wantUnavailable(t, err, "restart")
	select {
	case <-s.Done():
	default:
		t.Fatal("a store with a failed sync is not done")
	}
	_, err = s.Do(t.Context(), "a", to(machine.Configuring))
	wantUnavailable(t, err, "restart")
	if s.Err() == nil {
		t.Error("Err is nil")
	}
	wantPage(t, s.List(Filter{}), "a IDLE ")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	wantPage(t, start(t, path).List(Filter{}), "a IDLE ")
}

// TestFileThatIsNotThereAnyMore takes the file away under the store: what is
// written then is lost, and must not be acknowledged.
func TestFileThatIsNotThereAnyMore(t *testing.T) {
	for name, take := range map[string]func(path string) error{
		"removed": os.Remove,
		"moved":   func(path string) error { return os.Rename(path, path+".away") },
		"replaced": func(path string) error {
			content, err := os.ReadFile(path)
			return errors.Join(err, os.WriteFile(path+".copy", content, 0o600), os.Rename(path+".copy", path))
		},
		"with its folder": func(path string) error { return os.RemoveAll(filepath.Dir(path)) },
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "folder", "state")
			if err := os.Mkdir(filepath.Dir(path), 0o700); err != nil {
				t.Fatal(err)
			}
			s := start(t, path)
			must(t, s, "a", to(machine.Idle))
			if err := take(path); err != nil {
				t.Fatal(err)
			}
			_, err := s.Do(t.Context(), "a", to(machine.Configuring))
			wantUnavailable(t, err, "removed or replaced")
			select {
			case <-s.Done():
			default:
				t.Error("the store goes on")
			}
			wantPage(t, s.List(Filter{}), "a IDLE ")
		})
	}
}

// TestFullFileSystem fills a real, small file system below the store.
func TestFullFileSystem(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=1m"); err != nil {
		t.Skipf("no small file system: mount: %v", err)
	}
	path := filepath.Join(dir, "state")
	s, err := Open(Options{Path: path, View: view})
	if err != nil {
		t.Fatal(err)
	}
	// The store must be closed before the unmount, and t.Cleanup runs last in
	// first out, after TempDir's own.
	defer func() {
		if err := errors.Join(s.Close(), syscall.Unmount(dir, 0)); err != nil {
			t.Error(err)
		}
	}()
	big := func(size int) machine.Mutation {
		return func(cur machine.Record) (machine.Record, machine.Change, error) {
			next := cur.Clone()
			next.State = machine.Idle
			next.Metadata = map[string]string{"x": strings.Repeat("x", size)}
			return next, machine.Visible, nil
		}
	}
	acked := 0
	for i := 0; err == nil; i++ {
		if _, err = s.Do(t.Context(), fmt.Sprint(i), big(30_000)); err == nil {
			acked++
		}
		if i > 100 {
			t.Fatal("3 MB went into 1 MB")
		}
	}
	wantUnavailable(t, err, "no space left")
	if s.Err() != nil || s.Size() != acked || acked == 0 {
		t.Fatalf("%d acknowledged, %d there, broken: %v", acked, s.Size(), s.Err())
	}
	// Space comes back when machines go, and the store goes on as it was.
	for i := range acked {
		if _, err := s.Do(t.Context(), fmt.Sprint(i), gone); err != nil && i > 3 {
			t.Fatalf("remove %d: %v", i, err)
		}
	}
	must(t, s, "after", big(10))
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	want := s.Size()
	s, err = Open(Options{Path: path, View: view})
	if err != nil {
		t.Fatal(err)
	}
	if s.Size() != want {
		t.Errorf("%d machines after a restart, want %d", s.Size(), want)
	}
}

// TestUnwritableFileSaysWhatToDo: what the system says alone helps nobody.
func TestUnwritableFileSaysWhatToDo(t *testing.T) {
	for sys, want := range map[error]string{
		syscall.EROFS: "file system writable", syscall.EACCES: "writable for the user", syscall.ENOSPC: "make room", syscall.EDQUOT: "make room",
	} {
		err := remedy(fmt.Errorf("cannot be made: %w", sys))
		if !errors.Is(err, sys) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v", sys, err)
		}
	}
	other := errors.New("locked")
	if err := remedy(other); !errors.Is(err, other) || err.Error() != other.Error() {
		t.Errorf("another error: %v", err)
	}
}
