// Package budget keeps the calls of one process to a cloud's API below a rate.
// Calls that cannot be sent at once wait, the most urgent kind first; the rate
// falls when the cloud says that it was too much and recovers slowly. A call
// that could not be sent in time fails without being sent, which is told apart
// from a lost answer: nothing was asked, so nothing was made.
package budget

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"bigfleet-providers/provider/internal/cloud"
)

const (
	// slowest is the part of the configured rate below which refusals by the
	// cloud do not push it.
	slowest = 1.0 / 16
	// recovery is how long the rate takes from nothing back to all.
	recovery = 4 * time.Minute
	// pauseMin and pauseMax bound the pause after a refusal that names none. A
	// pause that the cloud names is obeyed up to retryAfterMax.
	pauseMin      = time.Second
	pauseMax      = 30 * time.Second
	retryAfterMax = 15 * time.Minute
	// fairness is how often the least urgent call goes first, so that a stream
	// of urgent ones cannot keep the inventory from being read.
	fairness = 8
)

// limiter is a token bucket with a queue for each priority.
type limiter struct {
	full  float64 // calls a second, as configured
	burst float64

	mu     sync.Mutex
	rate   float64 // calls a second, now
	tokens float64
	at     time.Time // of rate and tokens
	until  time.Time // nothing is sent before
	strain int       // refusals in a row, for the pause

	queues map[cloud.Priority][]*waiter
	grants int
	timer  *time.Timer // wakes the first waiter; nil when nobody waits
}

// waiter is a call that waits. ready is closed when it may be sent.
type waiter struct{ ready chan struct{} }

// errTooLate says that the call's turn comes after its time.
var errTooLate = errors.New("its turn would come after its deadline")

func newLimiter(rate float64, burst int) *limiter {
	return &limiter{
		full: rate, burst: float64(burst), rate: rate, tokens: float64(burst), at: time.Now(),
		queues: map[cloud.Priority][]*waiter{},
	}
}

// wait returns when the call may be sent, or why it may not. latest is when it
// must be under way; zero for no matter when.
func (l *limiter) wait(ctx context.Context, p cloud.Priority, latest time.Time) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	l.mu.Lock()
	l.refill()
	if l.waiting() == 0 && l.take() {
		l.mu.Unlock()
		return nil
	}
	if turn := l.turn(p); !latest.IsZero() && turn.After(latest) {
		l.mu.Unlock()
		return errTooLate
	}
	w := &waiter{ready: make(chan struct{})}
	l.queues[p] = append(l.queues[p], w)
	l.arm()
	l.mu.Unlock()

	var late <-chan time.Time
	if !latest.IsZero() {
		timer := time.NewTimer(time.Until(latest))
		defer timer.Stop()
		late = timer.C
	}
	err := errTooLate
	select {
	case <-w.ready:
		return nil
	case <-late:
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	if !l.leave(p, w) {
		return nil // its turn came in the same moment, and the token is spent
	}
	return err
}

// leave takes a waiter out of its queue; false when it is not in it any more.
func (l *limiter) leave(p cloud.Priority, w *waiter) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, other := range l.queues[p] {
		if other == w {
			l.queues[p] = append(l.queues[p][:i:i], l.queues[p][i+1:]...)
			return true
		}
	}
	return false
}

// turn estimates when a call that joins now would be sent, if no more urgent
// one came.
func (l *limiter) turn(p cloud.Priority) time.Time {
	ahead := 1 - l.tokens
	for q, waiters := range l.queues {
		if q >= p {
			ahead += float64(len(waiters))
		}
	}
	start := l.at
	if l.until.After(start) {
		start = l.until
	}
	return start.Add(time.Duration(max(ahead, 0) / l.rate * float64(time.Second)))
}

func (l *limiter) waiting() int {
	n := 0
	for _, waiters := range l.queues {
		n += len(waiters)
	}
	return n
}

// refill brings tokens and rate up to now. Nothing grows during a pause that
// the cloud asked for.
func (l *limiter) refill() {
	now := time.Now()
	from := l.at
	if l.until.After(from) {
		from = l.until
	}
	if passed := now.Sub(from).Seconds(); passed > 0 {
		l.tokens = min(l.burst, l.tokens+passed*l.rate)
		l.rate = min(l.full, l.rate+passed*l.full/recovery.Seconds())
	}
	l.at = now
}

func (l *limiter) take() bool {
	if l.tokens < 1 || time.Now().Before(l.until) {
		return false
	}
	l.tokens--
	return true
}

// arm sets the timer for the next token. Its goroutine lives for a moment and
// blocks on nothing.
func (l *limiter) arm() {
	if l.timer != nil || l.waiting() == 0 {
		return
	}
	start := time.Now()
	if l.until.After(start) {
		start = l.until
	}
	due := start.Add(time.Duration(max(1-l.tokens, 0) / l.rate * float64(time.Second)))
	// A nanosecond early would be a token short.
	l.timer = time.AfterFunc(time.Until(due)+time.Microsecond, l.release)
}

// release lets go whom the tokens suffice for.
func (l *limiter) release() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.timer = nil
	l.refill()
	for l.waiting() > 0 && l.take() {
		close(l.next().ready)
	}
	l.arm()
}

// next takes the waiter whose turn it is.
func (l *limiter) next() *waiter {
	l.grants++
	order := cloud.Priorities()
	if l.grants%fairness == 0 {
		slices.Reverse(order)
	}
	for _, p := range order {
		if q := l.queues[p]; len(q) > 0 {
			l.queues[p] = q[1:]
			return q[0]
		}
	}
	return nil // not reached: somebody waits
}

// refused takes note of a refusal for too many calls: of a call sent at sent,
// with the pause that the cloud asked for, 0 for none. The calls that were
// under way together count once.
func (l *limiter) refused(sent time.Time, pause time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.refill()
	now := l.at
	pause = min(pause, retryAfterMax)
	if sent.Before(l.until) && l.strain > 0 {
		// Of the same burst; but a longer pause that it was told is obeyed.
		l.until = later(l.until, now.Add(pause))
		return
	}
	l.rate = max(l.rate/2, l.full*slowest)
	l.tokens = 0
	if pause <= 0 {
		pause = min(pauseMin<<min(l.strain, 8), pauseMax)
	}
	l.strain++
	l.until = later(l.until, now.Add(pause))
}

// answered takes note of a call that the cloud did not refuse.
func (l *limiter) answered(sent time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if sent.After(l.until) {
		l.strain = 0
	}
}

// levels are what the metrics show.
func (l *limiter) levels() (rate, tokens float64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.refill()
	return l.rate, l.tokens
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// describe words the limit for the error of a call that was not sent.
func (l *limiter) describe() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.refill()
	text := fmt.Sprintf("the limit is %.3g calls a second now, %.3g by --api-rate", l.rate, l.full)
	if left := time.Until(l.until); left > 0 {
		text += fmt.Sprintf("; the cloud refused calls and is left alone for another %s", left.Round(time.Millisecond))
	}
	return text
}
