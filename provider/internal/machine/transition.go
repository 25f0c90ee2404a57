package machine

import (
	"time"
)

// transition is one row of the table: a call of some kind takes a machine in
// state from through during to to.
type transition struct{ from, during, to State }

// edge is the transition table.
func edge(k Kind) transition {
	switch k {
	case Create:
		return transition{Speculative, Creating, Idle}
	case Configure:
		return transition{Idle, Configuring, Configured}
	case Drain:
		return transition{Configured, Draining, Idle}
	case Delete:
		return transition{Idle, Deleting, Speculative}
	default:
		return transition{}
	}
}

// owns says whether the operation is the one under way. What arrives for any
// other is late and must not change the record.
func owns(cur Record, operationID string) bool {
	return cur.Op != nil && cur.Op.ID == operationID && cur.State == edge(cur.Op.Kind).during
}

// Progress is what an operation has reached.
type Progress struct {
	Step   string
	Began  time.Time
	Ref    string
	Notes  map[string]string
	Joined bool
	// AsIs says that a Create keeps the system that is on its server, and with it
	// the token that an operator put there.
	AsIs bool
}

// Advance records the progress of an operation. It reports false, and changes
// nothing, when the operation is no longer the machine's.
func Advance(cur Record, operationID string, p Progress) (Record, bool) {
	if !owns(cur, operationID) {
		return cur, false
	}
	next := cur.Clone()
	next.Op.Step, next.Op.StepBegan = p.Step, p.Began
	next.Op.Ref, next.Op.Notes = p.Ref, p.Notes
	next.Op.Joined = p.Joined
	next.Bound = cur.Bound && !p.AsIs
	return next, true
}

// Finish ends an operation well: the machine enters the state where the
// operation leads and the operation's inputs are erased. It reports false, and
// changes nothing, when the operation is no longer the machine's.
func Finish(cur Record, operationID string, now time.Time) (Record, bool) {
	if !owns(cur, operationID) {
		return cur, false
	}
	next := cur.Clone()
	op := next.Op
	next.Op = nil
	next.State, next.Since = edge(op.Kind).to, now
	switch op.Kind {
	case Create:
		next.Host = op.Ref
	case Configure:
	case Drain:
		next.Cluster, next.Metadata = "", nil
	case Delete:
		next.Host, next.Bound = "", true
		// The id of the Delete stays: a retry of it is a replay until the next
		// Create.
		next.History = History{Delete: op.ID}
	}
	return next, true
}

// Fail ends an operation badly: FAILED, with the reason kept verbatim for as
// long as the machine is listed. What the operation holds in the cloud becomes
// a leftover, not to be touched before keep has passed: workloads may still run
// on a host that failed while bound. It reports false, and changes nothing,
// when the operation is no longer the machine's.
func Fail(cur Record, operationID, reason string, now time.Time, keep time.Duration) (Record, bool) {
	if !owns(cur, operationID) {
		return cur, false
	}
	next := cur.Clone()
	op := next.Op
	next.Op = nil
	next.State, next.Since, next.LastError = Failed, now, reason
	if Untouched(op) {
		return next, true
	}
	l := &Leftover{OperationID: op.ID, Ref: op.Ref, Notes: op.Notes, After: now}
	if op.Kind != Create {
		l.OperationID = next.History.Create
	}
	if next.Cluster != "" {
		l.After = now.Add(keep)
	}
	next.Leftover = l
	return next, true
}

// Untouched says that an operation ended before it did anything at the cloud:
// the name of a step is recorded before the step runs.
func Untouched(op *Operation) bool { return op.Kind == Create && op.Step == "" && op.Ref == "" }

// Vacate begins the Delete of an IDLE machine whose host is gone, which nobody
// asked for: it ends with the slot free and with nothing left of the host. Only
// IDLE machines can be vacated.
func Vacate(cur Record, operationID string, now time.Time, timeout time.Duration) (Record, bool) {
	if cur.State != Idle {
		return cur, false
	}
	return start(cur, Request{Kind: Delete, OperationID: operationID, Timeout: timeout}, now), true
}

// Break fails a machine that no operation is working on, because its host is
// gone or broken. Only IDLE and CONFIGURED machines can break so.
func Break(cur Record, reason string, now time.Time, keep time.Duration) (Record, bool) {
	if cur.State != Idle && cur.State != Configured {
		return cur, false
	}
	next := cur.Clone()
	next.State, next.Since, next.LastError = Failed, now, reason
	next.Leftover = &Leftover{OperationID: next.History.Create, Ref: next.Host, After: now}
	if next.Cluster != "" {
		next.Leftover.After = now.Add(keep)
	}
	return next, true
}
