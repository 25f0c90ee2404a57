package machine

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var (
	epoch = time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)
	rules = Rules{CanDelete: true}
)

// record is a machine at rest or in transition, as a life of Create, Configure,
// Drain and Delete leaves it in the state.
func record(s State) Record {
	r := Record{ID: "m1", Slot: "m1", Offer: &Offer{InstanceType: "DEV1-S"}, State: s, Since: epoch}
	switch s {
	case Unknown, Speculative:
	case Creating:
		r.History.Create = "create-1"
		r.Op = &Operation{ID: "create-1", Kind: Create, Started: epoch, Deadline: epoch.Add(time.Hour)}
	case Idle:
		r.History.Create = "create-1"
		r.Host = "z/1"
	case Configuring:
		r.History = History{Create: "create-1", Configure: "configure-1"}
		r.Host, r.Cluster, r.Metadata = "z/1", "c1", map[string]string{"k": "v"}
		r.Op = &Operation{ID: "configure-1", Kind: Configure, Ref: "z/1", Sealed: []byte("x")}
	case Configured:
		r.History = History{Create: "create-1", Configure: "configure-1"}
		r.Host, r.Cluster, r.Metadata = "z/1", "c1", map[string]string{"k": "v"}
	case Draining:
		r.History = History{Create: "create-1", Configure: "configure-1", Drain: "drain-1"}
		r.Host, r.Cluster, r.Metadata = "z/1", "c1", map[string]string{"k": "v"}
		r.Op = &Operation{ID: "drain-1", Kind: Drain, Ref: "z/1"}
	case Deleting:
		r.History = History{Create: "create-1", Delete: "delete-1"}
		r.Host = "z/1"
		r.Op = &Operation{ID: "delete-1", Kind: Delete, Ref: "z/1"}
	case Failed:
		r.History.Create = "create-1"
		r.LastError = "Create failed"
	}
	return r
}

func request(k Kind) Request {
	q := Request{Kind: k, MachineID: "m1", OperationID: "new", Timeout: time.Minute}
	if k == Configure {
		q.Cluster = "c1"
	}
	return q
}

// TestPositions states the outcome of every kind of call in every state.
func TestPositions(t *testing.T) {
	const started, busy, misplaced = "started", "busy", "misplaced"
	for _, tc := range []struct {
		state State
		want  [4]string // Create, Configure, Drain, Delete; an operation id means a replay of it
	}{
		{Speculative, [4]string{started, misplaced, misplaced, misplaced}},
		{Creating, [4]string{"create-1", busy, busy, busy}},
		{Idle, [4]string{"create-1", started, misplaced, started}},
		{Configuring, [4]string{busy, "configure-1", busy, busy}},
		{Configured, [4]string{misplaced, "configure-1", started, misplaced}},
		{Draining, [4]string{busy, busy, "drain-1", busy}},
		{Deleting, [4]string{busy, busy, busy, "delete-1"}},
		{Failed, [4]string{misplaced, misplaced, misplaced, misplaced}},
	} {
		for i, k := range Kinds() {
			t.Run(fmt.Sprintf("%s/%s", tc.state, k), func(t *testing.T) {
				cur := record(tc.state)
				d := Decide(cur, request(k), rules, epoch)
				got := d.OperationID
				switch {
				case d.Err != nil && d.Err.Code == Busy:
					got = busy
				case d.Err != nil && d.Err.Code == Misplaced:
					got = misplaced
				case d.Err != nil:
					t.Fatalf("refused with code %d: %v", d.Err.Code, d.Err)
				case d.Outcome == Started:
					if d.OperationID != "new" || d.Change != Visible || d.Next.State != edge(k).during {
						t.Fatalf("started as %+v", d)
					}
					got = started
				}
				if got != tc.want[i] {
					t.Errorf("got %s, want %s", got, tc.want[i])
				}
				if got != started {
					if diff := cmp.Diff(cur, d.Next); diff != "" || d.Change != Unchanged {
						t.Errorf("the record changed (%d):\n%s", d.Change, diff)
					}
				}
				if diff := cmp.Diff(record(tc.state), cur); diff != "" {
					t.Errorf("the current record was changed in place:\n%s", diff)
				}
			})
		}
	}
}

// TestFenceEverywhere crosses every state and kind with tokens around a mark:
// a stale token changes nothing, a newer one is remembered whatever comes of
// the call.
func TestFenceEverywhere(t *testing.T) {
	mark := Mark{Epoch: 5, Sequence: 10}
	tokens := []struct {
		fence Fence
		admit bool
	}{
		{Fence{"a", 5, 10}, false},
		{Fence{"a", 5, 9}, false},
		{Fence{"a", 4, 99}, false},
		{Fence{"a", 0, 0}, false},
		{Fence{"a", 5, 11}, true},
		{Fence{"a", 6, 0}, true},
		{Fence{"a", math.MaxInt64, math.MaxInt64}, true},
		{Fence{"b", 0, 0}, true}, // first contact of another shard
		{Fence{"", 0, 1}, true},  // an empty shard id with a sequence is a token
		{Fence{}, true},          // not fenced
	}
	states := []State{Unknown, Speculative, Creating, Idle, Configuring, Configured, Draining, Deleting, Failed}
	for _, s := range states {
		for _, k := range Kinds() {
			for _, tok := range tokens {
				t.Run(fmt.Sprintf("%s/%s/%v", s, k, tok.fence), func(t *testing.T) {
					cur := record(s)
					cur.Marks = Marks{}.With("a", mark)
					q := request(k)
					q.Fence = tok.fence
					d := Decide(cur, q, rules, epoch)
					if !tok.admit {
						if d.Err == nil || d.Err.Code != Stale {
							t.Fatalf("a stale token was not refused as stale: %+v", d)
						}
						if d.Change != Unchanged || !cmp.Equal(cur, d.Next) {
							t.Error("a stale token changed the record")
						}
						return
					}
					if d.Err != nil && d.Err.Code == Stale {
						t.Fatalf("a newer token was refused: %v", d.Err)
					}
					want := cur.Marks
					if !tok.fence.Empty() {
						want = want.With(tok.fence.Shard, Mark{tok.fence.Epoch, tok.fence.Sequence})
						if d.Change == Unchanged {
							t.Error("the mark is not to be written")
						}
					}
					if diff := cmp.Diff(want, d.Next.Marks); diff != "" {
						t.Errorf("marks:\n%s", diff)
					}
					if s == Unknown && (d.Err == nil || d.Err.Code != NotFound || d.Next.State != Unknown) {
						t.Errorf("an unknown machine: %+v", d)
					}
				})
			}
		}
	}
}

func TestFenceBeforeReplay(t *testing.T) {
	cur := record(Configured)
	cur.Marks = Marks{}.With("a", Mark{1, 1})
	q := request(Configure)
	q.Fence = Fence{"a", 1, 1}
	if d := Decide(cur, q, rules, epoch); d.Err == nil || d.Err.Code != Stale {
		t.Fatalf("a replay under a used token: %+v", d)
	}
	q.Fence.Sequence = 2
	if d := Decide(cur, q, rules, epoch); d.Outcome != Replayed || d.OperationID != "configure-1" {
		t.Fatalf("a replay under a new token: %+v", d)
	}
}

func TestArgumentsBeforeFence(t *testing.T) {
	cur := record(Idle)
	cur.Marks = Marks{}.With("a", Mark{5, 5})
	long := strings.Repeat("x", MaxIDBytes+1)
	big := map[string]string{"k": strings.Repeat("v", MaxMetadataBytes)}
	many := map[string]string{}
	for i := range MaxMetadataKeys + 1 {
		many[fmt.Sprint(i)] = ""
	}
	for name, tc := range map[string]struct {
		q    Request
		want []string
	}{
		"no machine":    {Request{Kind: Create}, []string{"machine_id: missing"}},
		"long ids":      {Request{Kind: Create, MachineID: long, Fence: Fence{Shard: long}}, []string{"machine_id: 257 bytes, the limit is 256", "shard_id: 257 bytes"}},
		"no cluster":    {Request{Kind: Configure, MachineID: "m1"}, []string{"cluster_id: missing"}},
		"cluster text":  {Request{Kind: Configure, MachineID: "m1", Cluster: "c1\n"}, []string{"cluster_id: has a control character"}},
		"blob":          {Request{Kind: Configure, MachineID: "m1", Cluster: "c", BlobBytes: MaxBlobBytes + 1}, []string{"bootstrap_blob: 1048577 bytes, the limit is 1048576"}},
		"metadata size": {Request{Kind: Configure, MachineID: "m1", Cluster: "c", Metadata: big}, []string{"shard_metadata: 1048577 bytes"}},
		"metadata keys": {Request{Kind: Configure, MachineID: "m1", Cluster: "c", Metadata: many}, []string{"shard_metadata: 4097 keys, the limit is 4096"}},
		"grace":         {Request{Kind: Drain, MachineID: "m1", GraceSeconds: -1}, []string{"grace_period_seconds: -1 is negative"}},
		"huge grace":    {Request{Kind: Drain, MachineID: "m1", GraceSeconds: math.MaxInt64}, []string{"grace_period_seconds: 9223372036854775807, the limit is 2592000"}},
	} {
		t.Run(name, func(t *testing.T) {
			q := tc.q
			if q.Fence == (Fence{}) {
				q.Fence = Fence{"a", 9, 9}
			}
			d := Decide(cur, q, rules, epoch)
			if d.Err == nil || d.Err.Code != InvalidArgument {
				t.Fatalf("got %+v", d)
			}
			for _, w := range tc.want {
				if !strings.Contains(d.Err.Text, w) {
					t.Errorf("%q does not say %q", d.Err.Text, w)
				}
			}
			if d.Change != Unchanged || !cmp.Equal(cur, d.Next) {
				t.Error("a bad argument changed the record")
			}
		})
	}
	atLimit := Request{Kind: Configure, MachineID: "m1", Cluster: strings.Repeat("c", MaxIDBytes), BlobBytes: MaxBlobBytes, OperationID: "new"}
	if d := Decide(cur, atLimit, rules, epoch); d.Outcome != Started {
		t.Errorf("at the limits: %v", d.Err)
	}
}

func TestRules(t *testing.T) {
	cur := record(Idle)
	q := request(Delete)
	q.Fence = Fence{"a", 1, 1}
	if d := Decide(cur, q, Rules{}, epoch); d.Err == nil || d.Err.Code != Unsupported || d.Change != Unchanged {
		t.Errorf("Delete where hosts cannot be given back: %+v", d)
	}
	if d := Decide(cur, request(Configure), Rules{RequireFence: true}, epoch); d.Err == nil || d.Err.Code != InvalidArgument {
		t.Errorf("no token where one is required: %+v", d)
	}
}

func TestMarksAreBounded(t *testing.T) {
	cur := record(Idle)
	for i := range MaxShards {
		cur.Marks = cur.Marks.With(fmt.Sprint("s", i), Mark{1, 1})
	}
	q := request(Configure)
	q.Fence = Fence{"one too many", 1, 1}
	if d := Decide(cur, q, rules, epoch); d.Err == nil || d.Err.Code != InvalidArgument || len(d.Next.Marks) != MaxShards {
		t.Errorf("one shard too many: %+v", d.Err)
	}
	q.Fence = Fence{"s7", 1, 2}
	if d := Decide(cur, q, rules, epoch); d.Outcome != Started {
		t.Errorf("a known shard: %v", d.Err)
	}
}

func TestConfigureElsewhereIsNoReplay(t *testing.T) {
	for _, s := range []State{Configuring, Configured} {
		q := request(Configure)
		q.Cluster = "c2"
		d := Decide(record(s), q, rules, epoch)
		if d.Err == nil || d.Err.Code != Misplaced || !strings.Contains(d.Err.Text, `"c1"`) {
			t.Errorf("%s: %+v", s, d)
		}
	}
}

func TestRetiredSlotsAreNotCreated(t *testing.T) {
	rec := record(Speculative)
	rec.Retired = true
	if d := Decide(rec, request(Create), rules, epoch); d.Err == nil || d.Err.Code != Misplaced {
		t.Errorf("got %+v", d)
	}
}

func TestCloneIsDeep(t *testing.T) {
	rec := record(Draining)
	rec.Marks = Marks{}.With("a", Mark{1, 1})
	rec.Op.Notes = map[string]string{"v": "1"}
	rec.Leftover = &Leftover{Notes: map[string]string{"v": "1"}}
	want := record(Draining)
	want.Marks = Marks{}.With("a", Mark{1, 1})
	want.Op.Notes = map[string]string{"v": "1"}
	want.Leftover = &Leftover{Notes: map[string]string{"v": "1"}}
	c := rec.Clone()
	c.Marks = c.Marks.With("a", Mark{9, 9})
	c.Metadata["k"], c.Op.Notes["v"], c.Leftover.Notes["v"] = "x", "x", "x"
	c.Op.Step, c.Leftover.Step = "x", "x"
	if diff := cmp.Diff(want, rec); diff != "" {
		t.Errorf("the original changed:\n%s", diff)
	}
}
