package provider

import (
	"path/filepath"
	"testing"
	"time"

	"bigfleet-providers/provider/internal/store"
)

// TestStateIsAsOldAsItsFirstInventory: a restart makes it no older, and what an
// earlier state ordered may still turn up.
func TestStateIsAsOldAsItsFirstInventory(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state")
	open := func() *store.Store {
		st, err := store.Open(store.Options{Path: path, Owner: store.Owner{Provider: "toy", Zone: "town"}})
		if err != nil {
			t.Fatal(err)
		}
		return st
	}
	began, later := time.Now(), time.Now().Add(time.Hour)
	st := open()
	if at := bornAt(st, later); !at.Equal(later) {
		t.Errorf("without an inventory it is of %v, want of now, %v", at, later)
	}
	if err := st.SetInventoried(t.Context()); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if at := bornAt(st, later); at.Before(began) || !at.Before(later) {
			t.Errorf("it is of %v, want of its inventory, just after %v", at, began)
		}
		if err := st.Close(); err != nil {
			t.Fatal(err)
		}
		st = open()
	}
	if err := st.Close(); err != nil {
		t.Fatal(err)
	}
}
