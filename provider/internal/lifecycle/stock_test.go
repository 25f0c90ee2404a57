package lifecycle_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"bigfleet-providers/provider/internal/cloud"
	"bigfleet-providers/provider/internal/machine"
)

var otherOffer = &machine.Offer{InstanceType: "GP1-XS", Zone: "z", Capacity: machine.OnDemand}

// create begins a Create and waits until it is over.
func (r *rig) create(id string) machine.Record {
	r.t.Helper()
	if _, err := r.do(machine.Create, func(q *machine.Request) { q.MachineID = id }); err != nil {
		r.t.Fatalf("Create %s: %v", id, err)
	}
	for range 600 {
		time.Sleep(10 * time.Millisecond)
		if rec := r.record(id); !rec.State.Transitional() {
			return rec
		}
	}
	r.t.Fatalf("%s stays %s", id, r.record(id).State)
	return machine.Record{}
}

// stocked is a rig with n slots of one type, m1 to mn, and one of another, o1.
func stocked(t *testing.T, n int) *rig {
	t.Helper()
	r := fleet(t, n, nil, func(r *rig) { r.slots["o1"] = otherOffer })
	synctest.Wait()
	return r
}

func TestRefusedTypeIsNotOrderedForAWhile(t *testing.T) {
	const vendor = "quota exceeded: cp_servers_type_DEV1_S (quota 10, in use 10)"
	for name, tt := range map[string]struct {
		refusal error
		class   string
	}{
		"capacity": {fmt.Errorf("%w: out of stock: DEV1-S", cloud.ErrNoCapacity), "capacity"},
		"quota":    {fmt.Errorf("%w: cp_servers_type_DEV1_S (quota 10, in use 10)", cloud.ErrQuota), "quota"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := stocked(t, 5)
				r.cloud.script("order", tt.refusal)
				first := r.create("m1")
				if first.State != machine.Failed || !strings.Contains(first.LastError, `at step "order"`) ||
					!strings.Contains(first.LastError, "the type is not ordered again before 2000-01-01T00:00:3") {
					t.Fatalf("%s: %q", first.State, first.LastError)
				}
				refusedAt := time.Now()
				second := r.create("m2")
				if second.State != machine.Failed || second.Leftover != nil {
					t.Fatalf("%+v", second)
				}
				for _, want := range []string{
					"before its first step", "(" + tt.class + ")", tt.refusal.Error(), "type DEV1-S in z was refused at 2000-01-01T00:00:0",
					"not ordered again before 2000-01-01T00:00:3", "nothing was ordered and nothing is left", "offer",
				} {
					if !strings.Contains(second.LastError, want) {
						t.Errorf("last_error %q does not say %q", second.LastError, want)
					}
				}
				if tt.class == "quota" && !strings.Contains(second.LastError, vendor) {
					t.Errorf("last_error %q does not name resource, quota and use", second.LastError)
				}
				if n := r.cloud.count("order m2") + r.cloud.count("discard m2"); n != 0 {
					t.Errorf("%d steps for a Create that was to fail at once", n)
				}
				if rec := r.create("o1"); rec.State != machine.Idle {
					t.Errorf("another type: %s %q", rec.State, rec.LastError)
				}
				r.saw.look(func() {
					until := r.saw.blocked["DEV1-S "+tt.class]
					if d := until.Sub(refusedAt); d < 29*time.Second || d > 37*time.Second {
						t.Errorf("blocked for %s, want 30 s to 36 s", d)
					}
				})
				time.Sleep(10 * time.Second)
				if rec := r.record("m2-r2"); rec.State != machine.Unknown {
					t.Errorf("the slot is offered again although it could not be created: %+v", rec)
				}
				time.Sleep(30 * time.Second)
				if rec := r.record("m2-r2"); rec.State != machine.Speculative {
					t.Errorf("the slot is not offered again: %s", rec.State)
				}
				if rec := r.create("m3"); rec.State != machine.Idle {
					t.Errorf("after the pause: %s %q", rec.State, rec.LastError)
				}
				r.saw.look(func() {
					if until, told := r.saw.blocked["DEV1-S ok"]; !told || !until.IsZero() {
						t.Error("nobody was told that the type is sold again")
					}
				})
			})
		})
	}
}

// TestOtherLimitsDoNotPauseTheType: addresses that ran out say nothing of the type;
// what failed for them says which limit it was, and leaves no server.
func TestOtherLimitsDoNotPauseTheType(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := stocked(t, 3)
		r.cloud.script("boot", fmt.Errorf("%w: Primary IP limit reached", cloud.ErrLimit), cloud.Advise(fmt.Errorf("%w: network full", cloud.ErrLimit), "a larger network"))
		for _, tc := range []struct {
			id   string
			says []string
		}{
			{"m1", []string{"Primary IP limit reached", "raise the limit"}},
			{"m2", []string{"network full", "a larger network"}},
		} {
			rec := r.create(tc.id)
			for _, want := range append(tc.says, "(quota)", "is being removed") {
				if rec.State != machine.Failed || !strings.Contains(rec.LastError, want) {
					t.Errorf("%s %q does not say %q", rec.State, rec.LastError, want)
				}
			}
			if strings.Contains(rec.LastError, "is not ordered again") {
				t.Errorf("last_error %q speaks of a pause", rec.LastError)
			}
		}
		if third := r.create("m3"); third.State != machine.Idle {
			t.Errorf("the type is paused: %s %q", third.State, third.LastError)
		}
		r.saw.look(func() {
			if len(r.saw.blocked) > 0 {
				t.Errorf("types are told to be refused: %v", r.saw.blocked)
			}
		})
	})
}

// The pause doubles with each refusal in a row, up to its bound, and begins
// anew after a success. Orders that were under way together count once.
func TestPauseOfRefusedTypes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := stocked(t, 40)
		used := 0
		// tries creates until an order is sent, and says after how long.
		tries := func() time.Duration {
			began := time.Now()
			for {
				before := r.cloud.count("order")
				used++
				r.create(fmt.Sprint("m", used))
				if r.cloud.count("order") > before {
					return time.Since(began)
				}
				time.Sleep(r.pause())
			}
		}
		r.cloud.script("order", slicesOf(cloud.ErrNoCapacity, 8)...)
		tries()
		for i, want := range []time.Duration{30 * time.Second, time.Minute, 2 * time.Minute, 4 * time.Minute, 8 * time.Minute, 15 * time.Minute, 15 * time.Minute} {
			if got := tries(); got < want-time.Second || got > want+want/5+2*time.Second {
				t.Errorf("pause %d took %s, want %s and up to a fifth more", i+1, got, want)
			}
		}
		tries() // sold
		if n := r.cloud.size(); n != 1 {
			t.Fatalf("%d servers", n)
		}
		r.cloud.script("order", cloud.ErrNoCapacity)
		tries()
		if got := tries(); got > 40*time.Second {
			t.Errorf("after a success the pause was %s", got)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		r := stocked(t, 8)
		r.cloud.script("boot", append(slicesOf(cloud.Again(time.Second, "starting"), 8), slicesOf(cloud.ErrNoCapacity, 8)...)...)
		for n := range 8 {
			if _, err := r.do(machine.Create, func(q *machine.Request) { q.MachineID = fmt.Sprint("m", n+1) }); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(5 * time.Second)
		if got := r.states(8); got[machine.Failed] != 8 {
			t.Fatalf("states %v", got)
		}
		r.saw.look(func() {
			if left := time.Until(r.saw.blocked["DEV1-S capacity"]); left > 36*time.Second {
				t.Errorf("8 orders under way together block the type for %s", left)
			}
		})
	})
}

// pause is until when the type is blocked, from now.
func (r *rig) pause() time.Duration {
	var left time.Duration
	r.saw.look(func() { left = time.Until(r.saw.blocked["DEV1-S capacity"]) })
	return max(left, 0) + time.Millisecond
}
