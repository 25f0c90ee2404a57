package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.etcd.io/bbolt"
	"go.uber.org/goleak"

	"bigfleet-providers/provider/internal/machine"
)

func TestMain(m *testing.M) {
	runChild()
	goleak.VerifyTestMain(m)
}

// view shows the id, the state and the revision-independent part of a record.
func view(r *machine.Record) []byte { return fmt.Appendf(nil, "%s %s %s", r.ID, r.State, r.Cluster) }

func start(t *testing.T, path string) *Store {
	t.Helper()
	s, err := Open(Options{Path: path, View: view})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// eachStore runs a test in memory and on a file.
func eachStore(t *testing.T, f func(t *testing.T, s *Store)) {
	t.Helper()
	t.Run("memory", func(t *testing.T) { f(t, start(t, "")) })
	t.Run("file", func(t *testing.T) { f(t, start(t, filepath.Join(t.TempDir(), "state"))) })
}

// to returns a mutation that moves a machine to a state, inserting it if need be.
func to(state machine.State) machine.Mutation {
	return func(cur machine.Record) (machine.Record, machine.Change, error) {
		next := cur.Clone()
		next.State = state
		return next, machine.Visible, nil
	}
}

func mark(shard string, epoch, sequence int64) machine.Mutation {
	return func(cur machine.Record) (machine.Record, machine.Change, error) {
		next := cur.Clone()
		next.Marks = next.Marks.With(shard, machine.Mark{Epoch: epoch, Sequence: sequence})
		return next, machine.Private, nil
	}
}

func markOf(r machine.Record, shard string) machine.Mark {
	m, _ := r.Marks.Of(shard)
	return m
}

func gone(machine.Record) (machine.Record, machine.Change, error) {
	return machine.Record{}, machine.Gone, nil
}

func must(t *testing.T, s *Store, id string, m machine.Mutation) machine.Record {
	t.Helper()
	rec, err := s.Do(t.Context(), id, m)
	if err != nil {
		t.Fatalf("Do(%q): %v", id, err)
	}
	return rec
}

func texts(p Page) []string {
	out := []string{}
	for _, v := range p.Views {
		out = append(out, string(v))
	}
	return out
}

func wantPage(t *testing.T, p Page, want ...string) {
	t.Helper()
	if d := cmp.Diff(append([]string{}, want...), texts(p)); d != "" {
		t.Errorf("page (-want +got):\n%s", d)
	}
}

func TestListOrderDeltaAndPaging(t *testing.T) {
	eachStore(t, func(t *testing.T, s *Store) {
		t.Helper()
		for _, id := range []string{"a", "b", "c", "d"} {
			must(t, s, id, to(machine.Speculative))
		}
		full := s.List(Filter{})
		wantPage(t, full, "a SPECULATIVE ", "b SPECULATIVE ", "c SPECULATIVE ", "d SPECULATIVE ")

		empty := s.List(Filter{Since: full.Revision})
		wantPage(t, empty)
		if !bytes.Equal(empty.Revision, full.Revision) {
			t.Error("an empty delta moved the revision")
		}

		must(t, s, "b", to(machine.Creating))
		wantPage(t, s.List(Filter{Since: full.Revision}), "b CREATING ")
		wantPage(t, s.List(Filter{}), "a SPECULATIVE ", "c SPECULATIVE ", "d SPECULATIVE ", "b CREATING ")

		var page Page
		var walked []string
		for range 3 {
			page = s.List(Filter{Max: 1, States: []machine.State{machine.Speculative}, Since: page.Revision})
			walked = append(walked, texts(page)...)
		}
		slices.Sort(walked)
		if d := cmp.Diff([]string{"a SPECULATIVE ", "c SPECULATIVE ", "d SPECULATIVE "}, walked); d != "" {
			t.Errorf("three pages (-want +got):\n%s", d)
		}
		if want := s.List(Filter{}).Revision; !bytes.Equal(page.Revision, want) {
			t.Error("a page that was not cut does not end at the head")
		}
		wantPage(t, s.List(Filter{States: []machine.State{99, -1, machine.Unknown}}))

		must(t, s, "c", gone)
		wantPage(t, s.List(Filter{}), "a SPECULATIVE ", "d SPECULATIVE ", "b CREATING ")
		if _, _, ok := s.Get("c"); ok {
			t.Error("a removed machine is still there")
		}
	})
}

func TestPrivateChangeKeepsPlaceAndRevision(t *testing.T) {
	eachStore(t, func(t *testing.T, s *Store) {
		t.Helper()
		a := must(t, s, "a", to(machine.Idle))
		must(t, s, "b", to(machine.Idle))
		before := s.List(Filter{})
		got := must(t, s, "a", mark("s1", 1, 2))
		if got.Revision != a.Revision || markOf(got, "s1") != (machine.Mark{Epoch: 1, Sequence: 2}) {
			t.Errorf("got %+v", got)
		}
		if d := cmp.Diff(before, s.List(Filter{})); d != "" {
			t.Errorf("a private change moved the list:\n%s", d)
		}
		if rec, _, _ := s.Get("a"); markOf(rec, "s1").Sequence != 2 {
			t.Errorf("Get returned %+v", rec)
		}
	})
}

func TestForeignCursorsGiveTheFullList(t *testing.T) {
	s, other := start(t, ""), start(t, "")
	must(t, s, "a", to(machine.Idle))
	must(t, other, "a", to(machine.Idle))
	good := s.List(Filter{}).Revision
	wantPage(t, s.List(Filter{Since: good}))

	cursors := map[string][]byte{
		"garbage": []byte("garbage"),
		"foreign": other.List(Filter{}).Revision,
		"future":  s.cursor([]span{{1000, endless}}),
		"longer":  append(slices.Clone(good), 0),
		"shorter": good[:len(good)-1],
	}
	for i := range good {
		c := slices.Clone(good)
		c[i] ^= 0x40
		cursors[fmt.Sprintf("byte %d changed", i)] = c
	}
	for name, c := range cursors {
		t.Run(name, func(t *testing.T) { wantPage(t, s.List(Filter{Since: c}), "a IDLE ") })
	}
}

func TestMutationErrorIsReturnedAndItsChangeCommitted(t *testing.T) {
	eachStore(t, func(t *testing.T, s *Store) {
		t.Helper()
		must(t, s, "a", to(machine.Idle))
		refused := &machine.Error{Code: machine.Misplaced, Text: "no"}
		_, err := s.Do(t.Context(), "a", func(cur machine.Record) (machine.Record, machine.Change, error) {
			next, change, _ := mark("s", 1, 1)(cur)
			return next, change, refused
		})
		if !errors.Is(err, refused) {
			t.Errorf("got error %v", err)
		}
		if rec, _, _ := s.Get("a"); markOf(rec, "s").Epoch != 1 {
			t.Error("the mark is not there")
		}
	})
}

func TestMarksOfUnknownIDs(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state")
	s, err := Open(Options{Path: path, View: view})
	if err != nil {
		t.Fatal(err)
	}
	must(t, s, "ghost", mark("s", 3, 4))
	must(t, s, "born", mark("s", 5, 6))
	must(t, s, "dead", to(machine.Idle))
	must(t, s, "dead", mark("s", 7, 8))
	must(t, s, "dead", gone)
	must(t, s, "born", func(machine.Record) (machine.Record, machine.Change, error) {
		return machine.Record{State: machine.Speculative}, machine.Visible, nil
	})
	if got := s.Stats(); got.Unknown != 2 || got.Machines != 1 {
		t.Errorf("stats %+v", got)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}

	s = start(t, path)
	for id, want := range map[string]machine.Mark{"ghost": {Epoch: 3, Sequence: 4}, "born": {Epoch: 5, Sequence: 6}, "dead": {Epoch: 7, Sequence: 8}} {
		got := must(t, s, id, func(cur machine.Record) (machine.Record, machine.Change, error) {
			return cur, machine.Unchanged, nil
		})
		if got.ID != id || markOf(got, "s") != want {
			t.Errorf("%s: got %+v, want mark %v", id, got, want)
		}
	}
}

func TestUnknownIDsAreBounded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state")
	s, err := Open(Options{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	inParallel(t, maxUnknownIDs+500, func(i int) error {
		_, err := s.Do(t.Context(), fmt.Sprintf("ghost-%05d", i), mark("s", 1, 1))
		return err
	})
	must(t, s, "fresh", mark("s", 1, 1))
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = start(t, path)
	if got := s.Stats().Unknown; got != maxUnknownIDs {
		t.Errorf("%d unknown ids are kept, want %d", got, maxUnknownIDs)
	}
	if len(s.marks.get("fresh")) == 0 {
		t.Error("the newest was dropped")
	}

	// Many marks of few ids are bounded too.
	for i := range maxUnknownMarks/machine.MaxShards + 3 {
		must(t, s, fmt.Sprintf("wide-%d", i), func(cur machine.Record) (machine.Record, machine.Change, error) {
			next := cur.Clone()
			for j := range machine.MaxShards {
				next.Marks = next.Marks.With(fmt.Sprint(j), machine.Mark{Epoch: 1})
			}
			return next, machine.Private, nil
		})
	}
	if s.marks.total > maxUnknownMarks {
		t.Errorf("%d marks are kept, the limit is %d", s.marks.total, maxUnknownMarks)
	}
}

func TestInventoriedSurvivesARestart(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state")
	began := time.Now()
	for life, want := range []bool{false, false, true} {
		s := start(t, path)
		must(t, s, "a", to(machine.Idle))
		if s.Inventoried() != want {
			t.Errorf("life %d: inventoried is %v", life, s.Inventoried())
		}
		if at := s.InventoriedAt(); want != (!at.Before(began) && !at.After(time.Now())) {
			t.Errorf("life %d: inventoried at %v", life, at)
		}
		if life == 1 {
			if err := s.SetInventoried(t.Context()); err != nil || !s.Inventoried() {
				t.Errorf("SetInventoried: %v, and then %v", err, s.Inventoried())
			}
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if s := start(t, ""); s.Inventoried() || s.SetInventoried(t.Context()) != nil || !s.Inventoried() {
		t.Error("a store in memory does not remember it")
	}
}

// TestOwnership is kept over restarts and with plain copies, and dropped by a
// restore, which makes a state that owns what it finds.
func TestOwnership(t *testing.T) {
	dir := t.TempDir()
	path, backup := filepath.Join(dir, "state"), filepath.Join(dir, "backup")
	want := machine.Ownership{Number: 7, Holder: "abc", LostTo: "9-x"}
	s := start(t, path)
	if got := s.Ownership(); got != (machine.Ownership{}) {
		t.Errorf("of a new state: %+v", got)
	}
	for _, o := range []machine.Ownership{{Number: 6, Holder: "z"}, want} {
		if err := s.SetOwnership(t.Context(), o); err != nil || s.Ownership() != o {
			t.Errorf("SetOwnership(%+v): %v, and then %+v", o, err, s.Ownership())
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(backup, data, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, p := range []string{path, backup} {
		s := start(t, p)
		if got := s.Ownership(); got != want {
			t.Errorf("%s: %+v, want %+v", p, got, want)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := Restore(backup, path, true, time.Now()); err != nil {
		t.Fatal(err)
	}
	if got := start(t, path).Ownership(); got != (machine.Ownership{}) {
		t.Errorf("of a restored state: %+v", got)
	}
	if s := start(t, ""); s.SetOwnership(t.Context(), want) != nil || s.Ownership() != want {
		t.Errorf("of a store in memory: %+v", s.Ownership())
	}
}

// The first releases wrote no time down.
func TestInventoriedByAnOlderRelease(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state")
	s := start(t, path)
	must(t, s, "a", to(machine.Idle))
	if err := errors.Join(s.SetInventoried(t.Context()), s.Close()); err != nil {
		t.Fatal(err)
	}
	edit(t, path, func(tx *bbolt.Tx) error {
		return tx.Bucket([]byte(metaBucket)).Put([]byte(inventoriedKey), sign(metaBucket, inventoriedKey, make([]byte, sumBytes)))
	})
	if s := start(t, path); !s.Inventoried() || !s.InventoriedAt().IsZero() {
		t.Errorf("inventoried is %v, at %v; want true, at an unknown time", s.Inventoried(), s.InventoriedAt())
	}
}

func TestDoManyIsAtomic(t *testing.T) {
	eachStore(t, func(t *testing.T, s *Store) {
		t.Helper()
		must(t, s, "old", to(machine.Failed))
		succeed := func(state machine.State) func([]machine.Record) ([]machine.Next, error) {
			return func(cur []machine.Record) ([]machine.Next, error) {
				old, successor := cur[0].Clone(), cur[1].Clone()
				old.Succeeded = true
				successor.State = state
				return []machine.Next{{Record: old, Change: machine.Private}, {Record: successor, Change: machine.Visible}}, nil
			}
		}
		if _, err := s.DoMany(t.Context(), []string{"old", "new"}, succeed(machine.Unknown+42)); err == nil {
			t.Fatal("an impossible state was accepted")
		}
		if rec, _, _ := s.Get("old"); rec.Succeeded {
			t.Fatal("half of a pair was committed")
		}
		if _, err := s.DoMany(t.Context(), []string{"old", "old"}, succeed(machine.Speculative)); err == nil {
			t.Fatal("the same id twice was accepted")
		}
		recs, err := s.DoMany(t.Context(), []string{"old", "new"}, succeed(machine.Speculative))
		if err != nil || !recs[0].Succeeded || recs[1].ID != "new" || recs[1].Revision != 2 {
			t.Fatalf("got %+v, %v", recs, err)
		}
		wantPage(t, s.List(Filter{}), "old FAILED ", "new SPECULATIVE ")
	})
}

func TestMutationMustNotUnmakeAMachine(t *testing.T) {
	s := start(t, "")
	must(t, s, "a", to(machine.Idle))
	if _, err := s.Do(t.Context(), "a", to(machine.Unknown)); err == nil {
		t.Error("a machine in state UNKNOWN was accepted")
	}
	if _, err := s.Do(t.Context(), "", to(machine.Idle)); err == nil {
		t.Error("an empty id was accepted")
	}
	wantPage(t, s.List(Filter{}), "a IDLE ")
}

func TestRecordThatCannotBeEncodedRefusesOnlyItself(t *testing.T) {
	s := start(t, filepath.Join(t.TempDir(), "state"))
	inParallel(t, 64, func(i int) error {
		_, err := s.Do(t.Context(), fmt.Sprint(i), func(cur machine.Record) (machine.Record, machine.Change, error) {
			next := cur.Clone()
			next.State = machine.Idle
			if i%8 == 0 {
				next.Cluster = "\xff" // no UTF-8: the wire cannot bring it
			}
			return next, machine.Visible, nil
		})
		if refused := err != nil; refused != (i%8 == 0) {
			return fmt.Errorf("%d: got error %w", i, err)
		}
		return nil
	})
	if got := s.Stats(); got.Machines != 56 || got.Revision != 56 || s.Err() != nil {
		t.Errorf("stats %+v, %v", got, s.Err())
	}
}

func TestContextIsHonoured(t *testing.T) {
	s := start(t, "")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := s.Do(ctx, "a", to(machine.Idle))
	if !errors.Is(err, context.Canceled) || s.Size() != 0 {
		t.Errorf("got %v, %d machines", err, s.Size())
	}

	// The committer is held up by one mutation; another gives up in the queue
	// and must not be run.
	entered, release := make(chan struct{}), make(chan struct{})
	first := make(chan error)
	go func() {
		_, err := s.Do(t.Context(), "a", func(cur machine.Record) (machine.Record, machine.Change, error) {
			close(entered)
			<-release
			return to(machine.Idle)(cur)
		})
		first <- err
	}()
	<-entered
	ctx, cancel = context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if _, err := s.Do(ctx, "b", to(machine.Idle)); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
	close(release)
	if err := <-first; err != nil {
		t.Error(err)
	}
	must(t, s, "c", to(machine.Idle))
	if _, _, ok := s.Get("b"); ok {
		t.Error("an abandoned change was committed")
	}
}

func TestCloseRefusesLaterChanges(t *testing.T) {
	s, err := Open(Options{Path: filepath.Join(t.TempDir(), "state"), View: view})
	if err != nil {
		t.Fatal(err)
	}
	must(t, s, "a", to(machine.Idle))
	for range 2 {
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	var refused *machine.Error
	if _, err := s.Do(t.Context(), "a", to(machine.Idle)); !errors.As(err, &refused) || refused.Code != machine.Unavailable {
		t.Errorf("got %v", err)
	}
	wantPage(t, s.List(Filter{}), "a IDLE ")
}

func TestLaterRidesAndNeverStarves(t *testing.T) {
	s, err := Open(Options{Linger: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	later := make(chan error)
	go func() {
		_, err := s.DoLater(t.Context(), "later", to(machine.Idle))
		later <- err
	}()
	// With an endless linger only an urgent change can take it along.
	for {
		must(t, s, "urgent", to(machine.Idle))
		select {
		case err := <-later:
			if err != nil {
				t.Error(err)
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
			return
		case <-time.After(time.Millisecond):
		}
	}
}

func TestLaterAlone(t *testing.T) {
	s := start(t, "")
	if _, err := s.DoLater(t.Context(), "a", to(machine.Idle)); err != nil {
		t.Fatal(err)
	}
	wantPage(t, s.List(Filter{}), "a IDLE ")
}

// inParallel calls f for 0 to n-1 from 32 goroutines.
func inParallel(t *testing.T, n int, f func(i int) error) {
	t.Helper()
	next := make(chan int)
	errs := make(chan error)
	const workers = 32
	for range workers {
		go func() {
			var err error
			for i := range next {
				err = errors.Join(err, f(i))
			}
			errs <- err
		}()
	}
	for i := range n {
		next <- i
	}
	close(next)
	for range workers {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
}
