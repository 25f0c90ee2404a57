package store

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.etcd.io/bbolt"

	"bigfleet-providers/provider/internal/machine"
)

// sample writes a state file with branch pages, overflow pages, a free list and
// an inline bucket, and returns its bytes and records.
func sample(t *testing.T) ([]byte, []machine.Record) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "state")
	s, err := Open(Options{Path: path, View: view})
	if err != nil {
		t.Fatal(err)
	}
	inParallel(t, 160, func(i int) error {
		_, err := s.Do(t.Context(), fmt.Sprintf("machine-%03d", i), func(cur machine.Record) (machine.Record, machine.Change, error) {
			next := cur.Clone()
			next.State, next.Cluster = machine.Idle, "cluster"
			size := 100
			if i%50 == 0 {
				size = 9000
			}
			next.Metadata = map[string]string{"key": strings.Repeat("x", size)}
			return next, machine.Visible, nil
		})
		return err
	})
	for i := range 20 {
		must(t, s, fmt.Sprintf("machine-%03d", i*7), gone)
	}
	must(t, s, "ghost", mark("s", 1, 1))
	for i := range 5 {
		remove(t, s, fmt.Sprint("failed-", i), machine.Failed)
	}
	recs := records(s)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data, recs
}

func records(s *Store) []machine.Record {
	var out []machine.Record
	s.Records(func(r machine.Record) bool { out = append(out, r); return true })
	return out
}

// checkDamaged opens a file of the given bytes: all must be there, and go on
// working, or the refusal must be one line that names the file and the way out.
func checkDamaged(t *testing.T, what string, data []byte, want []machine.Record) (refused bool) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "state")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Error(err)
	}
	s, err := Open(Options{Path: path, View: view})
	if err != nil {
		if msg := err.Error(); strings.Contains(msg, "\n") || !strings.Contains(msg, path) ||
			!strings.Contains(msg, recovery) && !strings.Contains(msg, "newer") {
			t.Errorf("%s: error %q", what, msg)
		}
		if _, err := os.Stat(path); err != nil {
			t.Errorf("%s: the file was touched: %v", what, err)
		}
		return true
	}
	if d := cmp.Diff(want, records(s)); d != "" {
		t.Errorf("%s: opened with other records (-want +got):\n%s", what, d)
	}
	for i := range 5 {
		if got := s.Generation(fmt.Sprint("failed-", i)); got != 2 {
			t.Errorf("%s: opened with generation %d of slot failed-%d", what, got, i)
		}
	}
	if _, err := s.Do(t.Context(), "another", to(machine.Speculative)); err != nil {
		t.Errorf("%s: opened, then: %v", what, err)
	}
	if err := s.Close(); err != nil {
		t.Errorf("%s: opened, then: %v", what, err)
	}
	return false
}

func TestTruncatedFileIsRefused(t *testing.T) {
	data, recs := sample(t)
	if checkDamaged(t, "nothing", data, recs) {
		t.Fatal("the intact file was refused")
	}
	for _, n := range []int{0, 1, 100, 4095, 4096, 4097, 8192, len(data) / 2} {
		if !checkDamaged(t, fmt.Sprintf("cut to %d", n), data[:n], recs) {
			t.Errorf("cut to %d bytes: opened", n)
		}
	}
}

func TestFlippedBytesAreRefusedOrHarmless(t *testing.T) {
	data, recs := sample(t)
	const page = 4096
	type flip struct {
		at   int
		bits byte
	}
	var flips []flip
	random := rand.New(rand.NewPCG(1, 2))
	// Pages behind the high-water mark of both meta pages were never written.
	pages := max(native.Uint64(data[pageHeader+40:]), native.Uint64(data[page+pageHeader+40:]))
	for p := range int(pages) {
		// The header and the first entries, where the structure is; then anywhere.
		for _, at := range []int{0, 8, 10, 12, 16, 20, 24, 28, 32, 40, 56, 64, 72} {
			flips = append(flips, flip{p*page + at, 1 << random.IntN(8)})
		}
		for range 3 {
			flips = append(flips, flip{p*page + random.IntN(page), byte(1 + random.IntN(255))})
		}
	}
	var refused atomic.Int64
	inParallel(t, len(flips), func(i int) error {
		f := flips[i]
		bad := bytes.Clone(data)
		bad[f.at] ^= f.bits
		if checkDamaged(t, fmt.Sprintf("byte %d of page %d xor %#x", f.at%page, f.at/page, f.bits), bad, recs) {
			refused.Add(1)
		}
		return nil
	})
	t.Logf("%d of %d refused", refused.Load(), len(flips))
	if refused.Load() == 0 {
		t.Error("no damage was noticed")
	}
}

func TestMixedUpPagesAreRefusedOrHarmless(t *testing.T) {
	data, recs := sample(t)
	const page = 4096
	n := len(data) / page
	random := rand.New(rand.NewPCG(3, 4))
	for range 60 {
		from, to := random.IntN(n), random.IntN(n)
		bad := bytes.Clone(data)
		copy(bad[to*page:(to+1)*page], data[from*page:])
		checkDamaged(t, fmt.Sprintf("page %d copied over page %d", from, to), bad, recs)
		clear(bad[to*page : (to+1)*page])
		checkDamaged(t, fmt.Sprintf("page %d zeroed", to), bad, recs)
	}
}

func TestNewerSchemaIsRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state")
	if err := start(t, path).Close(); err != nil {
		t.Fatal(err)
	}
	edit(t, path, func(tx *bbolt.Tx) error { return putVersion(tx.Bucket([]byte(metaBucket)), 9) })
	_, err := Open(Options{Path: path})
	if err == nil || !strings.Contains(err.Error(), "version 9") || !strings.Contains(err.Error(), "version 1;") {
		t.Errorf("got %v", err)
	}
}

// edit changes a state file behind the store's back.
func edit(t *testing.T, path string, change func(*bbolt.Tx) error) {
	t.Helper()
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{Timeout: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(db.Update(change), db.Close()); err != nil {
		t.Fatal(err)
	}
}

func TestForeignFilesAreRefused(t *testing.T) {
	dir := t.TempDir()
	other := filepath.Join(dir, "other")
	db, err := bbolt.Open(other, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	err = db.Update(func(tx *bbolt.Tx) error { _, err := tx.CreateBucket([]byte("x")); return err })
	if err := errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
	text := filepath.Join(dir, "text")
	if err := os.WriteFile(text, bytes.Repeat([]byte("not a database\n"), 1000), 0o600); err != nil {
		t.Fatal(err)
	}
	short, zeros := filepath.Join(dir, "short"), filepath.Join(dir, "zeros")
	if err := errors.Join(os.WriteFile(short, []byte("# Read me\n"), 0o600), os.WriteFile(zeros, make([]byte, 8192), 0o600)); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		other: "another program's database",
		text:  "is no state file: name another --state", short: "is no state file: name another --state",
		zeros: "is damaged", // which a disk may have made of one
		dir:   "is a directory; name a file in it", filepath.Join(dir, "missing", "state"): ": no such file or directory; create it",
	} {
		if _, err := Open(Options{Path: path}); err == nil || !strings.Contains(err.Error(), path+": ") || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: got %v, want %q", path, err, want)
		}
	}
}

func TestSecondOpenerIsTold(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state")
	s := start(t, path)
	must(t, s, "a", to(machine.Idle))
	begin := time.Now()
	_, err := Open(Options{Path: path})
	if err == nil || !strings.Contains(err.Error(), "another process") || !strings.Contains(err.Error(), path) {
		t.Errorf("got %v", err)
	}
	if d := time.Since(begin); d > 5*time.Second {
		t.Errorf("it took %s", d)
	}
	must(t, s, "b", to(machine.Idle))
}

func TestNewFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "state")
	s := start(t, path)
	instance := s.Instance()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 {
		t.Errorf("the folder holds %v, %v", entries, err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("got %v, %v", info.Mode(), err)
	}
	s = start(t, path)
	if s.Instance() != instance {
		t.Error("the second start did not find the first one's file")
	}
	if first, second := start(t, ""), start(t, ""); first.Instance() == second.Instance() {
		t.Error("two stores in memory have one instance id")
	}
}
