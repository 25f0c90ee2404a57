package store

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"bigfleet-providers/provider/internal/machine"
)

// Limits of the queues and of one batch. A full urgent queue refuses, since its
// callers can come again; a full later queue makes callers wait, since a
// completion must not be lost. A batch takes some of the later queue however full the urgent one is, so that
// completions never starve.
const (
	urgentQueue = 1024
	laterQueue  = 1024
	urgentBatch = 512
	laterBatch  = 256
	// batchBytes ends a batch early: a record can hold 2 MiB.
	batchBytes = 8 << 20
)

// request is one change on its way through the committer.
type request struct {
	ids    []string
	mutate func([]machine.Record) ([]machine.Next, error)
	// inventoried is the time of a SetInventoried, beside any change.
	inventoried time.Time
	// ownership is SetOwnership's, nil for no change of it.
	ownership *machine.Ownership
	state     atomic.Int32
	done      chan struct{} // closed when recs and err are final
	recs      []machine.Record
	err       error
}

// The states of a request.
const (
	queued int32 = iota
	taken
	abandoned
)

func (r *request) answer() { close(r.done) }

// submit queues the request and waits for its outcome.
func (s *Store) submit(ctx context.Context, queue chan *request, r *request) ([]machine.Record, error) {
	if err := s.Err(); err != nil {
		return nil, unavailable(err)
	}
	r.done = make(chan struct{})
	select {
	case <-s.closing:
		// Said first: select would sometimes take the queue of a closed store.
		return nil, unavailable(ErrClosed)
	default:
	}
	if ctx.Err() != nil {
		return nil, fmt.Errorf("not started: %w", context.Cause(ctx))
	}
	if queue == s.urgent {
		select {
		case queue <- r:
		default:
			return nil, &machine.Error{Code: machine.Exhausted, Text: fmt.Sprintf("%d changes wait to be written already; try again after a pause", urgentQueue)}
		}
	} else {
		select {
		case queue <- r:
		case <-ctx.Done():
			return nil, fmt.Errorf("waiting for a place in the commit queue: %w", context.Cause(ctx))
		case <-s.closing:
			return nil, unavailable(ErrClosed)
		}
	}
	select {
	case <-r.done:
		return r.recs, r.err
	case <-ctx.Done():
		if r.state.CompareAndSwap(queued, abandoned) {
			return nil, fmt.Errorf("waiting in the commit queue: %w", context.Cause(ctx))
		}
		return nil, fmt.Errorf("waiting for a commit that may still succeed: %w", context.Cause(ctx))
	case <-s.stopped:
	}
	// The committer has returned: either it answered, or it never saw the
	// request, which came in behind its last look at the queue.
	select {
	case <-r.done:
		return r.recs, r.err
	default:
		return nil, unavailable(ErrClosed)
	}
}

func unavailable(err error) *machine.Error {
	return &machine.Error{Code: machine.Unavailable, Text: "the machine's state cannot be written: " + err.Error()}
}

// run is the committer.
func (s *Store) run() {
	defer close(s.stopped)
	timer := time.NewTimer(s.linger)
	defer timer.Stop()
	for {
		b := s.newBatch()
		var look <-chan time.Time
		if s.needed > 0 {
			look = time.After(roomPause)
		}
		select {
		case <-look:
			s.lookForRoom()
			continue
		case r := <-s.urgent:
			s.stage(b, r)
		case r := <-s.later:
			timer.Reset(s.linger)
			select {
			case u := <-s.urgent:
				s.stage(b, u)
			case <-timer.C:
			case <-s.closing:
			}
			s.stage(b, r)
		case <-s.closing:
			s.drain()
			if s.disk != nil {
				s.closeErr = s.disk.close()
			}
			return
		}
		s.fill(b)
		s.commit(b)
	}
}

// fill adds what is queued to the batch.
func (s *Store) fill(b *batch) {
	s.fillFrom(b, s.urgent, urgentBatch)
	if b.bytes >= batchBytes {
		// One at least, or a stream of big records would starve the completions.
		s.fillFrom(b, s.later, 1)
		return
	}
	s.fillFrom(b, s.later, laterBatch)
}

func (s *Store) fillFrom(b *batch, queue chan *request, most int) {
	for range most {
		select {
		case r := <-queue:
			s.stage(b, r)
		default:
			return
		}
		if b.bytes >= batchBytes {
			return
		}
	}
}

// drain commits what is still queued at Close.
func (s *Store) drain() {
	for {
		b := s.newBatch()
		s.fill(b)
		if len(b.requests) == 0 && len(s.urgent) == 0 && len(s.later) == 0 {
			return
		}
		s.commit(b)
	}
}

// commit makes the batch durable, publishes it and answers its callers, in this
// order. When it fails, all of the batch fails: each decision may rest on one
// before it.
func (s *Store) commit(b *batch) {
	if len(b.requests) == 0 {
		return // its callers gave up
	}
	began := time.Now()
	err := s.write(b)
	s.committed(len(b.requests), time.Since(began), err)
	if err != nil {
		for _, r := range b.requests {
			r.recs, r.err = nil, unavailable(err)
			r.answer()
		}
		return
	}
	s.publish(b)
	s.batches.Add(1)
	s.decisions.Add(uint64(len(b.requests)))
	for _, r := range b.requests {
		r.answer()
	}
}

func (s *Store) write(b *batch) error {
	if err := s.Err(); err != nil {
		return err
	}
	if len(b.changes) == 0 && b.inventoried.IsZero() && b.ownership == nil {
		return nil
	}
	b.evicted = s.marks.evictions(b.changes)
	s.generations.evict(b)
	if s.disk == nil {
		return nil
	}
	err := s.disk.write(b)
	if err == nil {
		s.spacious()
		return nil
	}
	if errors.Is(err, errFull) {
		if s.needed == 0 { // once, and not for every call that is refused meanwhile
			s.log.Error("state file cannot be written; calls are refused and change nothing until there is space", "error", err)
		}
		s.needed = max(s.needed, b.bytes, leastRoom)
		s.full.Store(&err)
		return err
	}
	// The kernel may have dropped the pages of a failed sync and report success
	// next time: to try again would be to acknowledge what is not there.
	s.brokenErr = fmt.Errorf("%w; no change is accepted until a restart has read the file again", err)
	close(s.broken)
	s.log.Error("state file broken", "error", err)
	return s.brokenErr
}

// Full is why nothing can be written for lack of space, nil when something can.
func (s *Store) Full() error {
	if err := s.full.Load(); err != nil {
		return *err
	}
	return nil
}

const (
	// roomPause is how often a store without space looks whether there is some
	// again: without calls, no write would tell.
	roomPause = 2 * time.Second
	// leastRoom is what a transaction of one machine may need.
	leastRoom = 64 << 10
)

// lookForRoom ends the lack of space when there is room for what was refused.
func (s *Store) lookForRoom() {
	if s.needed == 0 || s.Err() != nil {
		return
	}
	if err := s.disk.room(s.needed); err != nil {
		s.full.Store(&err)
		return
	}
	s.spacious()
}

func (s *Store) spacious() {
	if s.needed > 0 {
		s.log.Info("state file can be written again")
	}
	s.needed = 0
	s.full.Store(nil)
}

// publish shows a committed batch to readers.
func (s *Store) publish(b *batch) {
	b.sort()
	for _, id := range b.evicted {
		s.marks.drop(id)
	}
	for _, c := range b.order {
		if c.rec == nil && len(c.marks) > 0 {
			s.marks.put(c.id, c.age, c.marks)
		} else {
			s.marks.drop(c.id)
		}
	}
	s.marks.age = b.age
	s.unknown.Store(uint64(s.marks.len()))
	if at := b.inventoried; !at.IsZero() {
		s.inventoried.Store(&at)
	}
	if b.ownership != nil {
		s.ownership.Store(b.ownership)
	}
	if len(b.forgotten) > 0 {
		s.log.Warn("too many slots had failed machines: the generation of the longest unchanged is forgotten, and an id that failed there may be used again",
			"forgotten", len(b.forgotten), "first", b.forgotten[0], "limit", s.generations.limit)
	}
	// Before the index: whoever finds a slot without its machine must find what
	// that machine left.
	s.generations.publish(b)
	s.index.publish(b)
}
