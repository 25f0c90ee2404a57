package provider

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"bigfleet-providers/provider/internal/machine"
	"bigfleet-providers/provider/internal/store"
)

// TestOperations: the admin socket shows the oldest operations, so many at most,
// and nothing of what they hold in secret.
func TestOperations(t *testing.T) {
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	st, err := store.Open(store.Options{Path: filepath.Join(dir, "state")})
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	began := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	const all = maxOperations + 10
	ids := make([]string, all)
	for i := range ids {
		ids[i] = fmt.Sprint("m-", i)
	}
	_, err = st.DoMany(t.Context(), ids, func(current []machine.Record) ([]machine.Next, error) {
		next := make([]machine.Next, len(current))
		for i, r := range current {
			r.State = machine.Configuring
			r.Op = &machine.Operation{
				ID: fmt.Sprint("op-", i), Kind: machine.Configure, Step: "deliver", Started: began.Add(-time.Duration(i) * time.Second), Deadline: began.Add(time.Hour),
				Sealed: []byte("canary-sealed"), Notes: map[string]string{"note": "canary-note"}, Options: "canary-options",
			}
			next[i] = machine.Next{Record: r, Change: machine.Visible}
		}
		return next, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	code, body := ask(t, startAdmin(t, filepath.Join(dir, "admin.sock"), st), http.MethodGet, "/operations")
	var got shownOperations
	if err := json.Unmarshal(body, &got); code != http.StatusOK || err != nil {
		t.Fatalf("status %d, %v: %s", code, err, body)
	}
	last := all - 1
	want := shownOperation{fmt.Sprint("m-", last), fmt.Sprint("op-", last), "Configure", "deliver", began.Add(-time.Duration(last) * time.Second), time.Time{}, began.Add(time.Hour)}
	if got.Total != all || len(got.Operations) != maxOperations || got.Operations[0] != want {
		t.Errorf("%d operations of %d, the first %+v, want %+v", len(got.Operations), got.Total, got.Operations[0], want)
	}
	if text := string(body); strings.Contains(text, "canary") || strings.Contains(text, "Y2FuYXJ5") {
		t.Error("an operation shows what it holds in secret")
	}
}
