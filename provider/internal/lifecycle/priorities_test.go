package lifecycle_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"bigfleet-providers/provider/internal/cloud"
	"bigfleet-providers/provider/internal/lifecycle"
	"bigfleet-providers/provider/internal/machine"
)

// priorities is a cloud that notes how urgent its calls are.
type priorities struct {
	cloud.Cloud
	cloud.Deleter

	mu   sync.Mutex
	seen map[string]cloud.Priority
}

func (p *priorities) note(ctx context.Context, what string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.seen[what] = cloud.PriorityOf(ctx)
}

func (p *priorities) noted(steps []cloud.Step) []cloud.Step {
	for i, s := range steps {
		steps[i].Run = func(ctx context.Context, t *cloud.Task) error {
			p.note(ctx, s.Name)
			return s.Run(ctx, t)
		}
	}
	return steps
}

func (p *priorities) Create() []cloud.Step  { return p.noted(p.Cloud.Create()) }
func (p *priorities) Discard() []cloud.Step { return p.noted(p.Cloud.Discard()) }
func (p *priorities) Delete() []cloud.Step  { return p.noted(p.Deleter.Delete()) }

func (p *priorities) Start() []cloud.Step { return p.noted(p.Cloud.Start()) }

func (p *priorities) Scrub(ctx context.Context, ref string) error {
	p.note(ctx, "scrub")
	return p.Cloud.Scrub(ctx, ref)
}

func (p *priorities) SetCluster(ctx context.Context, ref, cluster string) error {
	p.note(ctx, "tag")
	return p.Cloud.SetCluster(ctx, ref, cluster)
}

func (p *priorities) List(ctx context.Context) ([]cloud.Instance, error) {
	p.note(ctx, "list")
	return p.Cloud.List(ctx)
}

func (p *priorities) check(t *testing.T, want map[string]cloud.Priority) {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	for what, priority := range want {
		if got, called := p.seen[what]; !called || got != priority {
			t.Errorf("%s was called (%v) with priority %s, want %s", what, called, got, priority)
		}
	}
}

// Calls carry the urgency of what they are for.
func TestCallsCarryTheirPriority(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var watch *priorities
		r := newRig(t, func(o *lifecycle.Options) {
			watch = &priorities{Cloud: o.Cloud, Deleter: o.Deleter, seen: map[string]cloud.Priority{}}
			o.Cloud, o.Deleter = watch, watch
		})
		synctest.Wait()
		r.must(machine.Create)
		r.settle(machine.Idle)
		r.must(machine.Configure)
		r.settle(machine.Configured)
		r.must(machine.Drain)
		r.settle(machine.Idle)
		r.must(machine.Delete)
		r.settle(machine.Speculative)
		r.cloud.script("boot", cloud.ErrInvalid)
		r.must(machine.Create)
		r.settle(machine.Failed)
		time.Sleep(time.Minute)
		watch.check(t, map[string]cloud.Priority{
			"order": cloud.Order, "boot": cloud.Work, "scrub": cloud.Host, "start": cloud.Host, "tag": cloud.Host, "terminate": cloud.Teardown, "discard": cloud.Teardown, "list": cloud.Background,
		})
	})
}
