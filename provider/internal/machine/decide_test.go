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

// TestLife walks a slot through two lives and checks which retries are replays
// at each rest.
func TestLife(t *testing.T) {
	now := epoch
	rec := record(Speculative)
	ids := 0
	do := func(k Kind) {
		t.Helper()
		ids++
		now = now.Add(time.Second)
		q := request(k)
		q.OperationID = fmt.Sprint("op", ids)
		q.Metadata = map[string]string{"a": "\x00"}
		q.GraceSeconds = 30
		d := Decide(rec, q, rules, now)
		if d.Outcome != Started {
			t.Fatalf("%s in %s: %+v", k, rec.State, d)
		}
		rec = d.Next
		if rec.Op.Deadline != now.Add(time.Minute) || !rec.Since.Equal(now) {
			t.Fatalf("%s: deadline %v, since %v", k, rec.Op.Deadline, rec.Since)
		}
		if k == Create {
			if rec.Host != "" {
				t.Fatal("a host appears before IDLE")
			}
			rec, _ = Advance(rec, q.OperationID, Progress{Step: "order", Ref: "z/9", Began: now})
		}
		var ok bool
		if rec, ok = Finish(rec, q.OperationID, now); !ok {
			t.Fatalf("%s did not finish", k)
		}
	}
	replay := func(k Kind, want string) {
		t.Helper()
		d := Decide(rec, request(k), rules, now)
		if d.OperationID != want || want != "" && d.Outcome != Replayed {
			t.Fatalf("%s in %s: got %q (%v), want %q", k, rec.State, d.OperationID, d.Err, want)
		}
	}
	do(Create)
	if rec.State != Idle || rec.Host != "z/9" {
		t.Fatalf("after Create: %+v", rec)
	}
	replay(Create, "op1")
	replay(Drain, "")
	do(Configure)
	if rec.Cluster != "c1" || rec.Metadata["a"] != "\x00" || rec.Op != nil {
		t.Fatalf("after Configure: %+v", rec)
	}
	replay(Configure, "op2")
	do(Drain)
	if rec.State != Idle || rec.Cluster != "" || rec.Metadata != nil {
		t.Fatalf("after Drain: %+v", rec)
	}
	replay(Drain, "op3")
	replay(Create, "op1")
	do(Configure)
	do(Drain)
	replay(Drain, "op5")
	do(Delete)
	if rec.State != Speculative || rec.Host != "" {
		t.Fatalf("after Delete: %+v", rec)
	}
	replay(Delete, "op6")
	do(Create)
	replay(Create, "op7")
	replay(Drain, "") // of an earlier life
}

func TestLateCompletionsAreDiscarded(t *testing.T) {
	rec := record(Creating)
	rec.Op.Step = "order"
	failed, ok := Fail(rec, "create-1", "no stock", epoch, time.Hour)
	if !ok || failed.State != Failed || failed.LastError != "no stock" || failed.Op != nil {
		t.Fatalf("Fail: %+v", failed)
	}
	if failed.Leftover == nil || failed.Leftover.OperationID != "create-1" || !failed.Leftover.After.Equal(epoch) {
		t.Fatalf("an unbound machine's leftover waits: %+v", failed.Leftover)
	}
	for name, late := range map[string]func(Record) (Record, bool){
		"Finish":  func(r Record) (Record, bool) { return Finish(r, "create-1", epoch) },
		"Fail":    func(r Record) (Record, bool) { return Fail(r, "create-1", "other", epoch, 0) },
		"Advance": func(r Record) (Record, bool) { return Advance(r, "create-1", Progress{Step: "x"}) },
		"Break":   func(r Record) (Record, bool) { return Break(r, "gone", epoch, 0) },
		"Vacate":  func(r Record) (Record, bool) { return Vacate(r, "internal-1", epoch, time.Hour) },
	} {
		if got, ok := late(failed); ok || !cmp.Equal(got, failed) {
			t.Errorf("%s changed a FAILED machine", name)
		}
	}
	if _, ok := Finish(rec, "create-0", epoch); ok {
		t.Error("another operation's id finished this one")
	}
}

func TestFailureWhileBoundKeepsTheHost(t *testing.T) {
	for _, s := range []State{Configuring, Draining} {
		rec := record(s)
		got, ok := Fail(rec, rec.Op.ID, "why", epoch, time.Hour)
		if !ok || got.Host != rec.Host || got.Cluster != "c1" || got.Metadata["k"] != "v" {
			t.Errorf("%s: the failed machine is not as it was: %+v", s, got)
		}
		if !got.Leftover.After.Equal(epoch.Add(time.Hour)) || got.Leftover.Ref != "z/1" || got.Leftover.OperationID != "create-1" {
			t.Errorf("%s: leftover %+v", s, got.Leftover)
		}
	}
	got, ok := Break(record(Configured), "gone", epoch, time.Hour)
	if !ok || got.State != Failed || !got.Leftover.After.Equal(epoch.Add(time.Hour)) {
		t.Errorf("Break: %+v", got)
	}
}

// A Create that ended before its first step has ordered nothing.
func TestUntouchedCreateLeavesNothing(t *testing.T) {
	got, ok := Fail(record(Creating), "create-1", "no stock", epoch, time.Hour)
	if !ok || got.State != Failed || got.Leftover != nil {
		t.Errorf("got %+v", got)
	}
	for _, s := range []State{Configuring, Draining, Deleting} {
		rec := record(s)
		if got, ok := Fail(rec, rec.Op.ID, "why", epoch, 0); !ok || got.Leftover == nil {
			t.Errorf("%s: the host is forgotten: %+v", s, got)
		}
	}
}

func TestVacate(t *testing.T) {
	for _, s := range []State{Unknown, Speculative, Creating, Configuring, Configured, Draining, Deleting, Failed} {
		if got, ok := Vacate(record(s), "internal-1", epoch, time.Hour); ok || got.State != s {
			t.Errorf("%s: vacated: %+v", s, got)
		}
	}
	rec := record(Idle)
	got, ok := Vacate(rec, "internal-1", epoch, time.Hour)
	if !ok || got.State != Deleting || got.Op == nil || got.Op.Kind != Delete || got.Op.Ref != rec.Host || !got.Op.Deadline.Equal(epoch.Add(time.Hour)) {
		t.Fatalf("got %+v", got)
	}
	// The Delete that a shard sends meanwhile is that one.
	d := Decide(got, request(Delete), rules, epoch)
	if d.Outcome != Replayed || d.OperationID != "internal-1" {
		t.Errorf("a shard's Delete: %+v", d)
	}
	free, ok := Finish(got, "internal-1", epoch)
	if !ok || free.State != Speculative || free.Host != "" {
		t.Errorf("at the end: %+v", free)
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
