package lifecycle

import (
	"context"
	"time"

	"bigfleet-providers/provider/internal/machine"
)

// lane holds the operations of one kind that have no outcome yet, in the order of
// their acceptance. So many are driven at a time; the others wait, the oldest comes
// next, and they cost no goroutine. An operation's deadline runs while it waits, see
// overdue.
type lane struct {
	limit            int
	size, driven     int
	oldest, youngest *flight
	waiting          *flight   // the oldest that waits
	expires          time.Time // no deadline of those that wait is earlier
}

// flight is an operation in its lane; its record stays where it is, in the store.
type flight struct {
	machine, operation string
	started, deadline  time.Time
	driven, resumed    bool
	older, younger     *flight
}

// maxDriven bounds the operations of each other kind that are driven at a time.
// They mostly wait for hosts.
const maxDriven = 1024

const (
	// overduePause is between two looks for operations that wait past their
	// deadline, and overdueAtOnce bounds those that one look ends.
	overduePause  = time.Second
	overdueAtOnce = 512
)

func lanes(maxCreates int) map[machine.Kind]*lane {
	all := map[machine.Kind]*lane{}
	for _, k := range machine.Kinds() {
		all[k] = &lane{limit: maxDriven}
	}
	if maxCreates > 0 {
		all[machine.Create].limit = maxCreates
	}
	return all
}

// enter adds an operation that waits. It is the youngest, whatever the clock said
// when it was accepted.
func (l *lane) enter(f *flight) {
	f.older = l.youngest
	*l.youngerOf(f.older), l.youngest = f, f
	l.size++
	if l.waiting == nil {
		l.waiting = f
	}
	if l.size-l.driven == 1 || f.deadline.Before(l.expires) {
		l.expires = f.deadline
	}
}

// next makes the oldest that waits a driven one, if there is room; nil if not.
func (l *lane) next() *flight {
	f := l.waiting
	if f == nil || l.driven >= l.limit {
		return nil
	}
	l.drives(f)
	return f
}

func (l *lane) drives(f *flight) {
	f.driven = true
	l.driven++
	for l.waiting != nil && l.waiting.driven {
		l.waiting = l.waiting.younger
	}
}

// overdue makes operations driven that wait past their deadline, beyond the
// limit: nothing is begun for them any more, they only fail. Those in front of
// them may take for hours yet.
func (l *lane) overdue(now time.Time) (all []*flight) {
	if l.waiting == nil || l.expires.After(now) {
		return nil
	}
	var expires time.Time
	for f := l.waiting; f != nil; f = f.younger {
		switch {
		case f.driven:
		case !f.deadline.After(now) && len(all) < overdueAtOnce:
			all = append(all, f)
		case expires.IsZero() || f.deadline.Before(expires):
			expires = f.deadline
		}
	}
	for _, f := range all {
		l.drives(f)
	}
	l.expires = expires
	return all
}

// leave removes a driven operation.
func (l *lane) leave(f *flight) {
	*l.youngerOf(f.older), *l.olderOf(f.younger) = f.younger, f.older
	l.size--
	l.driven--
}

// youngerOf is where the lane says which comes after f; nil is before the oldest.
func (l *lane) youngerOf(f *flight) **flight {
	if f == nil {
		return &l.oldest
	}
	return &f.younger
}

// olderOf is where the lane says which comes before f; nil is behind the youngest.
func (l *lane) olderOf(f *flight) **flight {
	if f == nil {
		return &l.youngest
	}
	return &f.older
}

// launch drives the record's operation, now or when its lane has room. It does
// nothing when the engine does not run: the next one resumes the operation.
func (e *Engine) launch(rec machine.Record) { e.enqueue(rec, false) }

// enqueue is launch; resumed says that a process before this one began the
// operation.
func (e *Engine) enqueue(rec machine.Record, resumed bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.running == nil || e.running.Err() != nil || e.flights[rec.Op.ID] != nil {
		return
	}
	l, f := e.lanes[rec.Op.Kind], &flight{machine: rec.ID, operation: rec.Op.ID, started: rec.Op.Started, deadline: rec.Op.Deadline, resumed: resumed}
	e.flights[f.operation] = f
	l.enter(f)
	if f := l.next(); f != nil {
		e.spawn(e.running, l, f)
	}
}

// spawn starts a driver, which goes on with what waits in its lane. It is
// called with e.mu held.
func (e *Engine) spawn(ctx context.Context, l *lane, f *flight) {
	e.work.Go(func() {
		for f != nil {
			// Only a driver ends an operation, so the record still has it; unless it
			// was settled before this process had it to drive.
			rec, ok := e.o.Store.Record(f.machine)
			if ok && rec.Op != nil && rec.Op.ID == f.operation && ctx.Err() == nil {
				e.drive(ctx, rec, f.resumed)
			}
			e.mu.Lock()
			delete(e.flights, f.operation)
			delete(e.blobs, f.operation) // under one lock: a replay gives none to what has ended
			l.leave(f)
			f = l.next()
			e.mu.Unlock()
		}
	})
}

// endOverdue has operations that wait end at their deadline, until ctx ends.
func (e *Engine) endOverdue(ctx context.Context) {
	for sleep(ctx, overduePause) {
		e.mu.Lock()
		for _, l := range e.lanes {
			for _, f := range l.overdue(time.Now()) {
				e.spawn(ctx, l, f)
			}
		}
		e.mu.Unlock()
	}
}

// Backlog returns how many operations of the kind are driven and how many wait.
func (e *Engine) Backlog(k machine.Kind) (driven, waiting int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	l := e.lanes[k]
	return l.driven, l.size - l.driven
}

// InFlight returns how many operations of the kind have no outcome yet, and when
// the oldest of them was accepted; the zero time when there is none.
func (e *Engine) InFlight(k machine.Kind) (count int, oldest time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	l := e.lanes[k]
	if l.oldest != nil {
		oldest = l.oldest.started
	}
	return l.size, oldest
}
