package lifecycle

import (
	"sync"
	"time"

	"bigfleet-providers/provider/internal/machine"
)

// succession remembers the slots whose Creates fail one after the other. Each next
// machine of such a slot comes later: a fault that fails every Create at once would
// else fill list and state with failed machines, as fast as shards ask for others.
// It is forgotten at exit.
type succession struct {
	mu   sync.Mutex
	rows map[string]failedCreates // by slot
}

// failedCreates is a row of them without a success in between.
type failedCreates struct {
	times int
	last  time.Time // when the last one failed
	next  time.Time // when another machine may fill the slot
}

// failed takes note of a failure. pause is how long the slot then waits by the
// failures before this one; after the first it does not.
func (s *succession) failed(rec machine.Record, pause func(before int) time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.rows[rec.Slot]
	r.last, r.next = rec.Since, rec.Since
	if r.times > 0 {
		r.next = rec.Since.Add(pause(r.times))
	}
	r.times++
	s.rows[rec.Slot] = r
}

// made ends the slot's row.
func (s *succession) made(slot string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.rows, slot)
}

// unlisted ends the row whose last failure nobody is shown any more.
func (s *succession) unlisted(failed machine.Record) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r, ok := s.rows[failed.Slot]; ok && !r.last.After(failed.Since) {
		delete(s.rows, failed.Slot)
	}
}

// wait is how long no other machine fills the slot yet.
func (s *succession) wait(slot string) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return time.Until(s.rows[slot].next)
}
