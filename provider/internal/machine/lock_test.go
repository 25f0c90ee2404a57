package machine

import (
	"testing"
	"time"
)

// TestHostLock: the first host gets the token of its server, no second one does,
// and another server starts afresh.
func TestHostLock(t *testing.T) {
	lock := func(r Record, host string) Record {
		t.Helper()
		next, change, err := LockHost("op", host)(r)
		if err != nil || (change == Visible || change == Gone) {
			t.Fatalf("change %v, %v", change, err)
		}
		return next
	}
	want := func(what string, r Record, host string) {
		t.Helper()
		if got := r.LockedTo(); got != host {
			t.Errorf("%s: locked to %q, want %q", what, got, host)
		}
	}
	free := Record{ID: "m", State: Speculative}
	want("no server", lock(free, "h1"), "")

	creating := Record{ID: "m", State: Creating, History: History{Create: "op"}, Op: &Operation{ID: "op", Kind: Create, Step: "order"}}
	want("no server ordered", lock(creating, "h1"), "")
	creating.Op.Ref = "z/1"
	creating = lock(creating, "h1")
	want("first host", creating, "h1")
	want("second host", lock(creating, "h2"), "h1")

	idle, ok := Finish(creating, "op", time.Now())
	if !ok {
		t.Fatal("not finished")
	}
	want("IDLE", idle, "h1")
	if clone := idle.Clone(); clone.LockedTo() != "h1" {
		t.Error("a copy has no lock")
	}
	unlocked, change, err := UnlockHost()(idle)
	if change != Private || err != nil {
		t.Errorf("unlock: %v, %v", change, err)
	}
	want("unlocked", unlocked, "")
	want("the next one after that", lock(unlocked, "h2"), "h2")
	if _, change, _ := UnlockHost()(unlocked); change != Unchanged {
		t.Error("to unlock what is not locked is a change")
	}

	for _, life := range []string{"", "op-0", "op2"} {
		if next, change, err := LockHost(life, "former")(unlocked); change != Unchanged || err != nil || next.LockedTo() != "" {
			t.Errorf("a host of life %q is tied: %v, %v", life, change, err)
		}
	}

	// The slot's next life has another server.
	idle.Host = "z/2"
	want("another server", idle, "")
	want("its first host", lock(idle, "h3"), "h3")
	again := start(Record{ID: "m", State: Speculative, Lock: &HostLock{Ref: "z/1", Host: "h1"}}, Request{Kind: Create, OperationID: "op2"}, time.Now())
	again.Op.Ref = "z/1" // should a cloud ever use a name twice
	want("a new Create", again, "")
}
