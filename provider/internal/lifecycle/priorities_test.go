package lifecycle_test

import (
	"context"
	"sync"
	"testing"

	"bigfleet-providers/provider/internal/cloud"
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
