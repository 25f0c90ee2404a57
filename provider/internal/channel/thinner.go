package channel

import (
	"sync"
	"time"
)

// thinInterval is how often a message that outsiders can provoke at will is
// logged.
const thinInterval = 10 * time.Second

// thinner keeps such a message from flooding the log. Its zero value is ready.
type thinner struct {
	mu    sync.Mutex
	last  time.Time
	count int
}

// due counts one occurrence and says whether to log now, and if so for how many
// occurrences the line stands.
func (t *thinner) due() (count int, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.count++
	now := time.Now()
	if !t.last.IsZero() && now.Sub(t.last) < thinInterval {
		return 0, false
	}
	count, t.count, t.last = t.count, 0, now
	return count, true
}
