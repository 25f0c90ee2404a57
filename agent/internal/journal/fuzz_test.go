package journal

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
)

// FuzzRead: a journal is read whole and within its bounds, or refused; what was
// read is the same after it was written again, and holds no blob.
func FuzzRead(f *testing.F) {
	golden, err := os.ReadFile("testdata/journal.json")
	if err != nil {
		f.Fatal(err)
	}
	for _, body := range [][]byte{golden, golden[:len(golden)/2], nil, []byte("{}"), []byte("null"), []byte(`{"version":1,"records":[null]}`), []byte(`{"version":1,"records":[{"command":{"command_id":"x","blob":"YQ=="},"attempt":-1,"ack":{}}]}`)} {
		f.Add(body)
	}
	path := filepath.Join(f.TempDir(), fileName)
	f.Fuzz(func(t *testing.T, body []byte) {
		if err := os.WriteFile(path, body, 0o600); err != nil {
			t.Fatal(err)
		}
		l, err := read(path)
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
		if err := os.WriteFile(path, written, 0o600); err != nil {
			t.Fatal(err)
		}
		again, err := read(path)
		if err != nil || len(again) != len(l) {
			t.Fatalf("what was written cannot be read: %d of %d records, %v", len(again), len(l), err)
		}
	})
}
