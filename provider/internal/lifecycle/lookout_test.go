package lifecycle_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"bigfleet-providers/provider/internal/cloud"
	"bigfleet-providers/provider/internal/lifecycle"
	"bigfleet-providers/provider/internal/machine"
)

// waitsFor brings m1 to where the kind of operation waits for its host.
func waitsFor(t *testing.T, r *rig, h *livingHosts, k machine.Kind) {
	t.Helper()
	r.must(machine.Create)
	if k == machine.Create {
		time.Sleep(time.Second)
		return
	}
	time.Sleep(time.Second)
	h.call()
	r.settle(machine.Idle)
	r.must(machine.Configure)
	if k == machine.Drain {
		time.Sleep(time.Second)
		h.reports(true, "")
		r.settle(machine.Configured)
		r.must(machine.Drain)
	}
	time.Sleep(time.Second)
}

// A host that is stopped, locked or removed while an operation waits for it ends
// the operation in a look or two, by the cloud's word and not by the deadline.
func TestHostIsLostWhileItIsAwaited(t *testing.T) {
	const poll = 5 * time.Second
	losses := map[string]struct {
		lose func(*scriptedCloud)
		word string
		kept bool // where it was bound
	}{
		"stopped": {func(c *scriptedCloud) { c.powered("z/1", cloud.PowerStopped, "stopped in place") }, "z/1 is stopped in place", true},
		"locked":  {func(c *scriptedCloud) { c.powered("z/1", cloud.PowerLocked, "locked (abuse)") }, "z/1 is locked (abuse)", true},
		"gone":    {func(c *scriptedCloud) { c.edit(func() { delete(c.instances, "z/1") }) }, "no longer knows host z/1", false},
	}
	for _, k := range []machine.Kind{machine.Create, machine.Configure, machine.Drain} {
		for name, loss := range losses {
			for _, restarted := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s/%s/restarted=%t", k, name, restarted), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						h := newLivingHosts()
						r := newRig(t, living(h, poll))
						synctest.Wait()
						waitsFor(t, r, h, k)
						loss.lose(r.cloud)
						if restarted {
							r.stop()
							time.Sleep(time.Minute)
							r.start()
						}
						began := time.Now()
						rec := r.settle(machine.Failed)
						if took := time.Since(began); took > 5*poll+3*time.Second {
							t.Errorf("it was noticed after %s", took)
						}
						if !strings.Contains(rec.LastError, loss.word) || !strings.Contains(rec.LastError, "(missing)") {
							t.Errorf("last_error %q does not say %q", rec.LastError, loss.word)
						}
						if kept := strings.Contains(rec.LastError, "is kept for"); kept != (loss.kept && k != machine.Create) {
							t.Errorf("last_error %q", rec.LastError)
						}
					})
				})
			}
		}
	}
}

// What is not lost goes on: a host that was away for one look, one on its way
// between two states, one that cannot be read, and one that is heard from whatever
// the cloud says of it.
func TestHostIsNotLost(t *testing.T) {
	for _, poll := range []time.Duration{time.Second, 5 * time.Second, 15 * time.Second} {
		hostIsNotLost(t, poll)
	}
}

func hostIsNotLost(t *testing.T, poll time.Duration) {
	for name, faults := range map[string]func(*scriptedCloud, *livingHosts){
		"back before the second look": func(c *scriptedCloud, _ *livingHosts) {
			c.powered("z/1", cloud.PowerStopped, "stopped")
			time.AfterFunc(4*poll+poll/2, func() { c.powered("z/1", cloud.PowerRunning, "running") })
		},
		"stopping for ever":  func(c *scriptedCloud, _ *livingHosts) { c.powered("z/1", cloud.PowerChanging, "stopping") },
		"a word of tomorrow": func(c *scriptedCloud, _ *livingHosts) { c.powered("z/1", cloud.PowerUnknown, "hibernated") },
		"unread": func(c *scriptedCloud, _ *livingHosts) {
			c.edit(func() { c.unread["z/1"] = func(context.Context) error { return errors.New("503") } })
		},
		"stopped, but it answers": func(c *scriptedCloud, h *livingHosts) {
			h.lives(true)
			c.powered("z/1", cloud.PowerStopped, "stopped")
		},
		"gone, but it answers": func(c *scriptedCloud, h *livingHosts) {
			h.lives(true)
			c.edit(func() { c.unread["z/1"] = func(context.Context) error { return cloud.ErrNotFound } })
		},
	} {
		t.Run(fmt.Sprint(poll, "/", name), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newLivingHosts()
				r := newRig(t, living(h, poll))
				synctest.Wait()
				waitsFor(t, r, h, machine.Configure)
				faults(r.cloud, h)
				time.Sleep(4 * time.Minute)
				if rec := r.record("m1"); rec.State != machine.Configuring {
					t.Fatalf("the machine is %s: %s", rec.State, rec.LastError)
				}
				h.reports(true, "")
				r.settle(machine.Configured)
			})
		})
	}
}

// A report that comes in the moment in which its host is lost counts: the host did
// its work.
func TestReportOfALostHost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newLivingHosts()
		r := newRig(t, living(h, 5*time.Second))
		synctest.Wait()
		waitsFor(t, r, h, machine.Drain)
		h.mu.Lock()
		h.atLast = true
		h.mu.Unlock()
		r.cloud.powered("z/1", cloud.PowerStopped, "stopped")
		r.settle(machine.Idle)
	})
}

// Looks at the hosts of a burst cost a bounded share of the calls.
func TestLooksAreFew(t *testing.T) {
	const (
		machines = 200
		poll     = 5 * time.Second
	)
	for _, many := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			h := newLivingHosts()
			var reads *countedReads
			r := fleet(t, machines, func(o *lifecycle.Options) {
				living(h, poll)(o)
				reads = &countedReads{scriptedCloud: o.Cloud.(*scriptedCloud)}
				o.Cloud = reads
				if many {
					o.Cloud = manyReads{reads}
				}
			}, func(*rig) {})
			synctest.Wait()
			for n := 1; n <= machines; n++ {
				if _, err := r.do(machine.Create, func(q *machine.Request) { q.MachineID = fmt.Sprint("m", n) }); err != nil {
					t.Fatal(err)
				}
			}
			time.Sleep(time.Minute)
			reads.take()
			time.Sleep(5 * time.Minute)
			gets, lists := reads.take()
			// One a second at most; where one call reads fifty, each host every 20 s.
			most := 300 + 4
			if many {
				most = 4*15 + 4
				if lists < 45 {
					t.Errorf("%d reads of many in 5 minutes", lists)
				}
			}
			if gets+lists > most || gets+lists == 0 {
				t.Errorf("many=%t: %d reads of one and %d of many in 5 minutes, want %d at most", many, gets, lists, most)
			}
		})
	}
}
