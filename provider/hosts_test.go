package provider

import (
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"bigfleet-providers/provider/internal/machine"
	"bigfleet-providers/provider/internal/store"
)

// TestHostLocksAreOnRecord: who holds a machine's token is known to the next
// process.
func TestHostLocksAreOnRecord(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	open := func() *store.Store {
		t.Helper()
		st, err := store.Open(store.Options{Path: path})
		if err != nil {
			t.Fatal(err)
		}
		return st
	}
	st := open()
	for id, host := range map[string]string{"m-1": "z/1", "free": ""} {
		_, err := st.Do(t.Context(), id, func(cur machine.Record) (machine.Record, machine.Change, error) {
			next := cur.Clone()
			next.ID, next.State, next.Host, next.History.Create = id, machine.Idle, host, "op-1"
			return next, machine.Visible, nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	want := func(id, digest, want string) {
		t.Helper()
		if got, err := (hostLocks{st}).Lock(t.Context(), id, "op-1", digest); got != want || err != nil {
			t.Errorf("%s by %s: tied to %q, %v; want %q", id, digest, got, err, want)
		}
		if got := (hostLocks{st}).LockedTo(id); got != want {
			t.Errorf("%s: tied to %q, want %q", id, got, want)
		}
	}
	if got, err := (hostLocks{st}).Lock(t.Context(), "m-1", "op-0", "former"); got != "" || err != nil {
		t.Errorf("a host of an earlier life is tied: %q, %v", got, err)
	}
	want("m-1", "first", "first")
	want("m-1", "second", "first")
	want("free", "first", "") // no server to tie it to
	want("nobody", "first", "")
	revision := st.Stats().Revision
	if err := st.Close(); err != nil {
		t.Fatal(err)
	}
	st = open()
	defer st.Close()
	want("m-1", "second", "first")
	if got := st.Stats().Revision; got != revision {
		t.Errorf("a lock is a change that List shows: revision %d, want %d", got, revision)
	}
}

// TestUnlockOfNobody: what is not there cannot be unlocked.
func TestUnlockOfNobody(t *testing.T) {
	st, err := store.Open(store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	mux := http.NewServeMux()
	mux.Handle("POST /hosts/{machine}/unlock", unlockHandler(st, nil, nil))
	w := httptest.NewRecorder()
	mux.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/hosts/a%2Fb/unlock", nil))
	if w.Code != http.StatusNotFound || !strings.Contains(w.Body.String(), "no such machine") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}
