package elasticmetal

import (
	"sync"
	"time"
)

// turn lets one operation at a time order a server or take a spare one. The API
// answers 500 to orders that cross in one project and zone, and two operations
// must not take one spare. Whose order is in doubt keeps the turn.
type turn struct {
	mu     sync.Mutex
	holder string // an operation id, or a name of other work
	until  time.Time
}

// take gives the turn to the holder, if it is free, its own, or forgotten by
// whoever had it.
func (t *turn) take(holder string, life time.Duration) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	if t.holder != "" && t.holder != holder && now.Before(t.until) {
		return false
	}
	t.holder, t.until = holder, now.Add(life)
	return true
}

// renew gives the holder more time, if the turn is still its own.
func (t *turn) renew(holder string, life time.Duration) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	if t.holder != holder || !now.Before(t.until) {
		return false
	}
	t.until = now.Add(life)
	return true
}

func (t *turn) leave(holder string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.holder == holder {
		t.holder = ""
	}
}
