package agent

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/cenkalti/backoff/v4"

	"bigfleet-providers/agent/internal/poll"
	"bigfleet-providers/shared/command"
)

// turnSlice is how often a pausing main loop shows that it is alive.
const turnSlice = 5 * time.Second

// failure logs err, with what an operator needs to find its cause, and pauses
// before the next try: as long as the provider asked for, else longer each time.
func (a *agent) failure(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return
	}
	if status, ok := errors.AsType[*poll.StatusError](err); ok {
		a.contact(status.Date)
		// A provider that restarts, or has too many at once, is no failure.
		if status.RetryAfter > 0 && (status.Code == http.StatusServiceUnavailable || status.Code == http.StatusTooManyRequests) {
			a.log.Debug("the provider asks to come back later", "after", status.RetryAfter)
			a.show("waiting as the provider asked", "")
			// Not all agents at once: the header has whole seconds, agents have all that
			// is between.
			a.sleep(ctx, status.RetryAfter+rand.N(max(status.RetryAfter/4, time.Second)))
			return
		}
	}
	a.refused(err)
	err = poll.Explain(err, time.Now(), a.seen)
	row := a.pause
	if !a.status.LastContact.IsZero() {
		row = a.back
	}
	pause := row.NextBackOff()
	// The same failure at the same place is said once, then at debug level: a
	// provider that is away for a day must not fill the log.
	level := a.log.Debug
	if class := poll.Class(err); class != a.failed {
		a.failed, level = class, a.log.Warn
	}
	level("cannot work with the provider, trying again for ever", "error", err, "pause", pause.Round(time.Millisecond))
	a.show("retrying", err.Error())
	if !a.sleep(ctx, pause) {
		// Cut short by the end of a hook. The next failure is the first after it, and
		// waits no longer for that.
		row.Reset()
	}
}

// comeBack is how many times BackoffMin the first pause lasts at most after contact
// was lost.
const comeBack = 10

// spread makes the pauses after contact was lost. A provider that is killed loses
// all its agents in the same moment, so that each pause is any time up to its
// limit: ten seconds at first. What it is before the first contact, with hosts that
// boot at times of their own, is shorter.
func spread(opt Options) *backoff.ExponentialBackOff {
	// A factor of 1 makes of an interval any time up to twice as long.
	most := opt.BackoffMax / 2
	return backoff.NewExponentialBackOff(backoff.WithInitialInterval(min(comeBack/2*opt.BackoffMin, most)), backoff.WithMaxInterval(most),
		backoff.WithRandomizationFactor(1), backoff.WithMultiplier(2), backoff.WithMaxElapsedTime(0))
}

// success ends a row of failures.
func (a *agent) success() {
	if a.failed != "" {
		a.log.Info("in contact with the provider again")
		a.failed = ""
	}
	a.pause.Reset()
	a.back.Reset()
	a.show(a.doing(), "")
}

// doing says what the agent does when all is well.
func (a *agent) doing() string {
	if a.work == nil {
		return "polling"
	}
	if reason := a.work.waits.Load(); reason != nil {
		return a.work.doing + ", waiting: " + *reason
	}
	return a.work.doing
}

// contact notes the provider's clock.
func (a *agent) contact(date time.Time) {
	a.status.LastContact = time.Now()
	if !date.IsZero() {
		a.seen = date
	}
}

// jitter spreads agents that were set off together.
func jitter(d time.Duration) time.Duration {
	return d/2 + rand.N(d+1)
}

// sleep pauses for d, but not past the end of ctx or of the work, whose result
// is reported first. It says whether it paused for all of d.
func (a *agent) sleep(ctx context.Context, d time.Duration) bool {
	var ended <-chan struct{}
	if a.work != nil {
		ended = a.work.ended.Done()
	}
	for end := time.Now().Add(d); d > 0; d = time.Until(end) {
		if a.opt.Watchdog > 0 {
			d = min(d, turnSlice, a.opt.Watchdog/4)
		}
		timer := time.NewTimer(d)
		select {
		case <-ctx.Done():
		case <-ended:
		case <-timer.C:
			a.opt.Notifier.Watchdog()
			continue
		}
		timer.Stop()
		return false
	}
	return true
}

// ackError makes text fit an ack.
func ackError(text string) string {
	text = strings.ToValidUTF8(text, "?")
	for len(text) > command.MaxErrorBytes {
		_, size := utf8.DecodeLastRuneInString(text[:command.MaxErrorBytes+1])
		text = text[:command.MaxErrorBytes+1-max(size, 1)]
	}
	return cmp.Or(text, "failed without a reason")
}
