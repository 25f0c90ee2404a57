package store

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestLeftoversAreRemoved: what killed processes left beside the state file goes
// at the next start, and nothing else.
func TestLeftoversAreRemoved(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "state")
	if err := start(t, path).Close(); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(path, link); err != nil {
		t.Fatal(err)
	}
	put := func(names ...string) {
		t.Helper()
		for _, name := range names {
			if err := os.WriteFile(name, []byte("half a state"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	in := func(name string) string { return filepath.Join(dir, name) }
	put(in("state.new-1"), in("state.copy-4711"), in("state.v1.new-22"), link+".new-3") // of a killed one
	others := []string{"state.new-notes", "state.v1", "state2.new-1", "state.new-", "my.state.copy-1"}
	for _, name := range others {
		put(in(name))
	}
	// Killed between the two steps of making the state: it has two names.
	if err := os.Link(path, in("state.new-5")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(in("state.v1"), in("state.new-6")); err != nil {
		t.Fatal(err)
	}
	put(in("state.copy-7"))
	used, err := os.Open(in("state.copy-7"))
	if err != nil {
		t.Fatal(err)
	}
	if err := lock(used, false, 0); err != nil {
		t.Fatal(err)
	}

	s := start(t, link)
	left := func() []string {
		t.Helper()
		var names []string
		for _, d := range []string{dir, filepath.Dir(link)} {
			entries, err := os.ReadDir(d)
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range entries {
				names = append(names, e.Name())
			}
		}
		slices.Sort(names)
		return names
	}
	want := slices.Concat(others, []string{"state", "link", "state.new-6", "state.copy-7"})
	slices.Sort(want)
	if diff := cmp.Diff(want, left()); diff != "" {
		t.Errorf("after a start (-want +got):\n%s", diff)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}

	if err := used.Close(); err != nil {
		t.Fatal(err)
	}
	if err := start(t, path).Close(); err != nil {
		t.Fatal(err)
	}
	want = slices.DeleteFunc(want, func(name string) bool { return name == "state.copy-7" })
	if diff := cmp.Diff(want, left()); diff != "" {
		t.Errorf("once nobody uses it (-want +got):\n%s", diff)
	}
}

// TestCopiesAreTheStates: a copy that a kill leaves half made has a name by which
// the next start knows it.
func TestCopiesAreTheStates(t *testing.T) {
	dir := t.TempDir()
	s := start(t, filepath.Join(dir, "state"))
	place, pattern := s.disk.copyPlace()
	to, err := os.CreateTemp(place, pattern)
	if err != nil {
		t.Fatal(err)
	}
	if err := to.Close(); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := start(t, filepath.Join(dir, "state")).Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(to.Name()); !os.IsNotExist(err) {
		t.Errorf("%s is still there: %v", filepath.Base(to.Name()), err)
	}
}
