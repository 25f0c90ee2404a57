package lifecycle_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"bigfleet-providers/provider/internal/cloud"
	"bigfleet-providers/provider/internal/lifecycle"
	"bigfleet-providers/provider/internal/machine"
)

var errStarting = cloud.Again(5*time.Second, "it takes its time")

const reconnect = 2 * time.Minute

// TestReportAfterAnOutage: what a host did while no provider was there counts,
// although the deadline has passed meanwhile, or passes before the host can have
// come back; over several restarts, of which none lasts long enough.
func TestReportAfterAnOutage(t *testing.T) {
	ends := map[machine.Kind]machine.State{machine.Create: machine.Idle, machine.Configure: machine.Configured, machine.Drain: machine.Idle}
	for k, end := range ends {
		for name, outage := range map[string]time.Duration{"past the deadline": time.Hour, "a moment before it": -time.Second} {
			t.Run(k.String()+"/"+name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					h := newLivingHosts()
					r := newRig(t, func(o *lifecycle.Options) {
						living(h, 5*time.Second)(o)
						o.Pace.Reconnect = reconnect
					})
					synctest.Wait()
					waitsFor(t, r, h, k)
					id, deadline := r.record("m1").Op.ID, r.record("m1").Op.Deadline
					r.stop()
					time.Sleep(time.Until(deadline.Add(outage)))
					for range 3 {
						r.start()
						time.Sleep(reconnect - 5*time.Second)
						if rec := r.record("m1"); rec.Op == nil || rec.Op.ID != id || !rec.Op.Deadline.Equal(deadline) {
							t.Fatalf("the host had no time: %s, %s", rec.State, rec.LastError)
						}
						r.stop()
					}
					r.start()
					time.Sleep(time.Minute)
					if k == machine.Create {
						h.call()
					} else {
						h.reports(true, "")
					}
					r.settle(end)
				})
			})
		}
	}
}

// TestSilenceAfterAnOutage: a host that says nothing for so long after a start has
// missed its deadline; an operation that its host cannot know of ends at once.
func TestSilenceAfterAnOutage(t *testing.T) {
	for name, tt := range map[string]struct {
		reached machine.Kind // the operation that waits for its host
		booting bool         // it does not yet
		ends    time.Duration
	}{
		"Create":             {machine.Create, false, reconnect},
		"Configure":          {machine.Configure, false, reconnect},
		"Drain":              {machine.Drain, false, reconnect},
		"Create, no host":    {machine.Create, true, 0},
		"Configure, no word": {machine.Configure, true, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newLivingHosts()
				r := newRig(t, func(o *lifecycle.Options) {
					living(h, 5*time.Second)(o)
					o.Pace.Reconnect = reconnect
				})
				synctest.Wait()
				if tt.booting {
					step := map[machine.Kind]string{machine.Create: "order", machine.Configure: "start"}[tt.reached]
					r.cloud.script(step, slicesOf(errStarting, 1000)...)
				}
				if tt.reached == machine.Configure && tt.booting {
					r.must(machine.Create)
					time.Sleep(time.Second)
					h.call()
					r.settle(machine.Idle)
					r.must(machine.Configure)
					time.Sleep(time.Second)
				} else {
					waitsFor(t, r, h, tt.reached)
				}
				deadline := r.record("m1").Op.Deadline
				r.stop()
				time.Sleep(time.Until(deadline.Add(time.Hour)))
				r.start()
				began := time.Now()
				rec := r.settle(machine.Failed)
				if took := time.Since(began); took < tt.ends || took > tt.ends+2*time.Second {
					t.Errorf("it ended %s after the start, want %s", took, tt.ends)
				}
				if !strings.Contains(rec.LastError, "(timeout)") {
					t.Errorf("last_error %q", rec.LastError)
				}
			})
		})
	}
}
