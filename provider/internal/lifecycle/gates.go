package lifecycle

import (
	"context"

	"bigfleet-providers/provider/internal/cloud"
)

// gates bound the cloud steps that run at the same time. Teardowns have one of
// their own: behind hundreds of Creates that wait for their share of the API's
// rate, the urgency of a Delete's calls would be of no use.
type gates struct{ teardown, others chan struct{} }

func newGates(steps int) gates {
	steps = max(steps, 1)
	return gates{teardown: make(chan struct{}, steps), others: make(chan struct{}, steps)}
}

// enter waits for a token, which leave gives back.
func (g gates) enter(ctx context.Context) (leave func(), err error) {
	gate := g.others
	if cloud.PriorityOf(ctx) == cloud.Teardown {
		gate = g.teardown
	}
	select {
	case gate <- struct{}{}:
		return func() { <-gate }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}
