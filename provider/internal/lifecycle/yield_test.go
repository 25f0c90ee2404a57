package lifecycle_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"bigfleet-providers/provider/internal/cloud"
	"bigfleet-providers/provider/internal/lifecycle"
	"bigfleet-providers/provider/internal/machine"
)

// clocked is a cloud that notes when each machine's first step ran.
type clocked struct {
	*scriptedCloud
	mu    sync.Mutex
	began map[string]time.Time
}

func (c *clocked) noting(steps []cloud.Step) []cloud.Step {
	run := steps[0].Run
	steps[0].Run = func(ctx context.Context, t *cloud.Task) error {
		c.mu.Lock()
		c.began[t.Spec.MachineID] = time.Now()
		c.mu.Unlock()
		return run(ctx, t)
	}
	return steps
}

func (c *clocked) Create() []cloud.Step { return c.noting(c.scriptedCloud.Create()) }
func (c *clocked) Start() []cloud.Step  { return c.noting(c.scriptedCloud.Start()) }

func (c *clocked) after(id string, t time.Time) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.began[id].Sub(t)
}

// TestCallsFirst: while one caller calls without a pause, a step of a cloud that
// shares the callers' processors waits, and not for ever; but not one that an
// agent waits for.
func TestCallsFirst(t *testing.T) {
	const soon = 10 * time.Millisecond
	for first, want := range map[bool][2]time.Duration{true: {90 * time.Millisecond, 150 * time.Millisecond}, false: {0, soon}} {
		t.Run(fmt.Sprint(first), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := &clocked{began: map[string]time.Time{}}
				r := fleet(t, 400, func(o *lifecycle.Options) {
					c.scriptedCloud = o.Cloud.(*scriptedCloud)
					o.Cloud, o.Pace.CallsFirst = c, first
				}, func(r *rig) { r.host(399, machine.Idle, "") })
				synctest.Wait()
				call := func(k machine.Kind, n int) {
					if _, err := r.do(k, func(q *machine.Request) { q.MachineID = fmt.Sprint("m", n) }); err != nil {
						t.Fatal(err)
					}
				}
				began := time.Now()
				for n := 1; n <= 300; n++ {
					call(machine.Create, n)
					if n == 1 {
						call(machine.Configure, 399)
					}
					time.Sleep(time.Millisecond) // the way to the caller and back
				}
				synctest.Wait()
				if took := c.after("m1", began); took < want[0] || took > want[1] {
					t.Errorf("the first order came after %s, want %s to %s", took, want[0], want[1])
				}
				if took := c.after("m399", began); took < 0 || took > soon {
					t.Errorf("the first step of a Configure came after %s", took)
				}
				time.Sleep(50 * time.Millisecond)
				began = time.Now()
				call(machine.Create, 400)
				time.Sleep(50 * time.Millisecond)
				if took := c.after("m400", began); took < 0 || took > soon {
					t.Errorf("an order came %s after the call of a caller that was alone", took)
				}
			})
		})
	}
}
