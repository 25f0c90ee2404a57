package lifecycle_test

import (
	"context"
	"sync"

	"bigfleet-providers/provider/internal/cloud"
)

// countedReads counts what is read of instances.
type countedReads struct {
	*scriptedCloud
	mu         sync.Mutex
	one, lists int
}

func (c *countedReads) Get(ctx context.Context, ref string) (cloud.Instance, error) {
	c.mu.Lock()
	c.one++
	c.mu.Unlock()
	return c.scriptedCloud.Get(ctx, ref)
}

// take returns the counts and begins again.
func (c *countedReads) take() (one, lists int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	one, lists = c.one, c.lists
	c.one, c.lists = 0, 0
	return one, lists
}

// manyReads can read many with one call.
type manyReads struct{ *countedReads }

func (c manyReads) GetMany(ctx context.Context, refs []string) ([]cloud.Instance, error) {
	c.mu.Lock()
	c.lists++
	c.mu.Unlock()
	var all []cloud.Instance
	for _, ref := range refs {
		if in, err := c.scriptedCloud.Get(ctx, ref); err == nil {
			all = append(all, in)
		}
	}
	return all, nil
}
