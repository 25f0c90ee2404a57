package lifecycle

import "context"

// drainSteps unbinds a host: power it on if somebody stopped it, since only the
// host can leave its cluster cleanly; have the agent drain; then clear the tag.
// A drain that did not complete fails, it never ends as IDLE.
func (e *Engine) drainSteps() []step {
	return append(e.powerOnSteps(),
		step{name: stepDeliver, slow: true, run: e.deliver},
		step{name: stepTag, budget: e.o.Pace.TagBudget, run: func(ctx context.Context, t *task) error {
			return e.o.Cloud.SetCluster(ctx, t.Ref, "")
		}},
	)
}
