package machine

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

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
