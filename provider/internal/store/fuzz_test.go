package store

import (
	"bytes"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"bigfleet-providers/provider/internal/machine"
)

// FuzzRecord decodes payloads whose checksum is right, as a writer with a fault
// or another release may leave them. What is accepted means something, and means
// the same once it was written again.
func FuzzRecord(f *testing.F) {
	encoded := func(rec machine.Record) []byte {
		c := &change{id: "m", rec: &rec}
		if err := new(encoder).record(c); err != nil {
			f.Fatal(err)
		}
		return c.data[sumBytes:]
	}
	whole := encoded(fullRecord())
	for _, payload := range [][]byte{whole, encoded(machine.Record{ID: "m", State: machine.Speculative}), nil, whole[:len(whole)/2], bytes.Repeat([]byte{0xff}, 64)} {
		f.Add(payload)
	}
	f.Fuzz(func(t *testing.T, payload []byte) {
		value := sign(machinesBucket, "m", append(make([]byte, sumBytes), payload...))
		got, err := new(decoder).record("m", value)
		if err != nil {
			return
		}
		if got.ID != "m" || got.State < machine.Speculative || got.State > machine.Failed {
			t.Errorf("accepted: %+v", got)
		}
		c := &change{id: "m", rec: got}
		if err := new(encoder).record(c); err != nil {
			t.Fatalf("what was read cannot be written: %v", err)
		}
		again, err := new(decoder).record("m", c.data)
		if err != nil {
			t.Fatalf("what was written cannot be read: %v", err)
		}
		if diff := cmp.Diff(got, again, cmpopts.EquateEmpty(), cmpopts.EquateNaNs()); diff != "" {
			t.Errorf("a record changed on its way (-before +after):\n%s", diff)
		}
	})
}

// FuzzValue decodes raw values of each bucket: none but those with their own
// checksum is taken.
func FuzzValue(f *testing.F) {
	rec := fullRecord()
	c := &change{id: "m", rec: &rec}
	if err := new(encoder).record(c); err != nil {
		f.Fatal(err)
	}
	f.Add("m", c.data)
	f.Add("m2", c.data)
	f.Add("", []byte{})
	f.Add("m", []byte{0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, id string, value []byte) {
		before := bytes.Clone(value)
		_, recErr := new(decoder).record(id, value)
		_, _, marksErr := unknownMarks(id, value)
		_, _, genErr := rememberedGeneration(id, value)
		for bucket, err := range map[string]error{machinesBucket: recErr, marksBucket: marksErr, generationsBucket: genErr} {
			if _, sealed := open(bucket, id, value); err == nil && sealed != nil {
				t.Errorf("%s takes a value with a wrong checksum", bucket)
			}
		}
		if !bytes.Equal(before, value) {
			t.Error("decoding changed the value")
		}
	})
}

// FuzzCursor: a cursor is one that this store gave out, or foreign.
func FuzzCursor(f *testing.F) {
	const head = 1000
	s := &Store{instance: [instanceBytes]byte{1, 2, 3}}
	other := &Store{instance: [instanceBytes]byte{1, 2, 4}}
	since := func(revision uint64) []span { return []span{{revision, endless}} }
	walk := s.cursor([]span{{3, 9}, {0, 2}, {9, endless}})
	for _, c := range [][]byte{nil, s.cursor(since(0)), s.cursor(since(head)), s.cursor(since(head + 1)), s.cursor(since(endless)), other.cursor(since(7)), walk, walk[1:], append(walk, 0), slices.Repeat([]byte{0}, cursorBytes)} {
		f.Add(c)
	}
	f.Fuzz(func(t *testing.T, cursor []byte) {
		left, ok := s.decodeCursor(cursor, head)
		if ok && !bytes.Equal(cursor, s.cursor(left)) {
			t.Errorf("%x is taken for %v", cursor, left)
		}
		for _, l := range left {
			if l.after > head || l.to != endless && l.to > head {
				t.Errorf("%x has revisions to come: %v", cursor, left)
			}
		}
	})
}
