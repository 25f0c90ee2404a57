package lifecycle

import (
	"context"

	"bigfleet-providers/provider/internal/machine"
)

// lane holds the operations of one kind: so many are driven at a time, the
// others wait in the order of their acceptance and cost no goroutine. An
// operation's deadline runs while it waits.
type lane struct {
	limit   int
	driven  int
	waiting []ticket
}

// ticket is an operation that waits; its record stays where it is, in the
// store.
type ticket struct{ machine, operation string }

// maxDriven bounds the operations of each other kind that are driven at a time.
// They mostly wait for hosts.
const maxDriven = 1024

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

// next takes the oldest waiting operation.
func (l *lane) next() (ticket, bool) {
	if len(l.waiting) == 0 {
		l.waiting = nil // give a long queue's memory back
		return ticket{}, false
	}
	t := l.waiting[0]
	l.waiting[0] = ticket{}
	l.waiting = l.waiting[1:]
	return t, true
}

// launch drives the record's operation, now or when its lane has room. It does
// nothing when the engine does not run: the next one resumes the operation.
func (e *Engine) launch(rec machine.Record) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.running == nil || e.running.Err() != nil || e.driving[rec.Op.ID] {
		return
	}
	e.driving[rec.Op.ID] = true
	e.flights[rec.Op.Kind].add(rec.Op.ID, rec.Op.Started)
	t := ticket{machine: rec.ID, operation: rec.Op.ID}
	l, f := e.lanes[rec.Op.Kind], e.flights[rec.Op.Kind]
	if l.driven >= l.limit {
		l.waiting = append(l.waiting, t)
		return
	}
	l.driven++
	e.spawn(e.running, l, f, t)
}

// spawn starts a driver, which goes on with what waits in its lane. It is
// called with e.mu held.
func (e *Engine) spawn(ctx context.Context, l *lane, f *flights, t ticket) {
	e.work.Go(func() {
		for more := true; more; {
			// Only a driver ends an operation, so the record still has it; unless it
			// was settled before this process had it to drive.
			rec, ok := e.o.Store.Record(t.machine)
			if ok && rec.Op != nil && rec.Op.ID == t.operation && ctx.Err() == nil {
				e.drive(ctx, rec)
			}
			e.mu.Lock()
			delete(e.driving, t.operation)
			f.remove(t.operation)
			if t, more = l.next(); !more {
				l.driven--
			}
			e.mu.Unlock()
		}
	})
}

// Backlog returns how many operations of the kind are driven and how many wait.
func (e *Engine) Backlog(k machine.Kind) (driven, waiting int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	l := e.lanes[k]
	return l.driven, len(l.waiting)
}
