// Package agent is the on-host agent: it asks the provider's bootstrap channel
// for this machine's command, has the host's hook carry it out, and reports how
// that went.
//
// # Model
//
// Run is one loop: send results that the provider does not have yet, poll, look
// at the answer. An idle agent is one goroutine parked in a long poll. A command
// in work is a second goroutine (work.go); the loop goes on polling meanwhile,
// so that a newer command takes the place of the one in work.
//
// A command is written to the journal before its hook starts and its result
// before it is reported. A command whose result is known is reported again and
// never run again; what happens to one that was interrupted is promised in
// package hook.
//
// The agent never gives up: every failure to reach the provider is followed by
// another try, and nothing makes it drop its token.
package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"time"

	"github.com/cenkalti/backoff/v4"

	"bigfleet-providers/agent/internal/hook"
	"bigfleet-providers/agent/internal/journal"
	"bigfleet-providers/agent/internal/poll"
	"bigfleet-providers/agent/internal/statedir"
	"bigfleet-providers/shared/command"
)

// maxUnsent bounds the results that wait for the provider. There is one command
// at a time, so more than one is rare.
const maxUnsent = 16

// agent belongs to the goroutine of Run, but for what work.go says.
type agent struct {
	cfg     Config
	opt     Options
	log     *slog.Logger
	client  *poll.Client
	hook    Hook
	journal Journal

	work   *work                       // the command in work, nil when idle
	unsent []command.Ack               // results that the provider does not have yet
	taken  command.Ack                 // the last result that the provider took
	seen   time.Time                   // the provider's clock at the last contact
	pause  *backoff.ExponentialBackOff // before the first contact
	back   *backoff.ExponentialBackOff // after it
	status status
	failed string // the last failure that was logged

	state      *statedir.Dir // nil for none
	identified bool          // see identify
	tokenRead  bool
	noIdentity string // why it is not identified, as it was logged last
	otherToken string // tried when the client's is refused; "" when there is one only
	unkept     string // what was handed out as a token and is none
}

// Run works for the machine of cfg until ctx ends, then returns nil. A hook that
// can be resumed is left running for the next agent. Errors are faults of cfg,
// and a second agent on the same state directory.
func Run(ctx context.Context, cfg Config, opt Options) error {
	cfg.setDefaults()
	if err := cfg.Validate(); err != nil {
		return fmt.Errorf("configuration: %w", err)
	}
	opt.setDefaults()
	a, err := newAgent(ctx, cfg, opt)
	if err != nil {
		return err
	}
	if opt.HTTPClient == nil {
		defer a.client.HTTP.CloseIdleConnections()
	}
	a.client.HostID = opt.HostID
	if a.journal == nil {
		a.state, err = statedir.Open(cfg.StateDir, statedir.ThisHost(cfg.MachineID, "/"), journal.MachineOf(cfg.StateDir), a.log)
		if err != nil {
			return err
		}
		defer func() {
			if err := a.state.Close(); err != nil {
				a.log.Warn("the state directory's lock was not released", "error", err)
			}
		}()
		a.journal = journal.Open(a.state, a.log)
	}
	a.identify()
	a.log.Info("agent started", "version", opt.Version, "endpoint", cfg.Endpoint)
	a.opt.Notifier.Ready()
	a.resume(ctx)
	a.loop(ctx)
	a.opt.Notifier.Stopping()
	if a.work != nil {
		a.work.stop(ErrStopping)
	}
	a.log.Info("agent stopped")
	return nil
}

func newAgent(ctx context.Context, cfg Config, opt Options) (*agent, error) {
	endpoint, err := cfg.endpoint()
	if err != nil {
		return nil, err
	}
	client := opt.HTTPClient
	if client == nil {
		if client, err = NewHTTPClient(cfg.CAPEM); err != nil {
			return nil, err
		}
	}
	log := opt.Log.With("machine_id", cfg.MachineID)
	h := opt.Hook
	if h == nil {
		h = &hook.Host{Path: cfg.Hook, RuntimeDir: cfg.RuntimeDir, Token: string(cfg.Token), Program: opt.Program, Runner: newRunner(ctx, cfg, opt, log), Log: log}
	}
	return &agent{
		cfg: cfg,
		opt: opt,
		log: log,
		client: &poll.Client{
			HTTP: client, Endpoint: endpoint, MachineID: cfg.MachineID, Token: string(cfg.Token),
			Version: opt.Version, BootID: opt.BootID,
		},
		hook:    h,
		journal: opt.Journal,
		pause: backoff.NewExponentialBackOff(backoff.WithInitialInterval(opt.BackoffMin),
			backoff.WithMaxInterval(opt.BackoffMax), backoff.WithMaxElapsedTime(0)),
		back:   spread(opt),
		status: newStatus(cfg, opt),
	}, nil
}

// resume takes up what an earlier agent left: results that were not taken, and
// at most one command in work. One of an earlier boot waits for the provider to
// send it again: nothing of it runs.
func (a *agent) resume(ctx context.Context) {
	for _, rec := range a.journal.Records() {
		switch {
		case rec.Ack != nil && !rec.Settled:
			a.send(*rec.Ack)
		case rec.Ack == nil && rec.BootID == a.opt.BootID && rec.BootID != "":
			if a.work != nil { // only the last one can still be wanted
				a.supersede(rec.Command.CommandID)
			}
			a.begin(ctx, rec, time.Now().Add(rec.Deadline-sinceBoot()), false)
		}
	}
}

// loop turns until ctx ends. Each turn ends in a poll or in a pause.
func (a *agent) loop(ctx context.Context) {
	for ctx.Err() == nil {
		a.opt.Notifier.Watchdog()
		a.identify()
		a.collect()
		ackErr := a.report(ctx)
		if ackErr == nil && a.failed == "" {
			a.show(a.doing(), "") // not only when the parked poll comes back
		}
		wait := a.opt.Wait
		if ackErr != nil || a.failed != "" || a.status.LastContact.IsZero() {
			// Come back to the report soon. And a parked poll tells only at its
			// end that the provider is there.
			wait = 0
		}
		again, err := a.turn(ctx, wait)
		if err = errors.Join(ackErr, err); err != nil {
			a.failure(ctx, err)
			continue
		}
		a.success()
		a.sleep(ctx, again)
	}
}

// turn polls once and acts on the answer. It returns how long to wait before
// the next poll.
func (a *agent) turn(ctx context.Context, wait time.Duration) (time.Duration, error) {
	begun := time.Now()
	pollCtx, cancel := context.WithCancel(ctx)
	defer cancel()
	have := ""
	if a.work != nil {
		have = a.work.id
		// The result is reported at once, not when the parked poll comes back.
		defer context.AfterFunc(a.work.ended, cancel)() //nolint:contextcheck // it is the end of the work that ends the poll
	}
	answer, err := a.client.Poll(pollCtx, wait, have)
	if err != nil {
		if pollCtx.Err() != nil {
			return 0, nil // ours: the work ended, or the agent does
		}
		return 0, err
	}
	a.contact(answer.Date)
	a.renew(answer.Token)
	switch {
	case answer.Command != nil:
		return a.receive(ctx, answer)
	case wait == 0:
		return 0, nil
	default:
		// A provider that does not park the poll must not be asked all the time.
		return max(0, jitter(a.opt.BusyPause)-time.Since(begun)), nil
	}
}

// receive acts on a command that the provider has pending.
func (a *agent) receive(ctx context.Context, answer poll.Answer) (time.Duration, error) {
	cmd := *answer.Command
	a.collect()
	if a.work != nil && a.work.id == cmd.CommandID {
		return jitter(a.opt.BusyPause), nil // from a provider that does not know HeaderHave
	}
	rec, known := a.journal.Get(cmd.CommandID)
	if known && rec.Ack != nil {
		// Never run again. The provider did not get, or did not like, the result.
		a.send(*rec.Ack)
		if rec.Settled {
			return 0, errAskedAgain(cmd.CommandID)
		}
		return 0, nil
	}
	// A result that could not be journalled is known from memory.
	if a.unsentIndex(cmd.CommandID) >= 0 {
		return 0, nil
	}
	if a.taken.CommandID == cmd.CommandID {
		a.send(a.taken)
		return 0, errAskedAgain(cmd.CommandID)
	}
	log := a.log.With("command_id", cmd.CommandID, "kind", cmd.Kind)
	now := time.Now()
	rec.Command = cmd // with its blob
	if answer.Invalid != nil {
		return 0, a.refuse(log, rec, fmt.Errorf("refused: this agent (version %s) cannot carry the command out: %w", a.opt.Version, answer.Invalid))
	}
	if cmd.MachineID != a.cfg.MachineID {
		return 0, a.refuse(log, rec, fmt.Errorf("refused: the command is for machine %q, this is %q", cmd.MachineID, a.cfg.MachineID))
	}
	deadline := localDeadline(cmd.Deadline, answer.Date, now)
	if !deadline.After(now) {
		return 0, a.refuse(log, rec, fmt.Errorf("refused: the deadline %s has passed (local clock %s, provider's clock %s)",
			stamp(cmd.Deadline), stamp(now), stamp(answer.Date)))
	}
	a.supersede(cmd.CommandID)
	a.begin(ctx, rec, deadline, true)
	return 0, nil
}

func errAskedAgain(commandID string) error {
	return fmt.Errorf("the provider asks again for command %s, whose result it took", commandID)
}

// localDeadline turns the provider's deadline into a moment of the local
// monotonic clock. A host whose clock is wrong, or is set while the hook runs,
// neither refuses in vain nor cuts a hook short.
func localDeadline(deadline, date, now time.Time) time.Time {
	clock := date
	// The header has whole seconds: a smaller difference is none.
	if date.IsZero() || date.Sub(now).Abs() < 2*time.Second {
		clock = now
	}
	return now.Add(deadline.Sub(clock))
}

func stamp(t time.Time) string {
	if t.IsZero() {
		return "unknown"
	}
	return t.UTC().Format(time.RFC3339)
}

// refuse reports a command that is not run. It fails when the command's id does
// not even allow a report.
func (a *agent) refuse(log *slog.Logger, rec Record, reason error) error {
	log.Warn("command refused", "reason", reason)
	now := time.Now()
	if rec.Started.IsZero() {
		rec.Started = now
	}
	ack := newAck(rec.Command.CommandID, rec.Started, now, reason)
	if err := ack.Validate(); err != nil {
		return errors.Join(reason, err)
	}
	rec.Ack = &ack
	if err := a.journal.Put(rec); err != nil {
		log.Error("the refusal cannot be journalled", "error", err)
	}
	a.send(ack)
	return nil
}

// supersede ends every command but the one that the provider wants now.
func (a *agent) supersede(by string) {
	if a.work != nil {
		a.log.Warn("a newer command takes the place of the one in work", "command_id", a.work.id, "by", by)
		a.work.stop(fmt.Errorf("superseded by command %s", by))
		a.collect()
	}
	for _, rec := range a.journal.Records() {
		if rec.Command.CommandID == by || rec.Ack != nil {
			continue
		}
		ack := newAck(rec.Command.CommandID, rec.Started, time.Now(), fmt.Errorf("superseded by command %s", by))
		rec.Ack, rec.Settled = &ack, true
		if err := a.journal.Put(rec); err != nil {
			a.log.Error("the end of a superseded command cannot be journalled", "command_id", rec.Command.CommandID, "error", err)
		}
	}
}

// collect takes over the result of the work that has ended, if one has.
func (a *agent) collect() {
	if a.work == nil || a.work.ended.Err() == nil {
		return
	}
	if a.work.ack != nil {
		a.send(*a.work.ack)
	}
	a.work = nil
}

// send queues a result for report.
func (a *agent) send(ack command.Ack) {
	if i := a.unsentIndex(ack.CommandID); i >= 0 {
		a.unsent[i] = ack
		return
	}
	a.unsent = append(a.unsent, ack)
	a.unsent = a.unsent[max(0, len(a.unsent)-maxUnsent):]
}

func (a *agent) unsentIndex(commandID string) int {
	return slices.IndexFunc(a.unsent, func(ack command.Ack) bool { return ack.CommandID == commandID })
}

// report sends every queued result once and keeps those that did not arrive.
func (a *agent) report(ctx context.Context) error {
	var errs []error
	var keep []command.Ack
	for _, ack := range a.unsent {
		a.opt.Notifier.Watchdog()
		log := a.log.With("command_id", ack.CommandID, "ok", ack.OK)
		err := a.client.Ack(ctx, ack)
		var status *poll.StatusError
		switch {
		case err == nil:
			log.Info("the provider took the result")
			a.taken = ack
		case errors.As(err, &status) && status.Code == http.StatusConflict:
			log.Warn("the provider no longer waits for this result; it is dropped")
		default:
			errs = append(errs, fmt.Errorf("report on command %s: %w", ack.CommandID, err))
			keep = append(keep, ack)
			continue
		}
		rec, known := a.journal.Get(ack.CommandID)
		if !known {
			continue
		}
		rec.Settled = true
		if err := a.journal.Put(rec); err != nil {
			// The result is reported once more after a restart, which is harmless.
			log.Warn("it cannot be journalled that the result was taken", "error", err)
		}
	}
	a.unsent = keep
	return errors.Join(errs...)
}

// newAck makes a report that the provider's decoder accepts. A clock that was
// set back meanwhile must not make it finish before it started.
func newAck(commandID string, started, finished time.Time, failure error) command.Ack {
	started, finished = started.UTC().Round(0), finished.UTC().Round(0) // the wall clock only
	if finished.Before(started) {
		finished = started
	}
	ack := command.Ack{CommandID: commandID, OK: failure == nil, Started: started, Finished: finished}
	if failure != nil {
		ack.Error = ackError(failure.Error())
	}
	return ack
}
