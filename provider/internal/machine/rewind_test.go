package machine

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestRewind(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	marks := Marks{}.With("s", Mark{1, 2})
	rest := Record{
		ID: "m", Slot: "m", State: Configured, Host: "r", Cluster: "c", Metadata: map[string]string{"k": "v"},
		Marks: marks, History: History{Create: "1", Configure: "2"}, Revision: 4,
	}
	under := func(s State, k Kind) Record {
		r := rest.Clone()
		r.State, r.Op = s, &Operation{ID: "3", Kind: k, Deadline: now}
		return r
	}
	left := func(after time.Time) Record {
		r := rest.Clone()
		r.State, r.LastError, r.Leftover = Failed, "x", &Leftover{Ref: "r", After: after}
		return r
	}
	speculative := Record{ID: "m", Slot: "m", State: Speculative, Since: now, Marks: marks, Revision: 4, Bound: true}
	for name, tt := range map[string]struct {
		in, want Record
		changed  bool
	}{
		"at rest":             {rest, rest, false},
		"creating":            {under(Creating, Create), speculative, true},
		"configuring":         {under(Configuring, Configure), speculative, true},
		"draining":            {under(Draining, Drain), speculative, true},
		"deleting":            {under(Deleting, Delete), speculative, true},
		"leftover, due":       {left(now), left(now.Add(time.Hour)), true},
		"leftover, later due": {left(now.Add(2 * time.Hour)), left(now.Add(2 * time.Hour)), false},
	} {
		t.Run(name, func(t *testing.T) {
			before := tt.in.Clone()
			got, changed := Rewind(tt.in, now, time.Hour)
			if d := cmp.Diff(tt.want, got); d != "" || changed != tt.changed {
				t.Errorf("changed %v (-want +got):\n%s", changed, d)
			}
			if d := cmp.Diff(before, tt.in); d != "" {
				t.Errorf("the record it was given changed:\n%s", d)
			}
		})
	}
}
