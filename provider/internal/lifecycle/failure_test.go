package lifecycle_test

import (
	"errors"
	"fmt"
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

func TestFailures(t *testing.T) {
	transient := errors.New("503")
	for name, tc := range map[string]struct {
		step  string
		errs  []error
		want  machine.State
		says  []string
		tries int
	}{
		"transient":  {"order", []error{transient, transient, cloud.ErrThrottled}, machine.Idle, nil, 4},
		"again":      {"boot", []error{cloud.Again(time.Minute, "boots"), cloud.Again(time.Minute, "boots")}, machine.Idle, nil, 3},
		"capacity":   {"boot", []error{cloud.ErrNoCapacity}, machine.Failed, []string{"Create", `"boot"`, "(capacity)", "z/1", "another type"}, 1},
		"quota":      {"order", []error{cloud.ErrQuota}, machine.Failed, []string{`"order"`, "(quota)", "raise"}, 1},
		"invalid":    {"order", []error{cloud.ErrInvalid}, machine.Failed, []string{"(invalid)"}, 1},
		"flapping":   {"order", []error{cloud.ErrDenied, cloud.ErrDenied}, machine.Idle, nil, 3},
		"permission": {"order", []error{cloud.ErrDenied, cloud.ErrDenied, cloud.ErrDenied, cloud.ErrDenied, cloud.ErrDenied, cloud.ErrDenied, cloud.ErrDenied}, machine.Failed, []string{"(permission)"}, 6},
		"endless":    {"boot", slicesOf(cloud.Again(time.Minute, "starting for ever"), 100), machine.Failed, []string{"(timeout)", "starting for ever", "deadline", "raise --create-timeout"}, 10},
		"scrub":      {"scrub", slicesOf(transient, 100), machine.Idle, nil, 6},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, nil)
				synctest.Wait()
				r.cloud.script(tc.step, tc.errs...)
				r.must(machine.Create)
				rec := r.settle(tc.want)
				for _, w := range tc.says {
					if !strings.Contains(rec.LastError, w) {
						t.Errorf("last_error %q does not say %q", rec.LastError, w)
					}
				}
				if n := r.cloud.count(tc.step); n < tc.tries || n > tc.tries+3 {
					t.Errorf("%d tries of %s, want about %d", n, tc.step, tc.tries)
				}
			})
		})
	}
}

// TestRefusalsAreCountedOverCheckpoints: a step that has its notes made durable
// before each try gets no more tries for it.
func TestRefusalsAreCountedOverCheckpoints(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		synctest.Wait()
		var script []error
		for range 20 {
			script = append(script, cloud.Again(0, "about to be sent"), cloud.ErrDenied)
		}
		r.cloud.script("order", script...)
		r.must(machine.Create)
		if rec := r.settle(machine.Failed); !strings.Contains(rec.LastError, "(permission)") || !strings.Contains(rec.LastError, "6 tries failed") {
			t.Errorf("last_error %q, want the end after 6 refusals", rec.LastError)
		}
	})
}

// TestThrottledTriesStayNear: the limit on calls sets the pace, so that ten
// refusals in a row do not cost minutes more.
func TestThrottledTriesStayNear(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		synctest.Wait()
		var script []error
		for range 10 {
			script = append(script, cloud.Again(0, "about to be sent"), cloud.ErrThrottled)
		}
		r.cloud.script("order", script...)
		begun := time.Now()
		r.must(machine.Create)
		r.settle(machine.Idle)
		if took := time.Since(begun); took > time.Minute {
			t.Errorf("it took %s", took)
		}
	})
}

// Failed tries are in last_error, with since when.
func TestLastErrorCountsTries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		synctest.Wait()
		r.cloud.script("order", slicesOf(fmt.Errorf("%w: PermissionSet BlockStorageFullAccess", cloud.ErrDenied), 10)...)
		r.must(machine.Create)
		rec := r.settle(machine.Failed)
		for _, want := range []string{`at step "order"`, "(permission)", "BlockStorageFullAccess", "6 tries failed since 2000-01-01T00:00:00Z", "check the API key"} {
			if !strings.Contains(rec.LastError, want) {
				t.Errorf("last_error %q does not say %q", rec.LastError, want)
			}
		}
	})
	for last, remedy := range map[error]string{
		errors.New("HTTP 503"): "raise --create-timeout",
		cloud.ErrThrottled:     "the cloud, or --rate, allows",
	} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, nil)
			synctest.Wait()
			r.cloud.script("boot", slicesOf(last, 1000)...)
			r.must(machine.Create)
			rec := r.settle(machine.Failed)
			for _, want := range []string{"(timeout)", "the deadline passed; last: " + last.Error(), "tries failed since 2000-01-01T00:00:00Z", "host z/1 is being removed", remedy} {
				if !strings.Contains(rec.LastError, want) {
					t.Errorf("last_error %q does not say %q", rec.LastError, want)
				}
			}
		})
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
