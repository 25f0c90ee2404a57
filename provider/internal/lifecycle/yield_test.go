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

// clocked is a cloud that notes when each machine was ordered.
type clocked struct {
	*scriptedCloud
	mu     sync.Mutex
	orders map[string]time.Time
}

func (c *clocked) Create() []cloud.Step {
	steps := c.scriptedCloud.Create()
	order := steps[0].Run
	steps[0].Run = func(ctx context.Context, t *cloud.Task) error {
		c.mu.Lock()
		c.orders[t.Spec.MachineID] = time.Now()
		c.mu.Unlock()
		return order(ctx, t)
	}
	return steps
}

// TestCallsFirst: while one caller calls without a pause, a step of a cloud that
// shares the callers' processors waits, and not for ever.
func TestCallsFirst(t *testing.T) {
	for first, want := range map[bool][2]time.Duration{true: {90 * time.Millisecond, 150 * time.Millisecond}, false: {0, 10 * time.Millisecond}} {
		t.Run(fmt.Sprint(first), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := &clocked{orders: map[string]time.Time{}}
				r := fleet(t, 400, func(o *lifecycle.Options) {
					c.scriptedCloud = o.Cloud.(*scriptedCloud)
					o.Cloud, o.Pace.CallsFirst = c, first
				}, func(*rig) {})
				synctest.Wait()
				began := time.Now()
				for n := 1; n <= 300; n++ {
					if _, err := r.do(machine.Create, func(q *machine.Request) { q.MachineID = fmt.Sprint("m", n) }); err != nil {
						t.Fatal(err)
					}
					time.Sleep(time.Millisecond) // the way to the caller and back
				}
				synctest.Wait()
				c.mu.Lock()
				took := c.orders["m1"].Sub(began)
				c.mu.Unlock()
				if took < want[0] || took > want[1] {
					t.Errorf("the first order came after %s, want %s to %s", took, want[0], want[1])
				}
				time.Sleep(50 * time.Millisecond)
				began = time.Now()
				if _, err := r.do(machine.Create, func(q *machine.Request) { q.MachineID = "m400" }); err != nil {
					t.Fatal(err)
				}
				time.Sleep(50 * time.Millisecond)
				c.mu.Lock()
				defer c.mu.Unlock()
				if took := c.orders["m400"].Sub(began); took < 0 || took > 10*time.Millisecond {
					t.Errorf("an order came %s after the call of a caller that was alone", took)
				}
			})
		})
	}
}
