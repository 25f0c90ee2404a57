package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/cenkalti/backoff/v4"
	"golang.org/x/sys/unix"

	"bigfleet-providers/shared/command"
)

const (
	// maxLost is how many runs without a result a command has: a hook that reboots
	// the host each time or kills its own supervisor, or a host out of memory, must
	// not take until the deadline.
	maxLost = 3
	// maxRetryPause bounds the pause before what the host could not do for now, such
	// as to write to a full disk, is tried again.
	maxRetryPause = 15 * time.Second
)

// work is a command that is being carried out, in a goroutine of its own. ack
// belongs to that goroutine until ended is done.
type work struct {
	id     string
	doing  string                 // for a Status
	waits  atomic.Pointer[string] // for what, if it does
	cancel context.CancelCauseFunc
	ended  context.Context
	ack    *command.Ack // nil when the agent stopped or the result is lost
}

// stop ends the work and waits for it.
func (w *work) stop(cause error) {
	w.cancel(cause)
	<-w.ended.Done()
}

// begin starts to carry out the command of rec, which either is new, or was
// begun by an earlier agent or an earlier boot. delivered says that the provider
// just sent it, with its blob.
func (a *agent) begin(ctx context.Context, rec Record, deadline time.Time, delivered bool) {
	rec.Deadline = sinceBoot() + time.Until(deadline)
	// Not the child of ctx: the end of the agent must be told from the end of
	// the command by its cause.
	workCtx, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	workCtx, stopTimer := context.WithDeadlineCause(workCtx, deadline, ErrDeadline)
	ended, end := context.WithCancel(context.Background())
	w := &work{
		id: rec.Command.CommandID, cancel: cancel, ended: ended,
		doing: fmt.Sprintf("running %s for cluster %s", rec.Command.Kind, rec.Command.ClusterID),
	}
	a.work = w
	p := &performer{
		hook: a.hook, journal: a.journal, bootID: a.opt.BootID, pause: a.opt.ReadyPause, delivered: delivered,
		retryMin: a.opt.BackoffMin, retryMax: min(a.opt.BackoffMax, maxRetryPause), waits: w.waits.Store,
		log: a.log.With("command_id", rec.Command.CommandID, "kind", rec.Command.Kind),
	}
	a.show(w.doing, "")
	go func() {
		defer end()
		defer stopTimer()
		defer cancel(nil)
		w.ack = p.perform(workCtx, rec)
	}()
}

// performer carries one command out.
type performer struct {
	hook    Hook
	journal Journal
	bootID  string
	pause   time.Duration
	// delivered says that the command came from the provider just now; without,
	// there is no blob and the hook cannot be started.
	delivered bool
	// retryMin and retryMax bound the pauses between tries of what the host cannot
	// do for now; waits is told why it waits, and nil when it does no more.
	retryMin, retryMax time.Duration
	waits              func(*string)
	log                *slog.Logger
}

// perform runs the steps of the command that are not done yet and returns the
// result, which is in the journal if it can be written. It returns nil when
// there is no result: the agent stops, or the outcome of an earlier run is lost
// and the blob for another one has not come.
func (p *performer) perform(ctx context.Context, rec Record) *command.Ack {
	if rec.Started.IsZero() {
		rec.Started = time.Now()
	}
	err := p.steps(ctx, &rec)
	if cause := context.Cause(ctx); err != nil && cause != nil && !errors.Is(err, cause) {
		err = fmt.Errorf("%w: %w", cause, err)
	}
	if errors.Is(err, ErrStopping) || errors.Is(err, ErrLost) {
		p.log.Info("the command stays open", "reason", err)
		return nil
	}
	if err != nil && rec.Reboots > 0 && rec.Lost < maxLost {
		err = fmt.Errorf("%w (the host rebooted %s while the hook ran)", err, times(rec.Reboots))
	}
	ack := newAck(rec.Command.CommandID, rec.Started, time.Now(), err)
	rec.Ack = &ack
	if ack.OK {
		p.log.Info("command done", "took", ack.Finished.Sub(ack.Started).Round(time.Millisecond), "attempt", rec.Attempt)
	} else {
		p.log.Warn("command failed", "error", ack.Error, "attempt", rec.Attempt)
	}
	if err := p.journal.Put(rec); err != nil {
		p.log.Error("the result cannot be journalled; it is reported from memory", "error", err)
	}
	return &ack
}

// steps runs what the command needs, from the step that rec names.
func (p *performer) steps(ctx context.Context, rec *Record) error {
	verb := Drain
	if rec.Command.Kind == command.Configure {
		verb = Configure
	}
	if rec.Step != string(Ready) {
		if err := p.mainStep(ctx, rec, verb); err != nil {
			return err
		}
	}
	if verb != Configure {
		return nil
	}
	if rec.Step != string(Ready) {
		rec.Step = string(Ready)
		if err := p.journal.Put(*rec); err != nil {
			// The hook's outcome is with the run itself too: going on is safe.
			p.log.Error("a step cannot be journalled", "step", rec.Step, "error", err)
		}
	}
	return p.awaitReady(ctx, *rec)
}

// mainStep runs the hook for verb, or takes up the run that an earlier agent
// began.
func (p *performer) mainStep(ctx context.Context, rec *Record, verb Verb) error {
	r, resumes := p.hook.(Resumer) // r is nil if not
	if rec.Attempt == 0 && resumes {
		if err := p.recall(ctx, rec, r, verb); err != nil {
			return err
		}
	}
	if rec.Attempt > 0 {
		again, err := p.takeUp(ctx, rec, r, verb)
		if !again {
			return err
		}
	}
	if !p.delivered && rec.Lost < maxLost {
		return fmt.Errorf("%w; waiting for the provider to send the command again", ErrLost)
	}
	for {
		if rec.Lost >= maxLost {
			return lostTooOften(rec, verb)
		}
		err := p.attempt(ctx, rec, verb)
		if !errors.Is(err, ErrKilled) || ctx.Err() != nil {
			return err
		}
		rec.Lost++
		p.log.Warn("the hook has no result", "verb", verb, "runs", rec.Lost, "reason", err)
	}
}

// takeUp waits for the run that an earlier agent or an earlier boot began, and
// says whether the hook is to run again because its result is lost.
func (p *performer) takeUp(ctx context.Context, rec *Record, r Resumer, verb Verb) (again bool, err error) {
	switch {
	case rec.BootID != p.bootID || p.bootID == "":
		// Counted here and recorded with the next run: a boot that is cut short before
		// it is not counted twice.
		rec.Lost++
		rec.Reboots++
		p.log.Warn("the host rebooted while the hook ran", "verb", verb, "attempt", rec.Attempt, "runs", rec.Lost)
	case r != nil:
		p.log.Info("taking up the hook that an earlier agent started", "verb", verb, "attempt", rec.Attempt)
		err := r.Resume(ctx, Call{Verb: verb, Command: rec.Command, Attempt: rec.Attempt})
		if !errors.Is(err, ErrLost) {
			return false, err
		}
		rec.Lost++
	}
	return true, nil
}

// lostTooOften is the failure of a hook whose runs have no result.
func lostTooOften(rec *Record, verb Verb) error {
	err := fmt.Errorf("hook %s: %d runs ended without a result, which is the limit", verb, rec.Lost)
	if rec.Reboots > 0 {
		err = fmt.Errorf("%w: the host rebooted %s while it ran; a hook that reboots the host must see, when it runs again, that it has", err, times(rec.Reboots))
	}
	if rec.Lost > rec.Reboots {
		err = fmt.Errorf("%w: %w", err, ErrKilled)
	}
	return err
}

func times(n int) string {
	if n == 1 {
		return "once"
	}
	return fmt.Sprintf("%d times", n)
}

// attempt runs the hook once more, as soon as the host is able to. What it
// cannot do for now, such as to record the run on a full disk, is no failure of
// the command before its time is over.
func (p *performer) attempt(ctx context.Context, rec *Record, verb Verb) error {
	return p.retry(ctx, func() error {
		next := *rec
		next.Step, next.BootID = string(verb), p.bootID
		next.Attempt++
		// Nothing runs unrecorded: after a crash it could run twice.
		if err := p.journal.Put(next); err != nil {
			return fmt.Errorf("%w: the host cannot record the command: %w (free space in, or make writable, the agent's state directory)", ErrNotStarted, err)
		}
		*rec = next
		p.log.Info("running the hook", "verb", verb, "attempt", rec.Attempt)
		return p.hook.Run(ctx, Call{Verb: verb, Command: rec.Command, Attempt: rec.Attempt})
	})
}

// retry calls f until it returns another error than ErrNotStarted, or ctx ends.
func (p *performer) retry(ctx context.Context, f func() error) error {
	pauses := backoff.NewExponentialBackOff(backoff.WithInitialInterval(p.retryMin), backoff.WithMaxInterval(p.retryMax), backoff.WithMaxElapsedTime(0))
	defer p.waits(nil)
	last := ""
	for {
		err := f()
		if !errors.Is(err, ErrNotStarted) {
			return err
		}
		if text := err.Error(); text != last {
			last = text
			p.waits(&text)
			p.log.Warn("the host cannot carry the command out for now, trying again until its deadline", "reason", err)
		}
		if !pause(ctx, pauses.NextBackOff()) {
			return fmt.Errorf("refused, nothing was run: %w", err)
		}
	}
}

// recall asks the hook for a run that the journal does not know, because it was
// damaged or lost: the same command must not run beside, or after, itself.
func (p *performer) recall(ctx context.Context, rec *Record, r Resumer, verb Verb) error {
	attempt := 0
	err := p.retry(ctx, func() (err error) {
		if attempt, err = r.Attempts(Call{Verb: verb, Command: rec.Command}); err != nil {
			return fmt.Errorf("%w: it cannot be told whether the command ran before: %w", ErrNotStarted, err)
		}
		return nil
	})
	if err != nil || attempt == 0 {
		return err
	}
	p.log.Warn("the command ran before and the journal does not know it", "verb", verb, "attempt", attempt)
	rec.Step, rec.Attempt, rec.BootID = string(verb), attempt, p.bootID
	if err := p.journal.Put(*rec); err != nil {
		p.log.Error("an earlier run cannot be journalled", "error", err) // it is found again
	}
	return nil
}

// awaitReady asks the hook until the node is ready or the time is over.
func (p *performer) awaitReady(ctx context.Context, rec Record) error {
	rec.Command.Blob = nil
	var last error // the answer of a check that was not cut short
	for {
		err := p.hook.Run(ctx, Call{Verb: Ready, Command: rec.Command, Attempt: rec.Attempt})
		if err == nil {
			return nil
		}
		if ctx.Err() == nil && !errors.Is(err, ErrDeadline) {
			last = err
			p.log.Debug("not ready yet", "error", err)
			if pause(ctx, p.pause) {
				continue
			}
		}
		if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, ErrDeadline) {
			return cause
		}
		if last == nil {
			last = err // a check that hangs may have said at what
		}
		return fmt.Errorf("the hook succeeded but the node did not become ready in time: %w", last)
	}
}

// pause waits for d and tells whether ctx goes on.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}

// sinceBoot is the kernel's clock that no one sets and that runs on in suspend.
func sinceBoot() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &t); err != nil {
		return 0 // cannot happen on Linux; a deadline is then counted from the restart
	}
	return time.Duration(t.Nano())
}
