package lifecycle_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"bigfleet-providers/provider/internal/lifecycle"
	"bigfleet-providers/provider/internal/machine"
)

// fullDisk is a store that cannot write for a while.
type fullDisk struct {
	lifecycle.Store
	full atomic.Bool
}

// DoLater refuses as the store does, without a change.
func (d *fullDisk) DoLater(ctx context.Context, id string, m machine.Mutation) (machine.Record, error) {
	if d.full.Load() {
		return machine.Record{}, &machine.Error{Code: machine.Unavailable, Text: "no space left"}
	}
	return d.Store.DoLater(ctx, id, m)
}

// TestFullDiskLeavesNoMachineWithoutDriver fills the disk at each second of a
// Create and of the teardown of a failed one: both go on once there is space.
func TestFullDiskLeavesNoMachineWithoutDriver(t *testing.T) {
	for at := range 8 {
		synctest.Test(t, func(t *testing.T) {
			var disk *fullDisk
			r := newRig(t, func(o *lifecycle.Options) {
				disk = &fullDisk{Store: o.Store}
				o.Store = disk
			})
			synctest.Wait()
			r.must(machine.Create)
			time.Sleep(time.Duration(at) * 500 * time.Millisecond)
			disk.full.Store(true)
			time.Sleep(5 * time.Minute)
			disk.full.Store(false)
			time.Sleep(10 * time.Second)
			if rec := r.record("m1"); rec.State != machine.Idle {
				t.Errorf("full from %d half seconds on: the machine stays %s", at, rec.State)
			}
			if r.cloud.size() != 1 {
				t.Errorf("full from %d half seconds on: %d servers", at, r.cloud.size())
			}
		})
		synctest.Test(t, func(t *testing.T) {
			var disk *fullDisk
			r := newRig(t, func(o *lifecycle.Options) {
				disk = &fullDisk{Store: o.Store}
				o.Store = disk
			})
			synctest.Wait()
			r.hosts.edit(func() { r.hosts.silent = true })
			r.must(machine.Create)
			r.settle(machine.Failed)
			time.Sleep(time.Duration(at) * 500 * time.Millisecond)
			disk.full.Store(true)
			time.Sleep(5 * time.Minute)
			disk.full.Store(false)
			time.Sleep(10 * time.Second)
			if rec := r.record("m1-r2"); rec.State != machine.Speculative || r.cloud.size() != 0 {
				t.Errorf("full from %d half seconds on: the successor is %s and %d servers are left", at, rec.State, r.cloud.size())
			}
		})
	}
}

// crowd is a store whose queue is full of calls, but for a few.
type crowd struct {
	lifecycle.Store
	taken, let atomic.Int64
}

// Do refuses as the store does, without a change.
func (c *crowd) Do(ctx context.Context, id string, m machine.Mutation) (machine.Record, error) {
	if let := c.let.Load(); let > 0 && c.taken.Add(1) > let {
		return machine.Record{}, &machine.Error{Code: machine.Exhausted, Text: "1024 changes wait to be written already"}
	}
	return c.Store.Do(ctx, id, m)
}

// TestCrowdFailsNoOperation: calls that come in faster than they can be written
// are refused; what was accepted goes on behind them.
func TestCrowdFailsNoOperation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c *crowd
		r := newRig(t, func(o *lifecycle.Options) {
			c = &crowd{Store: o.Store}
			o.Store = c
		})
		synctest.Wait()
		for _, k := range []machine.Kind{machine.Create, machine.Configure, machine.Drain, machine.Delete} {
			c.taken.Store(0)
			c.let.Store(1) // the call itself
			r.must(k)
			time.Sleep(time.Minute)
			if rec := r.record("m1"); rec.Op != nil || rec.State == machine.Failed {
				t.Fatalf("%s: the machine is %s: %s", k, rec.State, rec.LastError)
			}
		}
	})
}
