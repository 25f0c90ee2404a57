package instances_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"bigfleet-providers/provider/internal/cloud"
	"bigfleet-providers/provider/internal/cloud/cloudtest"
	"bigfleet-providers/provider/internal/cloud/scaleway/instances"
	"bigfleet-providers/provider/internal/fakecloud"
)

// A server that somebody stops between two steps of a start is started, and does
// not pass for one that found no hardware.
func TestStoppedBetweenTheStepsOfAStart(t *testing.T) {
	for _, state := range []string{fakecloud.StateStopped, fakecloud.StateStoppedInPlace} {
		t.Run(state, func(t *testing.T) {
			w := newWorld(t)
			c := w.connect(t)
			made := operation("m-1")
			must(t, made.Run(within(t), c.Create()))
			start := &cloudtest.Operation{}
			start.Ref, start.Spec = made.Ref, made.Spec
			must(t, start.RunTo(within(t), c.Start(), 1))
			w.force(t, made.Ref, state, "")
			must(t, start.Run(within(t), c.Start()))
			if s, _ := w.server(made.Ref); s.State != fakecloud.StateRunning {
				t.Errorf("the server is %s", s.State)
			}
		})
	}
}

// A server that was seen and is not there any more has not been ordered a moment
// ago: it is gone.
func TestGoneWhileItBoots(t *testing.T) {
	w := newWorldAt(t, 1)
	c := w.connect(t, func(cfg *instances.Config) { cfg.Timing.Settle = time.Minute })
	op := operation("m-1")
	steps := c.Create()
	must(t, op.RunTo(within(t), steps, len(steps)-1))
	boot := steps[len(steps)-1]
	task := &cloud.Task{Spec: op.Spec, Ref: op.Ref, Notes: op.Notes}
	time.Sleep(2 * time.Millisecond) // a look in the same moment would be a call for nothing
	if err := boot.Run(within(t), task); err == nil {
		t.Fatal("it runs already")
	}
	w.force(t, op.Ref, fakecloud.StateStopped, "")
	w.drop(t, id(op.Ref))
	if err := boot.Run(within(t), task); !errors.Is(err, cloud.ErrNotFound) {
		t.Errorf("boot of a server that was seen and is gone = %v, want ErrNotFound", err)
	}
}

// Many servers are read with one call; what is not ours is left out.
func TestGetMany(t *testing.T) {
	w := newWorld(t)
	c := w.connect(t)
	var refs []string
	for _, m := range []string{"m-1", "m-2", "m-3"} {
		op := operation(m)
		must(t, op.Run(within(t), c.Create()))
		refs = append(refs, op.Ref)
	}
	w.force(t, refs[1], fakecloud.StateStopped, "")
	stranger := w.connect(t, func(cfg *instances.Config) { cfg.Provider = "another" })
	theirs := operation("m-4")
	must(t, theirs.Run(within(t), stranger.Create()))
	before := w.Requests("")
	found, err := c.GetMany(within(t), append(slices.Clone(refs[:2]), theirs.Ref))
	must(t, err)
	if calls := w.Requests("") - before; calls != 1 || len(found) != 2 {
		t.Errorf("%d calls found %d servers, want 1 call and 2 servers", calls, len(found))
	}
	for _, in := range found {
		want := map[string]cloud.Power{refs[0]: cloud.PowerRunning, refs[1]: cloud.PowerStopped}[in.Ref]
		if in.Power != want {
			t.Errorf("%s is %s, want %s", in.Ref, in.Power, want)
		}
	}
}
