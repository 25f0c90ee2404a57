package lifecycle

import (
	"context"
	"sync/atomic"
	"time"
)

const (
	yieldPause = 5 * time.Millisecond
	yieldTimes = 20
	// callGap is how soon after its last call a caller's next one is expected.
	callGap = 2 * time.Millisecond
)

// callers are the Starts that wait for their verdict, and when one last got it.
type callers struct {
	waiting atomic.Int32
	left    atomic.Int64 // UnixNano
}

func (c *callers) enter() { c.waiting.Add(1) }

func (c *callers) leave() {
	c.left.Store(time.Now().UnixNano())
	c.waiting.Add(-1)
}

func (c *callers) there() bool {
	return c.waiting.Load() > 0 || time.Now().UnixNano()-c.left.Load() < int64(callGap)
}

// yield lets calls go first, for a tenth of a second at most: they have
// callers, a step has none. The step keeps its token meanwhile, or the steps
// behind it would go instead.
func (e *Engine) yield(ctx context.Context) {
	for range yieldTimes {
		if !e.o.Pace.CallsFirst || !e.calls.there() || !sleep(ctx, yieldPause) {
			return
		}
	}
}
