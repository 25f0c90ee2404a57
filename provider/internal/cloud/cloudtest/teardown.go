package cloudtest

import (
	"testing"
	"testing/synctest"

	"bigfleet-providers/provider/internal/cloud"
)

// A Discard of an operation that made nothing succeeds.
func testDiscardNothing(t *testing.T, w *World) {
	must(t, w.operation("m-1").Run(deadline(t), w.Connect(t).Discard()))
	w.wantNothing(t)
}

// testDiscardAnywhere breaks a Create off before, in and after every step and
// discards it from another process. In one half of the cases what the last step
// learned was saved, in the other it died with the process.
func testDiscardAnywhere(t *testing.T, newWorld func(*testing.T) *World) {
	for n, name := range stepNames(newWorld(t).Connect(t).Create()) {
		for _, lost := range []bool{false, true} {
			label := name + "/saved"
			if lost {
				label = name + "/lost"
			}
			t.Run(label, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					w := newWorld(t)
					w.create(t, w.Connect(t), "bystander")
					before := w.Remains()

					op := w.operation("m-1")
					steps := w.Connect(t).Create()
					must(t, op.RunTo(deadline(t), steps, n))
					if lost {
						op.Lost(deadline(t), steps, n)
					} else {
						must(t, op.RunTo(deadline(t), steps, n+1))
					}
					if len(w.Servers()) < 2 {
						t.Fatal("the step left no server to discard")
					}
					must(t, op.Teardown().Run(deadline(t), w.Connect(t).Discard()))
					wantRemains(t, w, before)
				})
			})
		}
	}
}

func wantRemains(t *testing.T, w *World, want []string) {
	t.Helper()
	have := map[string]bool{}
	for _, s := range w.Remains() {
		have[s] = true
	}
	for _, s := range want {
		if !have[s] {
			t.Errorf("a bystander lost %q", s)
		}
		delete(have, s)
	}
	for s := range have {
		t.Errorf("left behind: %q", s)
	}
}

// deleter returns the adapter's Deleter or skips the test.
func deleter(t *testing.T, c cloud.Cloud) cloud.Deleter {
	t.Helper()
	d, ok := c.(cloud.Deleter)
	if !ok {
		t.Skip("this cloud takes nothing back")
	}
	return d
}

func testDeleteFromAnyState(t *testing.T, newWorld func(*testing.T) *World) {
	for state := range newWorld(t).States {
		t.Run(state, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				c := w.Connect(t)
				op := w.create(t, c, "m-1")
				w.States[state](t, op.Ref)
				must(t, removal(op).Run(deadline(t), deleter(t, c).Delete()))
				w.wantNothing(t)
			})
		})
	}
}

// testDeleteGone deletes a machine whose server was removed by other hands.
func testDeleteGone(t *testing.T, w *World) {
	c := w.Connect(t)
	op := w.create(t, c, "m-1")
	w.Remove(t, op.Ref)
	must(t, removal(op).Run(deadline(t), deleter(t, c).Delete()))
	w.wantNothing(t)
}

// testCrashInDelete kills the process in each step of a Delete, before anything
// the step learned was saved.
func testCrashInDelete(t *testing.T, newWorld func(*testing.T) *World) {
	for n, name := range stepNames(deleter(t, newWorld(t).Connect(t)).Delete()) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				op := removal(w.create(t, w.Connect(t), "m-1"))
				dying := deleter(t, w.Connect(t)).Delete()
				must(t, op.RunTo(deadline(t), dying, n))
				op.Lost(deadline(t), dying, n)
				must(t, op.Run(deadline(t), deleter(t, w.Connect(t)).Delete()))
				w.wantNothing(t)
			})
		})
	}
}
