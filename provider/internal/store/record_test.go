package store

import (
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"bigfleet-providers/provider/internal/machine"
)

func fullRecord() machine.Record {
	at := time.Date(2026, 3, 4, 5, 6, 7, 89, time.UTC)
	notes := map[string]string{"volume": "v-1", "raw": "\xff\x00"}
	return machine.Record{
		ID:   "m",
		Slot: "slot",
		Offer: &machine.Offer{
			InstanceType: "type", Zone: "zone", Capacity: machine.Spot, PricePerHour: 1.25, Interruption: 0.5,
			Resources:   map[string]string{"cpu": "1"},
			Labels:      map[string]string{"l": ""},
			Allocatable: map[string]string{"memory": "1Gi"},
			Options:     "offered",
		},
		State:     machine.Configuring,
		Since:     at,
		Host:      "r",
		Cluster:   "c",
		Metadata:  map[string]string{"nul": "a\x00b", "empty": "", "": "no key"},
		LastError: "not \xfe UTF-8",
		Marks:     machine.Marks{}.With("s", machine.Mark{Epoch: 1<<63 - 1, Sequence: 1<<63 - 1}).With("", machine.Mark{Epoch: 1}),
		History:   machine.History{Create: "h1", Configure: "h2", Drain: "h3", Delete: "h4"},
		Op: &machine.Operation{
			ID: "op", Kind: machine.Configure, Started: at.Add(1), Deadline: at.Add(2), Step: "deliver", StepBegan: at.Add(3),
			Ref: "ref", Notes: notes, Grace: time.Minute, Sealed: []byte{0, 1, 255}, Joined: true, Options: "taken",
		},
		Leftover:  &machine.Leftover{OperationID: "lo", Ref: "lr", Notes: notes, Step: "ls", After: at.Add(4)},
		Lock:      &machine.HostLock{Ref: "kr", Host: "kh"},
		Bound:     true,
		Retired:   true,
		Succeeded: true,
		Revision:  1,
	}
}

// TestEveryFieldSurvivesARestart fails too when a field is added to the records
// and not to the file.
func TestEveryFieldSurvivesARestart(t *testing.T) {
	want := fullRecord()
	noZero(t, "Record", reflect.ValueOf(want))

	path := filepath.Join(t.TempDir(), "state")
	s := start(t, path)
	for _, id := range []string{"m", "twin"} {
		must(t, s, id, func(machine.Record) (machine.Record, machine.Change, error) {
			return fullRecord(), machine.Visible, nil
		})
	}
	must(t, s, "bare", func(machine.Record) (machine.Record, machine.Change, error) {
		return machine.Record{State: machine.Speculative, Offer: &machine.Offer{}}, machine.Visible, nil
	})
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}

	s = start(t, path)
	got, _, _ := s.Get("m")
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	twin, _, _ := s.Get("twin")
	if twin.Offer != got.Offer {
		t.Error("offers of the same content are two after a load")
	}
	bare, shown, _ := s.Get("bare")
	if d := cmp.Diff(machine.Record{ID: "bare", State: machine.Speculative, Offer: &machine.Offer{}, Revision: 3}, bare); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if string(shown) != "bare SPECULATIVE " {
		t.Errorf("view %q", shown)
	}
}

// noZero fails for a field that the sample leaves empty: the test would not see
// whether it survives.
func noZero(t *testing.T, path string, v reflect.Value) {
	t.Helper()
	if v.IsZero() {
		t.Errorf("the sample does not set %s", path)
		return
	}
	switch {
	case v.Kind() == reflect.Pointer:
		noZero(t, path, v.Elem())
	case v.Kind() == reflect.Struct && v.Type() != reflect.TypeFor[time.Time]():
		for i := range v.NumField() {
			noZero(t, path+"."+v.Type().Field(i).Name, v.Field(i))
		}
	}
}
