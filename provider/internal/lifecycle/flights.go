package lifecycle

import (
	"container/list"
	"time"

	"bigfleet-providers/provider/internal/machine"
)

// flights are the operations of one kind that are driven or wait in their lane,
// the oldest first, so that its age is known without a look at the others.
type flights struct {
	byAge list.List // of flight
	at    map[string]*list.Element
}

type flight struct {
	operation string
	started   time.Time
}

func newFlights() map[machine.Kind]*flights {
	all := map[machine.Kind]*flights{}
	for _, k := range machine.Kinds() {
		all[k] = &flights{at: map[string]*list.Element{}}
	}
	return all
}

// add looks for the place from the young end: operations come in the order of
// their acceptance, nearly so when a start resumes them.
func (f *flights) add(operation string, started time.Time) {
	next := flight{operation, started}
	for e := f.byAge.Back(); e != nil; e = e.Prev() {
		if !e.Value.(flight).started.After(started) {
			f.at[operation] = f.byAge.InsertAfter(next, e)
			return
		}
	}
	f.at[operation] = f.byAge.PushFront(next)
}

func (f *flights) remove(operation string) {
	if e, ok := f.at[operation]; ok {
		f.byAge.Remove(e)
		delete(f.at, operation)
	}
}

// InFlight returns how many operations of the kind have no outcome yet, and when
// the oldest of them was accepted; the zero time when there is none.
func (e *Engine) InFlight(k machine.Kind) (count int, oldest time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	f := e.flights[k]
	if front := f.byAge.Front(); front != nil {
		oldest = front.Value.(flight).started
	}
	return f.byAge.Len(), oldest
}
