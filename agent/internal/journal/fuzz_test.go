package journal

import (
	"encoding/json"
	"os"
	"testing"
)

// FuzzRead: a journal is read whole, or refused; what was
// read is the same after it was written again, and holds no blob.
func FuzzRead(f *testing.F) {
	golden, err := os.ReadFile("testdata/journal.json")
	if err != nil {
		f.Fatal(err)
	}
	for _, body := range [][]byte{golden, golden[:len(golden)/2], nil, []byte("{}"), []byte("null"), []byte(`{"version":1,"records":[null]}`), []byte(`{"version":1,"records":[{"command":{"command_id":"x","blob":"YQ=="},"attempt":-1,"ack":{}}]}`)} {
		f.Add(body)
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		l, err := decode(body)
		if err != nil {
			return
		}
		if len(l) > Keep {
			t.Errorf("%d records", len(l))
		}
		for _, rec := range l.records() {
			if rec.Command.CommandID == "" || rec.Command.Blob != nil {
				t.Errorf("accepted: %+v", rec)
			}
		}
		written, err := json.Marshal(document{Version: version, Records: l})
		if err != nil {
			t.Fatalf("what was read cannot be written: %v", err)
		}
		again, err := decode(written)
		if err != nil || len(again) != len(l) {
			t.Fatalf("what was written cannot be read: %d of %d records, %v", len(again), len(l), err)
		}
	})
}
