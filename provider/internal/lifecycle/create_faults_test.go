package lifecycle_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"bigfleet-providers/provider/internal/cloud"
	"bigfleet-providers/provider/internal/lifecycle"
	"bigfleet-providers/provider/internal/machine"
	"bigfleet-providers/provider/internal/telemetry"
)

// A server that was just ordered is in no list for two minutes and cannot be
// read for twenty seconds. Whoever asks for it again meanwhile is told of the
// one Create, and nothing is ordered twice or taken for lost.
func TestCreateAgainWhileReadsLag(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		synctest.Wait()
		began := time.Now()
		r.cloud.edit(func() {
			r.cloud.hidden["z/1"] = began.Add(120 * time.Second)
			r.cloud.unread["z/1"] = func(context.Context) error {
				if time.Since(began) < 20*time.Second {
					return cloud.ErrNotFound
				}
				return nil
			}
		})
		r.cloud.script("boot", slicesOf(cloud.Again(10*time.Second, "boots"), 9)...)
		first := r.must(machine.Create)
		for _, at := range []time.Duration{time.Second, 10 * time.Second, 30 * time.Second, 60 * time.Second} {
			time.Sleep(time.Until(began.Add(at)))
			if err := r.engine.Reconcile(t.Context()); err != nil {
				t.Fatal(err)
			}
			if again := r.must(machine.Create); again != first {
				t.Errorf("Create after %s began operation %s, want a replay of %s", at, again, first)
			}
			if s := r.record("m1").State; s != machine.Creating {
				t.Fatalf("the machine is %s after %s", s, at)
			}
		}
		if rec := r.settle(machine.Idle); rec.Host != "z/1" {
			t.Errorf("host %+v", rec.Host)
		}
		time.Sleep(time.Hour)
		if n := r.cloud.count("order"); n != 1 || r.cloud.size() != 1 || r.record("m1").State != machine.Idle {
			t.Errorf("%d orders made %d servers; the machine is %s", n, r.cloud.size(), r.record("m1").State)
		}
	})
}

// A boot may take as long as the operator allows. One that takes longer fails
// once, with the stage named, and is not begun again in a loop.
func TestSlowBoot(t *testing.T) {
	for minutes, want := range map[int]machine.State{14: machine.Idle, 25: machine.Failed} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, func(o *lifecycle.Options) { o.Timeouts.Create = 20 * time.Minute })
			synctest.Wait()
			r.cloud.script("boot", slicesOf(cloud.Again(time.Minute, "the server is starting"), minutes)...)
			r.must(machine.Create)
			rec := r.settle(want)
			if want == machine.Failed {
				for _, w := range []string{`at step "boot"`, "after 20m0s", "(timeout)", "the server is starting", "--create-timeout"} {
					if !strings.Contains(rec.LastError, w) {
						t.Errorf("last_error %q does not say %q", rec.LastError, w)
					}
				}
			}
			time.Sleep(6 * time.Hour)
			servers := map[machine.State]int{machine.Idle: 1}[want]
			if n := r.cloud.count("order"); n != 1 || r.cloud.size() != servers {
				t.Errorf("a boot of %d min: %d orders, %d servers are left, want 1 and %d", minutes, n, r.cloud.size(), servers)
			}
		})
	}
}

// A Delete that comes at any time of a Create is refused, so that the two never
// race for the server; and whatever becomes of the Create, no server stays that
// nobody wants.
func TestDeleteDuringCreate(t *testing.T) {
	const takes = 8 * time.Second
	for range 10 {
		at := rand.N(takes - time.Second)
		for _, outcome := range []error{nil, cloud.ErrNoCapacity} {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, nil)
				synctest.Wait()
				r.cloud.script("order", cloud.Again(takes/2, "not answered"))
				r.cloud.script("boot", append(slicesOf(cloud.Again(takes/2, "boots"), 1), slicesOf(outcome, 1)...)...)
				r.must(machine.Create)
				time.Sleep(at)
				var refused *machine.Error
				if _, err := r.do(machine.Delete, nil); !errors.As(err, &refused) || refused.Code != machine.Busy || !strings.Contains(refused.Text, "CREATING") {
					t.Fatalf("Delete %s into a Create: %v", at, err)
				}
				if outcome == nil {
					r.settle(machine.Idle)
					r.must(machine.Delete)
					r.settle(machine.Speculative)
				} else {
					r.settle(machine.Failed)
					time.Sleep(time.Minute)
				}
				if n := r.cloud.size(); n != 0 || r.cloud.count("boot") == 0 {
					t.Errorf("a Delete %s into a Create that ended with %v: %d servers are left", at, outcome, n)
				}
			})
		}
	}
}

// settled keeps how operations ended.
type settled struct {
	*witness
	mu    sync.Mutex
	ended []string // "kind class"
}

func (s *settled) Settled(k machine.Kind, class string, _ time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = append(s.ended, fmt.Sprint(k, " ", class))
}

// Why a machine failed is in its last_error, in the log and in the metric, with
// the cloud's own words and one class that says who can help.
func TestFailureIsToldEverywhere(t *testing.T) {
	for class, cause := range map[string]error{
		"capacity":   fmt.Errorf("%w: out of stock: GP1-XS", cloud.ErrNoCapacity),
		"quota":      fmt.Errorf("%w: instances_gp1_xs (quota 10, in use 10)", cloud.ErrQuota),
		"permission": fmt.Errorf("%w: write server", cloud.ErrDenied),
		"invalid":    fmt.Errorf("%w: image is required", cloud.ErrInvalid),
		"missing":    fmt.Errorf("%w: instance_server", cloud.ErrNotFound),
	} {
		t.Run(class, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &settled{}
				r := newRig(t, func(o *lifecycle.Options) {
					s.witness = o.Observer.(*witness)
					o.Observer = s
				})
				synctest.Wait()
				r.cloud.script("boot", slicesOf(cause, 10)...)
				id := r.must(machine.Create)
				rec := r.settle(machine.Failed)
				for _, w := range []string{"Create failed", `at step "boot"`, "(" + class + ")", cause.Error()} {
					if !strings.Contains(rec.LastError, w) {
						t.Errorf("last_error %q does not say %q", rec.LastError, w)
					}
				}
				advice := rec.LastError[strings.LastIndex(rec.LastError, ";"):]
				if strings.ContainsAny(rec.LastError, "\r\n") || len(advice) < 20 {
					t.Errorf("last_error %q is not one line that ends with what to do", rec.LastError)
				}
				for _, w := range []string{id, telemetry.KeyMachine + "=m1", "class=" + class, cause.Error()} {
					if !strings.Contains(r.log.String(), w) {
						t.Errorf("the log does not say %q", w)
					}
				}
				s.mu.Lock()
				defer s.mu.Unlock()
				if want := "Create " + class; len(s.ended) != 1 || s.ended[0] != want {
					t.Errorf("counted %q, want %q", s.ended, want)
				}
			})
		})
	}
}

// A key that may not read does not empty the fleet: not when the inventory is
// refused, and not when a server that the list lacks cannot be read.
func TestRefusedReadsAreNoEmptyInventory(t *testing.T) {
	denied := fmt.Errorf("list servers: %w: read server", cloud.ErrDenied)
	for name, change := range map[string]func(*rig){
		"the inventory": func(r *rig) { r.cloud.listErr = denied },
		"each server": func(r *rig) {
			for n := 1; n <= 10; n++ {
				ref := fmt.Sprint("z/h", n)
				r.cloud.unread[ref] = func(context.Context) error { return denied }
				r.cloud.hidden[ref] = time.Now().Add(1000 * time.Hour)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := fleet(t, 10, nil, func(r *rig) {
					for n := 1; n <= 5; n++ {
						r.host(n, machine.Configured, "c1")
						r.host(n+5, machine.Idle, "")
					}
				})
				time.Sleep(time.Minute)
				r.cloud.edit(func() { change(r) })
				time.Sleep(24 * time.Hour)
				if got := r.states(10); got[machine.Configured] != 5 || got[machine.Idle] != 5 {
					t.Errorf("states %v", got)
				}
				if n := r.cloud.size(); n != 10 || len(r.cloud.calls) > 0 {
					t.Errorf("%d servers are left after calls %q", n, r.cloud.calls)
				}
				if !strings.Contains(r.log.String(), "read server") {
					t.Error("the log does not say what is not permitted")
				}
			})
		})
	}
}
