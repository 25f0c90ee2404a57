package lifecycle_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"bigfleet-providers/provider/internal/cloud"
	"bigfleet-providers/provider/internal/lifecycle"
	"bigfleet-providers/provider/internal/machine"
	"bigfleet-providers/provider/internal/telemetry"
	"bigfleet-providers/shared/command"
)

// scribe is a Tracer that writes down what it is told.
type scribe struct {
	mu    sync.Mutex
	lines []string
}

type place struct{}

func (s *scribe) write(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lines = append(s.lines, fmt.Sprintf(format, args...))
}

func (s *scribe) take() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	lines := s.lines
	s.lines = nil
	return lines
}

func (s *scribe) Accepted(_ context.Context, op telemetry.Operation) { s.write("accepted %s", op.Kind) }

func (s *scribe) Transition(ctx context.Context, op telemetry.Operation) (context.Context, func(string)) {
	return context.WithValue(ctx, place{}, op.Kind), func(outcome string) { s.write("%s: %s", op.Kind, outcome) }
}

func (s *scribe) Step(ctx context.Context, name string) (context.Context, func(string)) {
	at := fmt.Sprint(ctx.Value(place{}), "/", name)
	return context.WithValue(ctx, place{}, at), func(outcome string) { s.write("%s: %s", at, outcome) }
}

func (s *scribe) Span(ctx context.Context, name string, _, _ time.Time, outcome string) {
	s.write("%v/%s: %s", ctx.Value(place{}), name, outcome)
}

// TestTraces: what a Tracer is told of good ends, failures of steps, failures
// that a host reports, and steps that are given up.
func TestTraces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		told := &scribe{}
		r := newRig(t, func(o *lifecycle.Options) { o.Tracer = told })
		synctest.Wait()
		r.must(machine.Create)
		r.settle(machine.Idle)
		want := []string{"accepted Create", "Create/queued: ok", "Create/order: ok", "Create/boot: ok", "Create/first-contact: ok", "Create/scrub: ok", "Create: ok"}
		if diff := cmp.Diff(want, told.take()); diff != "" {
			t.Errorf("a Create (-want +told):\n%s", diff)
		}

		r.hosts.edit(func() { r.hosts.report = func(command.Command) (bool, string) { return false, "no route" } })
		r.must(machine.Configure)
		r.settle(machine.Failed)
		got := told.take()
		if len(got) < 2 || got[len(got)-2] != "Configure: agent" && got[len(got)-1] != "Configure: agent" {
			t.Errorf("a host's failure: %q", got)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		told := &scribe{}
		r := newRig(t, func(o *lifecycle.Options) { o.Tracer = told })
		synctest.Wait()
		r.cloud.script("order", fmt.Errorf("%w: none", cloud.ErrNoCapacity))
		r.must(machine.Create)
		r.settle(machine.Failed)
		want := []string{"accepted Create", "Create/queued: ok", "Create/order: capacity", "Create: capacity"}
		if diff := cmp.Diff(want, told.take()); diff != "" {
			t.Errorf("a failed Create (-want +told):\n%s", diff)
		}
	})
}
