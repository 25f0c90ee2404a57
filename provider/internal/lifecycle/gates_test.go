package lifecycle_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"bigfleet-providers/provider/internal/cloud"
	"bigfleet-providers/provider/internal/lifecycle"
	"bigfleet-providers/provider/internal/machine"
)

// slow is a cloud whose orders take an hour each, since the API is throttled.
type slow struct{ *scriptedCloud }

func (c slow) Create() []cloud.Step {
	steps := c.scriptedCloud.Create()
	steps[0].Run = func(ctx context.Context, _ *cloud.Task) error {
		select {
		case <-time.After(time.Hour):
		case <-ctx.Done():
		}
		return cloud.ErrThrottled
	}
	return steps
}

// A Delete does not queue behind Creates for the right to call the cloud.
func TestTeardownsPassCreates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := fleet(t, 100, func(o *lifecycle.Options) { o.Cloud = slow{o.Cloud.(*scriptedCloud)} }, func(r *rig) { r.host(1, machine.Idle, "") })
		synctest.Wait()
		for n := 2; n <= 100; n++ {
			if _, err := r.do(machine.Create, func(q *machine.Request) { q.MachineID = fmt.Sprint("m", n) }); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Second)
		r.must(machine.Delete)
		time.Sleep(time.Second)
		if s := r.record("m1").State; s != machine.Speculative {
			t.Errorf("the Delete is still waiting: %s", s)
		}
	})
}
