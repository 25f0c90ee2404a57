package store

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"bigfleet-providers/provider/internal/machine"
)

// TestCopyBesideWrites takes copies while 16 writers change the file: each copy
// must be whole, and hold every change that was acknowledged before it began.
func TestCopyBesideWrites(t *testing.T) {
	dir := t.TempDir()
	s := start(t, filepath.Join(dir, "state"))
	stop := make(chan struct{})
	var writers sync.WaitGroup
	for w := range 16 {
		writers.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				_, err := s.Do(t.Context(), fmt.Sprintf("m-%d-%d", w, i%200), func(cur machine.Record) (machine.Record, machine.Change, error) {
					next := cur.Clone()
					next.State = machine.Idle
					next.Metadata = map[string]string{"k": strings.Repeat("v", i%3000)}
					return next, machine.Visible, nil
				})
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	for i := range 8 {
		for s.Stats().Revision < uint64(100*i) {
			time.Sleep(time.Millisecond)
		}
		least := s.Stats().Revision
		from, err := s.Copy()
		if err != nil {
			t.Fatal(err)
		}
		dest := filepath.Join(dir, fmt.Sprint("copy", i))
		if err := errors.Join(WriteBackup(dest, func(w io.Writer) error { _, err := io.Copy(w, from); return err }), from.Close()); err != nil {
			t.Fatal(err)
		}
		if c, err := Inspect(dest); err != nil || c.Revision < least || c.Instance != s.Instance() {
			t.Errorf("copy %d: %+v, %v; want revision %d or later", i, c, err, least)
		}
	}
	close(stop)
	writers.Wait()
	if files, _ := filepath.Glob(filepath.Join(dir, "state*")); len(files) != 1 {
		t.Errorf("left behind: %v", files)
	}
	if _, err := start(t, "").Copy(); !errors.Is(err, ErrNoFile) {
		t.Errorf("copy of a store in memory: %v", err)
	}
}

func TestCopyLeavesRoom(t *testing.T) {
	dir := t.TempDir()
	if err := roomFor(1, dir); err != nil {
		t.Error(err)
	}
	if err := roomFor(1<<60, dir); err == nil || !strings.Contains(err.Error(), dir) {
		t.Errorf("got %v", err)
	}
}

func TestBackup(t *testing.T) {
	dir := t.TempDir()
	path, dest := filepath.Join(dir, "state"), filepath.Join(dir, "copy")
	s, err := Open(Options{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	must(t, s, "a", to(machine.Idle))
	must(t, s, "ghost", mark("s", 1, 2))

	_, err = Backup(path, dest)
	if !errors.Is(err, ErrLocked) || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), fmt.Sprintf("pid %d (", os.Getpid())) {
		t.Errorf("of a file in use: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	c, err := Backup(path, dest)
	if err != nil {
		t.Fatal(err)
	}
	if c.Instance != s.Instance() || c.Revision != 1 || len(c.Machines) != 1 || !cmp.Equal(c.Unknown["ghost"], machine.Marks{}.With("s", machine.Mark{Epoch: 1, Sequence: 2})) {
		t.Errorf("got %+v", c)
	}
	if info, err := os.Stat(dest); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("got %v, %v", info, err)
	}
	if _, err := Backup(path, dest); err == nil || !strings.Contains(err.Error(), "exists already") {
		t.Errorf("over another: %v", err)
	}
	if _, err := Backup(filepath.Join(dir, "missing"), filepath.Join(dir, "x")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("of nothing: %v", err)
	}
	// A stream that breaks off must leave nothing under the name.
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	err = WriteBackup(filepath.Join(dir, "cut"), func(w io.Writer) error {
		_, err := w.Write(whole[:len(whole)/2])
		return err
	})
	if err == nil {
		t.Error("half a copy was taken for a whole one")
	}
	if files, _ := filepath.Glob(filepath.Join(dir, "cut*")); len(files) != 0 {
		t.Errorf("left behind: %v", files)
	}
}

func TestFlockHolder(t *testing.T) {
	const locks = "1: POSIX  ADVISORY  WRITE 11 08:01:77 0 EOF\n" +
		"2: FLOCK  ADVISORY  WRITE 12 08:01:78 0 EOF\n" +
		"2: -> FLOCK  ADVISORY  WRITE 14 08:01:77 0 EOF\n" +
		"3: FLOCK  ADVISORY  WRITE 13 08:01:77 0 EOF\n"
	if got := flockHolder(locks, 8<<8|1, 77); got != 13 {
		t.Errorf("got %d", got)
	}
	if got := flockHolder(locks, 8<<8|1, 79); got != 0 {
		t.Errorf("of a file that nobody locked: %d", got)
	}
}

func TestRestore(t *testing.T) {
	now := time.Date(2026, 5, 6, 7, 8, 9, 0, time.UTC)
	src := fixture(t, "v1.state")
	dest := filepath.Join(t.TempDir(), "state")

	r, err := Restore(src, dest, false, now)
	if err != nil {
		t.Fatal(err)
	}
	if r.Replaced != "" || r.Rewound != 1 {
		t.Errorf("got %+v", r)
	}
	origin, err := Inspect(src)
	if err != nil {
		t.Fatal(err)
	}
	s := start(t, dest)
	if s.Instance() == origin.Instance || s.Instance() != r.Instance {
		t.Error("the instance id is the copy's")
	}
	if !s.Restored().Equal(now) {
		t.Errorf("restored %v", s.Restored())
	}
	// A cursor of the lineage before is foreign: it gets everything.
	before := start(t, src)
	if got := len(s.List(Filter{Since: before.List(Filter{}).Revision}).Views); got != 2 {
		t.Errorf("a cursor from before the restore gets %d machines of 2", got)
	}
	m, _, _ := s.Get("m")
	if m.State != machine.Speculative || m.Op != nil || m.Host != "" || m.Cluster != "" || m.Metadata != nil {
		t.Errorf("a machine with an operation under way: %+v", m)
	}
	if d := cmp.Diff(v1Records()[0].Marks, m.Marks); d != "" {
		t.Errorf("its fencing marks (-want +got):\n%s", d)
	}
}

func TestRestoreOverAFile(t *testing.T) {
	now := time.Date(2026, 5, 6, 7, 8, 9, 0, time.UTC)
	src := fixture(t, "v1.state")
	dir := t.TempDir()
	dest := filepath.Join(dir, "state")
	s, err := Open(Options{Path: dest})
	if err != nil {
		t.Fatal(err)
	}
	must(t, s, "newer", to(machine.Idle))
	if _, err := Restore(src, dest, true, now); !errors.Is(err, ErrLocked) {
		t.Errorf("under a running provider: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	old, err := os.ReadFile(dest)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Restore(src, dest, false, now); err == nil || !strings.Contains(err.Error(), "--force") {
		t.Errorf("without force: %v", err)
	}
	if _, err := Restore(src, src, true, now); err == nil || !strings.Contains(err.Error(), "itself") {
		t.Errorf("over itself: %v", err)
	}
	damaged := bytes.Clone(old)
	damaged[len(damaged)/3] ^= 1
	bad := filepath.Join(dir, "bad")
	if err := os.WriteFile(bad, old[:len(old)/2], 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Restore(bad, dest, true, now); err == nil || !strings.Contains(err.Error(), bad) {
		t.Errorf("of a damaged copy: %v", err)
	}
	if got, err := os.ReadFile(dest); err != nil || !bytes.Equal(got, old) {
		t.Fatalf("a refused restore changed the file: %v", err)
	}

	r, err := Restore(src, dest, true, now)
	if err != nil {
		t.Fatal(err)
	}
	if want := dest + ".replaced-20260506T070809Z"; r.Replaced != want {
		t.Errorf("kept as %q, want %q", r.Replaced, want)
	}
	if got, err := os.ReadFile(r.Replaced); err != nil || !bytes.Equal(got, old) {
		t.Errorf("the file before is not as it was: %v", err)
	}
	if got := start(t, dest).Size(); got != 2 {
		t.Errorf("%d machines, want 2", got)
	}
	if files, _ := filepath.Glob(dest + "*"); len(files) != 2 {
		t.Errorf("left behind: %v", files)
	}
}

// TestRestoreTwiceInASecond: the second keeps what the first has put there.
func TestRestoreTwiceInASecond(t *testing.T) {
	dir := t.TempDir()
	src, dest := filepath.Join(dir, "copy"), filepath.Join(dir, "state")
	if _, err := Backup(fixture(t, "v1.state"), src); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(dest, []byte("the first"), 0o600); err != nil {
		t.Fatal(err)
	}
	now := time.Date(2026, 5, 6, 7, 8, 9, 0, time.UTC)
	want := dest + ".replaced-20260506T070809Z"
	for _, want := range []string{want, want + "-2", want + "-3"} {
		old, err := os.ReadFile(dest)
		if err != nil {
			t.Fatal(err)
		}
		r, err := Restore(src, dest, true, now)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(r.Replaced); r.Replaced != want || err != nil || !bytes.Equal(got, old) {
			t.Errorf("kept as %q, want %q; as it was: %t, %v", r.Replaced, want, bytes.Equal(got, old), err)
		}
	}
}

// TestReplacedWhileWaiting: who waits for the lock of a file that a restore then
// replaces must not run on the replaced one.
func TestReplacedWhileWaiting(t *testing.T) {
	path := fixture(t, "v1.state")
	f, err := openExisting(path, os.O_RDWR)
	if err != nil {
		t.Fatal(err)
	}
	waiter := make(chan error, 1)
	go func() {
		s, err := Open(Options{Path: path})
		if err == nil {
			err = errors.Join(errors.New("it opened"), s.Close())
		}
		waiter <- err
	}()
	for n := 0; n < 2; n = openFiles(t, path) { // ours, then the waiter's too
		time.Sleep(time.Millisecond)
	}
	if err := errors.Join(os.Rename(path, path+".old"), os.WriteFile(path, nil, 0o600), f.close()); err != nil {
		t.Fatal(err)
	}
	if err := <-waiter; err == nil || !strings.Contains(err.Error(), "was replaced") {
		t.Errorf("got %v", err)
	}
}

// openFiles counts how often this process has a file open.
func openFiles(t *testing.T, path string) int {
	t.Helper()
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, fd := range fds {
		if to, err := os.Readlink("/proc/self/fd/" + fd.Name()); err == nil && to == path {
			n++
		}
	}
	return n
}
