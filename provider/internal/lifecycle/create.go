package lifecycle

import (
	"context"

	"bigfleet-providers/provider/internal/cloud"
)

// Names of our own steps; the cloud names its own.
const (
	stepContact = "first-contact" // the host's agent was heard from
	stepScrub   = "scrub"         // the token leaves the cloud's user data
	stepDeliver = "deliver"       // the host carries out a command
	stepTag     = "tag"           // the cloud's cluster tag follows the binding
)

// cloudSteps makes the cloud's steps ours.
func cloudSteps(steps []cloud.Step) []step {
	plan := make([]step, 0, len(steps)+2)
	for _, s := range steps {
		plan = append(plan, step{name: s.Name, sign: s.Sign, run: func(ctx context.Context, t *task) error { return s.Run(ctx, &t.Task) }})
	}
	return plan
}

// createSteps takes a slot from nothing to a host whose agent is there: an IDLE
// machine is one that can be configured at once.
func (e *Engine) createSteps() []step {
	return append(cloudSteps(e.o.Cloud.Create()),
		step{name: stepContact, slow: true, run: func(ctx context.Context, t *task) error {
			e.noteSale(t) // it runs
			return e.whileThere(ctx, t, func(ctx context.Context) error {
				return e.o.Delivery.Contact(ctx, t.rec.ID, t.op.Started)
			})
		}},
		step{name: stepScrub, budget: e.o.Pace.TagBudget, run: func(ctx context.Context, t *task) error {
			return e.o.Cloud.Scrub(ctx, t.Ref)
		}},
	)
}
