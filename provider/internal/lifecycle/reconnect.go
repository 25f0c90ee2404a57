package lifecycle

import (
	"slices"
	"time"

	"bigfleet-providers/provider/internal/cloud"
	"bigfleet-providers/provider/internal/machine"
)

// endOf is when an operation ends that a process before this one began. A host
// works on while no provider is there, and its report needs some time to come when
// one is back: a deadline that has passed meanwhile does not count before.
func (e *Engine) endOf(op *machine.Operation) time.Time {
	if !e.hostMayReport(op) {
		return op.Deadline
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if until := e.since.Add(e.o.Pace.Reconnect); until.After(op.Deadline) {
		return until
	}
	return op.Deadline
}

// hostMayReport says whether an operation has come so far that its host may be up,
// or may have done what it was told.
func (e *Engine) hostMayReport(op *machine.Operation) bool {
	plan := e.steps(op.Kind)
	at := slices.IndexFunc(plan, func(s step) bool { return s.name == op.Step })
	switch op.Kind {
	case machine.Create:
		first := slices.IndexFunc(plan, func(s step) bool { return s.slow || s.sign != cloud.SignNothing })
		return at >= first
	case machine.Configure, machine.Drain:
		first := slices.IndexFunc(plan, func(s step) bool { return s.slow })
		return at >= first
	default:
		return false
	}
}
