package lifecycle_test

import (
	"fmt"
	"maps"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"bigfleet-providers/provider/internal/cloud"
	"bigfleet-providers/provider/internal/lifecycle"
	"bigfleet-providers/provider/internal/machine"
)

// TestRestartAtEveryMoment stops the engine at each quarter of a second of a
// Create and a Configure and starts a new one: same operation, one server.
func TestRestartAtEveryMoment(t *testing.T) {
	for at := range 12 {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, nil)
			synctest.Wait()
			id := r.must(machine.Create)
			time.Sleep(time.Duration(at) * 250 * time.Millisecond)
			r.stop()
			r.start()
			synctest.Wait()
			if again := r.must(machine.Create); again != id {
				t.Errorf("operation %s after the restart, %s before", again, id)
			}
			r.settle(machine.Idle)

			id = r.must(machine.Configure)
			deadline := r.record("m1").Op.Deadline
			time.Sleep(time.Duration(at) * 250 * time.Millisecond)
			r.stop()
			if op := r.record("m1").Op; op != nil && !op.Deadline.Equal(deadline) {
				t.Errorf("the deadline moved")
			}
			r.start()
			synctest.Wait()
			if again := r.must(machine.Configure); again != id {
				t.Errorf("operation %s after the restart, %s before", again, id)
			}
			r.settle(machine.Configured)
			for _, cmd := range r.hosts.sent() {
				if cmd.CommandID != id || string(cmd.Blob) != "join me" {
					t.Errorf("command %s with blob %q", cmd.CommandID, cmd.Blob)
				}
			}
			if r.cloud.size() != 1 {
				t.Errorf("%d servers", r.cloud.size())
			}
		})
	}
}

// TestNotesAfterARestart: what a resumed step notes reaches the store, although
// the operation had notes before; the record as it was stays what it was.
func TestNotesAfterARestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		synctest.Wait()
		r.cloud.edit(func() { r.cloud.noting = true })
		r.cloud.script("order", slicesOf(cloud.Again(time.Minute, "it takes its time"), 10)...)
		r.must(machine.Create)
		time.Sleep(time.Second)
		before := r.record("m1").Op.Notes
		r.stop()
		r.start()
		time.Sleep(time.Second)
		if got := r.record("m1").Op.Notes["calls"]; got != "2" {
			t.Errorf("the store has the note of call %q, want that of the second", got)
		}
		if before["calls"] != "1" {
			t.Errorf("the note of call %q is in the record as it was before: it was never handed to the store", before["calls"])
		}
		r.settle(machine.Idle)
	})
}

// TestStepOfAnotherRelease resumes a Create whose step this release does not
// have: every step is told that its effect may exist, so none makes it again.
func TestStepOfAnotherRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		synctest.Wait()
		r.hosts.edit(func() { r.hosts.silent = true })
		id := r.must(machine.Create)
		time.Sleep(time.Second)
		r.stop()
		_, err := r.store.Do(t.Context(), "m1", func(cur machine.Record) (machine.Record, machine.Change, error) {
			next, ok := machine.Advance(cur, id, machine.Progress{Step: "of another release", Ref: cur.Op.Ref})
			if !ok {
				t.Error("the operation is over")
			}
			return next, machine.Private, nil
		})
		if err != nil {
			t.Fatal(err)
		}
		r.hosts.edit(func() { r.hosts.silent = false })
		r.cloud.edit(func() { r.cloud.reruns = nil })
		r.start()
		r.settle(machine.Idle)
		r.cloud.edit(func() {
			if got := strings.Join(r.cloud.reruns, " "); got != "order boot" || len(r.cloud.instances) != 1 {
				t.Errorf("told to look first: %q; %d servers", got, len(r.cloud.instances))
			}
		})
	})
}

// TestResumedInTheOrderOfAcceptance: what waits for its turn keeps its place over a
// restart, also when its machine was listed anew meanwhile.
func TestResumedInTheOrderOfAcceptance(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := fleet(t, 4, func(o *lifecycle.Options) { o.MaxCreates = 1 }, func(*rig) {})
		synctest.Wait()
		r.hosts.edit(func() { r.hosts.silent = true })
		for n := 1; n <= 4; n++ {
			if _, err := r.do(machine.Create, func(q *machine.Request) { q.MachineID = fmt.Sprint("m", n) }); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
		}
		dearer := *offer
		dearer.PricePerHour++
		slots := maps.Clone(r.slots)
		slots["m2"] = &dearer
		if err := r.engine.Seed(t.Context(), slots); err != nil {
			t.Fatal(err)
		}
		r.stop()
		r.hosts.edit(func() { r.hosts.silent = false })
		r.start()
		time.Sleep(5 * time.Minute)
		for n := 2; n <= 4; n++ {
			before, after := r.record(fmt.Sprint("m", n-1)), r.record(fmt.Sprint("m", n))
			if before.State != machine.Idle || after.State != machine.Idle || !before.Since.Before(after.Since) {
				t.Errorf("m%d is %s since %s, m%d %s since %s", n-1, before.State, before.Since, n, after.State, after.Since)
			}
		}
	})
}
