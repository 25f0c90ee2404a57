package channel

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"bigfleet-providers/provider/internal/delivery"
	"bigfleet-providers/provider/internal/telemetry"
	"bigfleet-providers/shared/command"
)

// ErrForgotten ends a Deliver or Contact whose machine's host is gone.
var ErrForgotten = errors.New("the machine's host is gone")

// offer is one command on its way. Server.mu guards what changes.
type offer struct {
	id   string
	kind command.Kind
	// body is the command as it is sent; it holds the blob and is dropped as
	// soon as nobody may fetch it any more.
	body    []byte
	blob    []byte // the caller's, to be cut out of the host's own words
	since   time.Time
	fetched time.Time // when a host first took it; zero when none did
	taker   string    // that host's digest

	// report receives the host's report and ended the reason for which none
	// will come; one of them, once.
	report chan delivery.Report
	ended  chan error

	// recorded is closed when the receiver confirmed the report; err then says
	// why it could not be recorded.
	recorded chan struct{}
	confirm  sync.Once
	err      error
}

// Deliver implements delivery.Delivery. The command is sent to the host's
// parked poll at once, or to its next one.
func (s *Server) Deliver(ctx context.Context, cmd command.Command) (delivery.Report, error) {
	if err := cmd.Validate(); err != nil {
		return delivery.Report{}, fmt.Errorf("deliver to machine %q: %w: %w", cmd.MachineID, delivery.ErrInvalid, err)
	}
	body, err := json.Marshal(&cmd)
	if err != nil {
		return delivery.Report{}, fmt.Errorf("deliver to machine %s: encode command %s: %w", cmd.MachineID, cmd.CommandID, err)
	}
	if len(body) > command.MaxCommandBytes {
		return delivery.Report{}, fmt.Errorf("deliver to machine %s: %w: command %s: %d bytes encoded, the limit is %d", cmd.MachineID, delivery.ErrInvalid, cmd.CommandID, len(body), command.MaxCommandBytes)
	}
	o := &offer{
		id:       cmd.CommandID,
		kind:     cmd.Kind,
		body:     body,
		blob:     cmd.Blob,
		since:    time.Now(),
		report:   make(chan delivery.Report, 1),
		ended:    make(chan error, 1),
		recorded: make(chan struct{}),
	}
	if !s.offer(cmd.MachineID, o) {
		return delivery.Report{}, fmt.Errorf("command %s for machine %s: %w", cmd.CommandID, cmd.MachineID, ErrForgotten)
	}
	select {
	case r := <-o.report:
		return r, nil
	case err := <-o.ended:
		return delivery.Report{}, fmt.Errorf("command %s for machine %s: %w", cmd.CommandID, cmd.MachineID, err)
	case <-ctx.Done():
		return s.giveUp(cmd.MachineID, o, ctx.Err())
	}
}

// offer puts the command into the mailbox in place of the one before; false when
// the machine has no host.
func (s *Server) offer(machineID string, o *offer) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.box(machineID)
	if b == nil {
		return false
	}
	b.withdraw(delivery.ErrSuperseded)
	// A report whose record failed is no longer wanted: this command asks for
	// it again, or is about something else.
	b.reported = nil
	b.offered = o
	b.allowance = min(b.allowance+commandAllowance, s.limits.RequestBurst)
	switch {
	case b.parked == nil: // the next poll will get it
	case knows(b.sighting, o.kind):
		h := s.hand(o, b.parked.host)
		b.wakeParked(&h)
	default:
		s.refuseUnknownKind(b)
	}
	return true
}

// withdraw takes back the command that nobody reported on yet.
func (b *mailbox) withdraw(reason error) {
	if o := b.offered; o != nil {
		b.offered = nil
		o.body, o.blob = nil, nil
		o.ended <- reason
	}
}

// handed is a command on its way to a host.
type handed struct {
	offer *offer
	body  []byte // as it was when it was handed out
	first bool   // no host had the command before
}

// mayTake says whether the host may have the command, and the blob in it: the
// one that took it first, again after a reboot, and no other.
func (o *offer) mayTake(host identity) bool { return o.fetched.IsZero() || o.taker == host.host }

// hand gives the offered command out. Callers hold s.mu.
func (s *Server) hand(o *offer, to identity) handed {
	h := handed{offer: o, body: o.body, first: o.fetched.IsZero()}
	if h.first {
		o.fetched, o.taker = time.Now(), to.host
		s.metrics.handover.WithLabelValues(string(o.kind)).Observe(o.fetched.Sub(o.since).Seconds())
	}
	return h
}

// giveUp ends a Deliver whose context ended. A report that came at the same
// moment wins: the host's work is done and must not be forgotten.
func (s *Server) giveUp(machineID string, o *offer, cause error) (delivery.Report, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case r := <-o.report:
		return r, nil
	case err := <-o.ended:
		return delivery.Report{}, fmt.Errorf("command %s for machine %s: %w", o.id, machineID, err)
	default:
	}
	b := s.mailboxes[machineID] // it is there: Forget would have ended the offer
	heard := "was never heard from since the provider started"
	if at := b.sighting.At; !at.IsZero() {
		heard = "was last heard from " + time.Since(at).Round(time.Second).String() + " ago"
	}
	fetched := "did not fetch the command"
	if !o.fetched.IsZero() {
		fetched = "fetched the command and did not report on it"
	}
	b.offered, o.body, o.blob = nil, nil, nil
	return delivery.Report{}, fmt.Errorf("command %s for machine %s: %w: its host %s and %s", o.id, machineID, cause, heard, fetched)
}

// settle hands the report on the offered command to its Deliver; the host worked
// on it from began to ended, zero when it did not. Callers hold s.mu.
func (s *Server) settle(b *mailbox, ok bool, words string, began, ended time.Time) *offer {
	o := b.offered
	b.offered, b.reported = nil, o
	o.body, o.blob = nil, nil
	outcome := outcomeOK
	if !ok {
		outcome = outcomeFailed
	}
	s.metrics.delivery.WithLabelValues(string(o.kind), outcome).Observe(time.Since(o.since).Seconds())
	o.report <- delivery.Report{OK: ok, Error: words, Fetched: o.fetched, Started: began, Finished: ended, Confirm: func(err error) {
		o.confirm.Do(func() {
			o.err = err
			close(o.recorded)
		})
	}}
	return o
}

// knows says whether the agent can carry out the kind. One that does not say is
// trusted to answer for itself.
func knows(h Sighting, k command.Kind) bool {
	return len(h.Kinds) == 0 || slices.Contains(h.Kinds, string(k))
}

// refuseUnknownKind reports in the agent's stead that it is too old for the
// offered command: it could not even read it. Callers hold s.mu.
func (s *Server) refuseUnknownKind(b *mailbox) {
	s.settle(b, false, fmt.Sprintf("the host's agent (version %q) does not know the command %q, only %s; install a newer agent in the image", b.sighting.Version, b.offered.kind, strings.Join(b.sighting.Kinds, ", ")), time.Time{}, time.Time{})
}

// Contact implements delivery.Delivery. Polls and reports count, a fetch of the
// package does not: the agent is not there yet.
func (s *Server) Contact(ctx context.Context, machineID string, after time.Time) error {
	for {
		heard, err := s.heardAfter(machineID, after)
		if heard == nil {
			return err
		}
		select {
		case <-heard:
		case <-ctx.Done():
			return fmt.Errorf("first contact of machine %s: %w", machineID, ctx.Err())
		}
	}
}

// heardAfter returns nil when the host was heard from after the given time, and
// else what is closed when it is worth asking again.
func (s *Server) heardAfter(machineID string, after time.Time) (<-chan struct{}, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.box(machineID)
	if b == nil {
		return nil, fmt.Errorf("first contact of machine %s: %w", machineID, ErrForgotten)
	}
	if b.sighting.At.After(after) {
		return nil, nil
	}
	if b.heard == nil {
		b.heard = make(chan struct{})
	}
	return b.heard, nil
}

// redact cuts what the host should not have written out of its words. The
// agent does so too; this covers one that fails to.
func redact(words string, secrets ...string) string {
	for _, secret := range secrets {
		if secret != "" {
			words = strings.ReplaceAll(words, secret, "[redacted]")
		}
	}
	return words
}

// logKeys are the attributes of a line about a command.
func logKeys(machineID string, o *offer) []any {
	return []any{telemetry.KeyMachine, machineID, telemetry.KeyCommand, o.id, telemetry.KeyKind, string(o.kind)}
}
