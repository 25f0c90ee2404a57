package machine

import (
	"testing"
	"time"
)

// TestLifeOfAnID: who may use the channel, from the first Create of an id to the second.
func TestLifeOfAnID(t *testing.T) {
	now := time.Now()
	want := func(what string, r Record, id string, plain bool) {
		t.Helper()
		life, ok := r.Life()
		if ok != (id != "") || life != (Life{ID: id, Plain: plain}) {
			t.Errorf("%s: %+v, %t, want life %q, plain %t", what, life, ok, id, plain)
		}
	}
	step := func(r Record, p Progress) Record {
		t.Helper()
		next, ok := Advance(r, r.Op.ID, p)
		if !ok {
			t.Fatal("not its operation")
		}
		return next
	}
	finish := func(r Record) Record {
		t.Helper()
		next, ok := Finish(r, r.Op.ID, now)
		if !ok {
			t.Fatal("not finished")
		}
		return next
	}
	begin := func(r Record, k Kind, id string) Record {
		return start(r, Request{Kind: k, OperationID: id, Cluster: "c"}, now)
	}

	want("an unknown id", Record{ID: "m"}, "", false)
	free := Record{ID: "m", State: Speculative}
	want("a free slot", free, "", false)
	creating := begin(free, Create, "c-1")
	want("a Create that waits", creating, "", false)
	creating = step(creating, Progress{Step: "order"})
	want("a Create that has begun", creating, "c-1", true)
	creating = step(creating, Progress{Step: "boot", Ref: "z/1"})
	want("a Create", creating, "c-1", true)
	idle := finish(creating)
	want("IDLE", idle, "c-1", true)
	configuring := begin(idle, Configure, "f-1")
	want("CONFIGURING", configuring, "c-1", true)
	configuring = step(configuring, Progress{Step: "deliver", Ref: "z/1"})
	configured := finish(configuring)
	want("CONFIGURED", configured, "c-1", true)
	draining := begin(configured, Drain, "r-1")
	want("DRAINING", draining, "c-1", true)
	failed, _ := Fail(draining, "r-1", "why", now, time.Hour)
	want("FAILED, its host kept", failed, "c-1", true)
	failed.Leftover = nil
	want("FAILED, nothing left", failed, "", false)
	broken, _ := Break(configured, "why", now, time.Hour)
	want("FAILED at rest", broken, "c-1", true)
	vacated, _ := Vacate(idle, "v-1", now, time.Hour)
	want("freed of a lost host", vacated, "", false)
	deleting := begin(idle, Delete, "d-1")
	want("DELETING", deleting, "", false)
	undeleted, _ := Fail(step(deleting, Progress{Step: "terminate", Ref: "z/1"}), "d-1", "why", now, time.Hour)
	want("a Delete that failed", undeleted, "", false)
	deleted := finish(step(deleting, Progress{Step: "terminate", Ref: "z/1"}))
	want("free again", deleted, "", false)
	again := step(begin(deleted, Create, "c-2"), Progress{Step: "order"})
	want("the next life", again, "c-2", false)
	rewound, _ := Rewind(again, now, time.Hour)
	want("an older copy", rewound, "", false)
	untouched, _ := Fail(begin(deleted, Create, "c-2"), "c-2", "why", now, 0)
	want("a Create that failed before it began", untouched, "", false)
}

// TestBoundLife: from an id's second life on, its plain token is refused, however the
// first one ended and whatever release it was of. A server that somebody else
// installed has no other.
func TestBoundLife(t *testing.T) {
	now := time.Now()
	for what, tt := range map[string]struct {
		free  Record
		asIs  bool
		plain bool
	}{
		"the first":                         {Record{}, false, true},
		"after a Delete":                    {Record{History: History{Delete: "d"}, Bound: true}, false, false},
		"after an earlier release's Delete": {Record{History: History{Delete: "d"}}, false, false},
		"after what an older copy forgot":   {Record{Bound: true}, false, false},
		"a server as it is":                 {Record{Bound: true}, true, true},
	} {
		t.Run(what, func(t *testing.T) {
			tt.free.ID, tt.free.State = "m", Speculative
			r := start(tt.free, Request{Kind: Create, OperationID: "c"}, now)
			for _, p := range []Progress{{Step: "order"}, {Step: "order", AsIs: tt.asIs, Ref: "z/1"}, {Step: "first-contact", AsIs: tt.asIs, Ref: "z/1"}} {
				var ok bool
				if r, ok = Advance(r, "c", p); !ok {
					t.Fatal("not its operation")
				}
			}
			finished, _ := Finish(r, "c", now)
			failed, _ := Fail(r, "c", "why", now, 0)
			for _, r := range []Record{r, finished, failed} {
				if life, ok := r.Life(); !ok || life != (Life{ID: "c", Plain: tt.plain}) {
					t.Errorf("%s: %+v, %t, want plain %t", r.State, life, ok, tt.plain)
				}
			}
		})
	}
	idle := Record{ID: "m", State: Idle, History: History{Create: "c"}}
	deleted, _ := Finish(start(idle, Request{Kind: Delete, OperationID: "d"}, now), "d", now)
	vacated, _ := Vacate(idle, "v", now, time.Hour)
	vacated, _ = Finish(vacated, "v", now)
	rewound, _ := Rewind(start(idle, Request{Kind: Configure, OperationID: "f"}, now), now, time.Hour)
	for what, r := range map[string]Record{"deleted": deleted, "vacated": vacated, "rewound": rewound} {
		if r.State != Speculative || !r.Bound {
			t.Errorf("%s: %s, bound %t", what, r.State, r.Bound)
		}
	}
}
