package lifecycle

import (
	"context"

	"bigfleet-providers/provider/internal/cloud"
)

// gates bound the cloud steps that run at the same time, those of each priority by
// themselves: behind hundreds of orders that wait for their share of the API's
// rate, the urgency of what is more urgent would be of no use.
type gates map[cloud.Priority]chan struct{}

func newGates(steps int) gates {
	g := gates{}
	for _, p := range cloud.Priorities() {
		g[p] = make(chan struct{}, max(steps, 1))
	}
	return g
}

// enter waits for a token, which leave gives back.
func (g gates) enter(ctx context.Context) (leave func(), err error) {
	gate := g[cloud.PriorityOf(ctx)]
	select {
	case gate <- struct{}{}:
		return func() { <-gate }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}
