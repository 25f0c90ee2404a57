package lifecycle_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"bigfleet-providers/provider/internal/machine"
	"bigfleet-providers/shared/command"
)

// aged makes a CONFIGURED machine of so many days.
func aged(t *testing.T, days int) *rig {
	t.Helper()
	return fleet(t, 1, nil, func(r *rig) {
		r.host(1, machine.Configured, "c1")
		_, err := r.store.Do(context.Background(), "m1", func(cur machine.Record) (machine.Record, machine.Change, error) {
			next := cur.Clone()
			next.Since = time.Now().AddDate(0, 0, -days)
			return next, machine.Visible, nil
		})
		if err != nil {
			r.t.Fatal(err)
		}
		r.hosts.edit(func() { r.hosts.silent = true })
	})
}

// A drain of a host that never answers ends at its deadline, which counts from
// the Drain: not from anything older, and not anew after a restart.
func TestDrainDeadline(t *testing.T) {
	const grace, timeout = time.Hour, 5 * time.Minute // timeout is newRig's
	for name, tt := range map[string]struct {
		down, up time.Duration // the provider is not there between them
		ends     time.Duration
	}{
		"no restart":                  {0, 0, grace + timeout},
		"restart in the middle":       {30 * time.Minute, 30 * time.Minute, grace + timeout},
		"away for a while":            {30 * time.Minute, 50 * time.Minute, grace + timeout},
		"away when the deadline came": {30 * time.Minute, 80 * time.Minute, 80 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := aged(t, 30)
				synctest.Wait()
				began := time.Now()
				until := func(at time.Duration) { time.Sleep(time.Until(began.Add(at))); synctest.Wait() }
				id, err := r.do(machine.Drain, func(q *machine.Request) { q.GraceSeconds = int64(grace / time.Second) })
				if err != nil {
					t.Fatal(err)
				}
				if tt.down > 0 {
					until(tt.down)
					r.stop()
					until(tt.up)
					r.start()
				}
				if last := tt.ends - time.Second; last > tt.up {
					until(last)
					if rec := r.record("m1"); rec.State != machine.Draining || rec.Op.ID != id {
						t.Fatalf("a second before its deadline the machine is %s: %q", rec.State, rec.LastError)
					}
				}
				until(tt.ends + 2*time.Second)
				rec := r.record("m1")
				if rec.State != machine.Failed || rec.Cluster != "c1" {
					t.Fatalf("after the deadline: %s in %q", rec.State, rec.Cluster)
				}
				for _, w := range []string{"Drain failed", `"deliver"`, "(timeout)", "z/h1 is kept for 1h0m0s", "; hint: deliver"} {
					if !strings.Contains(rec.LastError, w) {
						t.Errorf("last_error %q does not say %q", rec.LastError, w)
					}
				}
				for _, cmd := range r.hosts.sent() {
					if cmd.CommandID != id || cmd.Deadline.After(began.Add(grace+timeout)) || cmd.Deadline.Before(began.Add(grace)) {
						t.Errorf("the host was given %s with deadline %s", cmd.CommandID, cmd.Deadline.Sub(began))
					}
				}
				// A drain that hangs does not hold its host for ever either.
				time.Sleep(2 * time.Hour)
				if n := r.cloud.size(); n != 0 || r.record("m1-r2").State != machine.Speculative {
					t.Errorf("%d servers are left, the slot's next machine is %s", n, r.record("m1-r2").State)
				}
			})
		})
	}
}

// What blocked a drain is what the host said last, and a host that could not be
// drained never passes for free.
func TestDrainThatIsBlocked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := aged(t, 1)
		synctest.Wait()
		const words = "cannot evict pod web-0: it would violate the disruption budget"
		r.hosts.edit(func() {
			r.hosts.silent = false
			r.hosts.report = func(command.Command) (bool, string) { return false, words }
		})
		r.must(machine.Drain)
		rec := r.settle(machine.Failed)
		if !strings.Contains(rec.LastError, words) || !strings.Contains(rec.LastError, "(agent)") || rec.Cluster != "c1" {
			t.Errorf("%q in cluster %q", rec.LastError, rec.Cluster)
		}
		if _, err := r.do(machine.Configure, nil); err == nil {
			t.Error("a host that was not drained was configured")
		}
	})
}
