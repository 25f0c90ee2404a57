package lifecycle_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"bigfleet-providers/provider/internal/cloud"
	"bigfleet-providers/provider/internal/lifecycle"
	"bigfleet-providers/provider/internal/machine"
)

// clumsy is a cloud whose teardown panics the first times.
type clumsy struct {
	*scriptedCloud
	panics atomic.Int32 // how many are to come
}

func (c *clumsy) Discard() []cloud.Step {
	steps := c.scriptedCloud.Discard()
	run := steps[0].Run
	steps[0].Run = func(ctx context.Context, t *cloud.Task) error {
		if c.panics.Add(-1) >= 0 {
			panic("a bug")
		}
		return run(ctx, t)
	}
	return steps
}

// TestPanicInTeardown: a bug in an adapter must not end the process, and again
// after each restart.
func TestPanicInTeardown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c *clumsy
		r := newRig(t, func(o *lifecycle.Options) {
			c = &clumsy{scriptedCloud: o.Cloud.(*scriptedCloud)}
			c.panics.Store(2)
			o.Cloud = c
		})
		synctest.Wait()
		r.hosts.edit(func() { r.hosts.silent = true })
		r.must(machine.Create)
		r.settle(machine.Failed)
		time.Sleep(time.Minute)
		if c.panics.Load() >= 0 || r.cloud.size() != 0 {
			t.Errorf("%d panics to come, %d servers left", c.panics.Load()+1, r.cloud.size())
		}
	})
}

// broken is a cloud whose inventory panics the first times.
type broken struct {
	*scriptedCloud
	panics atomic.Int32 // how many are to come
}

func (c *broken) List(ctx context.Context) ([]cloud.Instance, error) {
	if c.panics.Add(-1) >= 0 {
		panic("a bug")
	}
	return c.scriptedCloud.List(ctx)
}

func TestPanicInReconcile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c *broken
		r := newRig(t, func(o *lifecycle.Options) {
			c = &broken{scriptedCloud: o.Cloud.(*scriptedCloud)}
			c.panics.Store(2)
			o.Cloud = c
		})
		time.Sleep(5 * time.Minute)
		r.saw.look(func() {
			if r.saw.failed != 2 || r.saw.passes < 2 {
				t.Errorf("%d failed passes, %d complete ones after them", r.saw.failed, r.saw.passes)
			}
		})
	})
}
