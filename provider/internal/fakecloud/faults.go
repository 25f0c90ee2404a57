package fakecloud

import (
	"bytes"
	"slices"
	"sync"
	"time"
)

// Outcome is how an accepted server action goes on.
type Outcome int

// The outcomes. The first GET after the action shows the transitional state
// with each of them.
const (
	OutcomeNormal   Outcome = iota
	OutcomeStuck            // the transitional state lasts for ever
	OutcomeFallBack         // a power-on ends in "stopped" again, as when stock runs out late
)

// Fault is one scripted misbehaviour of one route.
type Fault struct {
	// Route is one of the Route constants; "" matches every route.
	Route string
	// Zone, ID (of the path) and Action narrow it to calls that have them;
	// BodyContains to calls with these bytes in their body. "" matches all.
	Zone, ID, Action, BodyContains string
	// Match narrows it further; nil matches all. It must not block.
	Match func(Request) bool
	// Skip lets that many matching calls pass first.
	Skip int
	// Times is how many calls it then hits: 0 means one, a negative number
	// every one until the fault is removed.
	Times int

	// Delay holds the call back, unscaled: before its work is done, or after it
	// with Commit. A client that gives up ends it, and without Commit nothing
	// has happened then.
	Delay time.Duration
	// Commit runs the call first, and then loses its answer: the reply below, or
	// the hang-up, is what the client sees.
	Commit bool
	// Reply is answered in place of the real answer; nil leaves it.
	Reply *Reply
	// Hangup closes the connection without an answer; Reset does so with a TCP
	// reset in place of an orderly end.
	Hangup, Reset bool
	// HangupAfter, when positive, closes the connection after that many bytes of
	// the answer's body; the headers promise all of it.
	HangupAfter int
	// Outcome applies to RouteServerAction, and to orders and actions of Elastic
	// Metal, where an install is what falls back: to "error".
	Outcome Outcome
}

// silent says that the client gets no byte of an answer.
func (f *Fault) silent() bool { return f.Hangup || f.Reset }

func (f *Fault) matches(r Request) bool {
	return (f.Route == "" || f.Route == r.Route) &&
		(f.Zone == "" || f.Zone == r.Zone) &&
		(f.ID == "" || f.ID == r.ID) &&
		(f.Action == "" || f.Action == r.Action) &&
		(f.BodyContains == "" || bytes.Contains(r.Body, []byte(f.BodyContains))) &&
		(f.Match == nil || f.Match(r))
}

// Request is what Fault.Match may look at.
type Request struct {
	Route  string
	Zone   string
	ID     string // the {id} of the path: a server, volume, …
	Query  map[string][]string
	Body   []byte // as sent; it may hold user data, so do not log it
	Action string // of RouteServerAction
}

// FaultStatus is how a fault has fared.
type FaultStatus struct {
	Fault
	Number int  // given by Inject, from 1
	Seen   int  // matching calls that no earlier fault took
	Hits   int  // calls it took
	Spent  bool // it will take no more
}

// Inject adds a fault and returns what removes it. Faults are tried in the
// order of their injection; the first that is due takes the call.
func (c *Cloud) Inject(f Fault) (remove func()) {
	number := c.faults.add(f)
	return func() { c.faults.remove(number) }
}

// Faults lists the faults in the order of their injection; the last 1024 are
// listed until they are removed, even when they are spent.
func (c *Cloud) Faults() []FaultStatus { return c.faults.list() }

// ClearFaults removes every fault.
func (c *Cloud) ClearFaults() { c.faults.clear() }

// faultsKept bounds the list of faults: beyond it the oldest spent one goes.
const faultsKept = 1024

type switchboard struct {
	mu    sync.Mutex
	last  int
	board []*FaultStatus
}

func (s *switchboard) add(f Fault) (number int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.board) >= faultsKept {
		if i := slices.IndexFunc(s.board, func(a *FaultStatus) bool { return a.Spent }); i >= 0 {
			s.board = slices.Delete(s.board, i, i+1)
		}
	}
	s.last++
	s.board = append(s.board, &FaultStatus{Fault: f, Number: s.last})
	return s.last
}

// remove reports whether the fault was there.
func (s *switchboard) remove(number int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := len(s.board)
	s.board = slices.DeleteFunc(s.board, func(a *FaultStatus) bool { return a.Number == number })
	return len(s.board) < before
}

func (s *switchboard) clear() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.board = nil
}

func (s *switchboard) list() []FaultStatus {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := []FaultStatus{}
	for _, a := range s.board {
		out = append(out, *a)
	}
	return out
}

// take counts the call and returns the fault that hits it, with its number, or
// nil. A call counts for every fault it matches up to the one that takes it.
func (s *switchboard) take(r Request) (*Fault, int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, a := range s.board {
		if a.Spent || !a.matches(r) {
			continue
		}
		a.Seen++
		if a.Seen <= a.Skip {
			continue
		}
		a.Hits++
		a.Spent = a.Times >= 0 && a.Hits >= max(a.Times, 1)
		return &a.Fault, a.Number
	}
	return nil, 0
}
