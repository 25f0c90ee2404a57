package lifecycle

import (
	"context"
	"errors"
	"time"

	"bigfleet-providers/provider/internal/machine"
)

// recordPause is the longest pause between two tries to write.
const recordPause = 5 * time.Second

// record makes a change durable that only its driver can make. It tries for as
// long as the engine runs: when a full disk ended a driver, its machine would
// stay in transition with nobody driving it. A store that is broken for good
// ends the process, and so the engine.
func (e *Engine) record(id string, m machine.Mutation) (machine.Record, error) {
	return e.recordBy(e.o.Store.DoLater, id, m)
}

// recordNow is record for a change that something waits for: an agent, whose
// command is the next step. Behind too many calls it waits its turn all the same:
// their callers can come again, and its operation would end as FAILED.
func (e *Engine) recordNow(id string, m machine.Mutation) (machine.Record, error) {
	rec, err := e.recordBy(e.o.Store.Do, id, m)
	if refused, ok := errors.AsType[*machine.Error](err); ok && refused.Code == machine.Exhausted {
		return e.record(id, m)
	}
	return rec, err
}

func (e *Engine) recordBy(do func(context.Context, string, machine.Mutation) (machine.Record, error), id string, m machine.Mutation) (machine.Record, error) {
	for failures := 1; ; failures++ {
		rec, err := do(context.Background(), id, m)
		if !storeFailed(err) {
			return rec, err
		}
		e.mu.Lock()
		running := e.running
		e.mu.Unlock()
		if running == nil || !sleep(running, min(e.backoff(failures), recordPause)) {
			return rec, err
		}
	}
}

// storeFailed says whether an outcome could not be made durable. The record is
// as it was, and a new process continues from it.
func storeFailed(err error) bool {
	var refused *machine.Error
	return errors.As(err, &refused) && refused.Code == machine.Unavailable
}
