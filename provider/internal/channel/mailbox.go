package channel

import (
	"time"

	"golang.org/x/time/rate"
)

// mailbox is what is held for one machine. Server.mu guards all of it.
type mailbox struct {
	life    string // of the machine, for which all of it is
	limiter *rate.Limiter
	// allowance are requests that pass beside the limiter.
	allowance int

	sighting Sighting
	boots    boots
	stranger *stranger // nil until a second host uses the token
	previous bool      // the host's token is of the secret before
	hungUp   bool      // the host's connection ended since the sighting
	// heard is closed at the next sighting; nil when nobody waits for one.
	heard chan struct{}

	// offered is the command that polls are given; nil when none is pending.
	offered *offer
	// reported is the last command that the host reported on. It holds no blob.
	// It stays after it was settled, so that a repeated report is recognised.
	reported *offer
	// older and newer are the neighbours in the roster, version is under what it is
	// counted there; "" for a host that was not heard from.
	older, newer *mailbox
	version      string
	// parked is the poll that waits for a command; at most one.
	parked *parkedPoll
}

// parkedPoll is a long poll that is held open. Whoever takes it out of the
// mailbox must either send the machine's command or close wake, once.
type parkedPoll struct {
	host identity
	wake chan handed // room for one, so that the sender never waits
	// woken says that wake was used, and interrupt has whoever waits look; nil
	// when wake alone is waited for.
	woken     bool
	interrupt func()
}

// commandAllowance are the requests that a command causes: the poll that it
// answers was counted when it came; the report, its repetition and the next
// poll follow.
const commandAllowance = 3

// box returns the mailbox of the machine's present life and makes it when there is
// none; nil when the machine has no host. Callers hold s.mu.
func (s *Server) box(machineID string) *mailbox {
	life, _ := s.life(machineID)
	b := s.mailboxes[machineID]
	if b != nil && b.life != life.ID {
		s.drop(machineID, b)
		b = nil
	}
	if b == nil && life.ID != "" {
		b = &mailbox{life: life.ID, limiter: rate.NewLimiter(rate.Limit(s.limits.RequestsPerSecond), s.limits.RequestBurst)}
		s.mailboxes[machineID] = b
	}
	return b
}

// present is box without the making. Callers hold s.mu.
func (s *Server) present(machineID string) *mailbox {
	life, _ := s.life(machineID)
	if b := s.mailboxes[machineID]; b != nil && b.life == life.ID {
		return b
	}
	return nil
}

// boxOf is box for a request: nil when the request's life is over. Callers hold s.mu.
func (s *Server) boxOf(r *request) *mailbox {
	if b := s.box(r.machine); b != nil && b.life == r.life {
		return b
	}
	return nil
}

// admission is what the machine's rate limit makes of a request.
type admission int

const (
	passes  admission = iota
	tooMany           // more than the machine's share
	over              // the request's life has ended
)

// admit applies the machine's rate limit to one request.
func (s *Server) admit(r *request) admission {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.boxOf(r)
	switch {
	case b == nil:
		return over
	case b.limiter.Allow():
		return passes
	case b.allowance > 0:
		b.allowance--
		return passes
	default:
		return tooMany
	}
}

// wakeParked takes the parked poll out and gives it the command; nil releases
// it without one.
func (b *mailbox) wakeParked(h *handed) {
	p := b.parked
	if p == nil {
		return
	}
	b.parked = nil
	p.woken = true
	if h == nil {
		close(p.wake)
	} else {
		p.wake <- *h
	}
	if p.interrupt != nil {
		p.interrupt()
	}
}

// Sighting is what the last poll or report of a machine's host said.
type Sighting struct {
	At      time.Time
	Version string   // of the agent; "" when it did not say
	Kinds   []string // of commands that the agent knows; none when it did not say
	Boot    string   // differs between two hosts; "" when the agent did not say
}

// LastContact returns the last sighting of the machine's host in the life of
// this process; false when there was none.
func (s *Server) LastContact(machineID string) (Sighting, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.present(machineID)
	if b == nil || b.sighting.At.IsZero() {
		return Sighting{}, false
	}
	return b.sighting, true
}

// HeardWithin implements delivery.Delivery. A parked poll is no proof that the
// host is still there: its connection may have died without our notice.
func (s *Server) HeardWithin(machineID string, d time.Duration) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.present(machineID)
	return b != nil && !b.hungUp && !b.sighting.At.IsZero() && time.Since(b.sighting.At) < d
}

// Knock implements delivery.Delivery: the parked poll is answered without a
// command, and an agent that is there polls again.
func (s *Server) Knock(machineID string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if b := s.present(machineID); b != nil {
		b.wakeParked(nil)
	}
}

// news is what a sighting brought that is worth a line in the log.
type news struct {
	first   bool // since the mailbox was made
	renewed bool // the host has taken the token of the present secret
}

// sight records a sighting and wakes who waits for it. Callers hold s.mu.
func (s *Server) sight(b *mailbox, now Sighting, previous bool) news {
	n := news{first: b.sighting.At.IsZero(), renewed: b.previous && !previous}
	s.noteSecret(b, previous)
	s.roster.saw(b, now)
	b.sighting, b.hungUp = now, false
	if b.heard != nil {
		close(b.heard)
		b.heard = nil
	}
	return n
}

// Forget drops the machine's mailbox: its command, whose Deliver ends with
// ErrForgotten, the parked poll, what was heard from its host, and its rate limit.
func (s *Server) Forget(machineID string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if b := s.mailboxes[machineID]; b != nil {
		s.drop(machineID, b)
	}
}

// drop is called with s.mu held.
func (s *Server) drop(machineID string, b *mailbox) {
	delete(s.mailboxes, machineID)
	s.roster.drop(b)
	s.noteSecret(b, false)
	s.dropStranger(b)
	b.withdraw(ErrForgotten)
	b.wakeParked(nil)
	if b.heard != nil {
		close(b.heard) // Contact looks again and waits in a new mailbox
		b.heard = nil
	}
}
