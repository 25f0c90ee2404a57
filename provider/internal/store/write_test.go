package store

import (
	"fmt"
	"path/filepath"
	"testing"

	"bigfleet-providers/provider/internal/machine"
)

// TestNewStateFillsPages: a file of many new machines is hardly larger than their
// records, also when they come in several batches.
func TestNewStateFillsPages(t *testing.T) {
	s := start(t, filepath.Join(t.TempDir(), "state"))
	records := 0
	for batch := range 4 {
		ids := make([]string, 2000)
		for i := range ids {
			ids[i] = fmt.Sprintf("provider-zone-type-%02d%04d", batch, i)
		}
		recs, err := s.DoMany(t.Context(), ids, func(current []machine.Record) ([]machine.Next, error) {
			next := make([]machine.Next, len(current))
			for i, cur := range current {
				cur.Slot, cur.State, cur.Cluster = cur.ID, machine.Speculative, "so that a page has some dozens of these records"
				next[i] = machine.Next{Record: cur, Change: machine.Visible}
			}
			return next, nil
		})
		if err != nil {
			t.Fatal(err)
		}
		for _, rec := range recs {
			c := &change{id: rec.ID, rec: &rec}
			if err := s.enc.record(c); err != nil {
				t.Fatal(err)
			}
			records += len(c.id) + len(c.data)
		}
	}
	if size := s.Stats().FileBytes; size > int64(records)*14/10 {
		t.Errorf("a file of %d bytes for records of %d", size, records)
	}
}
