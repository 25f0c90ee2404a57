package machine

import (
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// Limits of a mutating call, from the capacity provider contract. They are part
// of the docs; change both.
const (
	MaxIDBytes       = 256     // machine, cluster and shard ids
	MaxBlobBytes     = 1 << 20 // bootstrap_blob
	MaxMetadataBytes = 1 << 20 // shard_metadata, keys and values together
	MaxMetadataKeys  = 4096
	// MaxGrace keeps grace plus any timeout inside a time.Duration.
	MaxGrace = 30 * 24 * time.Hour
	// MaxShards bounds the marks one machine keeps; no deployment has so many
	// shards that touch one machine.
	MaxShards = 1024
)

// Request is a mutating call.
type Request struct {
	Kind      Kind
	MachineID string
	Fence     Fence

	Cluster      string // Configure
	Metadata     map[string]string
	BlobBytes    int    // the size of the blob, for its limit
	Sealed       []byte // the blob, encrypted; nil when it cannot be kept on disk
	GraceSeconds int64  // Drain

	// OperationID is used if the call starts an operation: never used before.
	OperationID string
	// Timeout is how long the operation may take.
	Timeout time.Duration
}

// Rules are the parts of a verdict that an operator or a substrate sets.
type Rules struct {
	RequireFence bool // refuse calls without a token
	CanDelete    bool // the substrate can give hosts back
}

// Outcome says what Decide did.
type Outcome int

// The outcomes.
const (
	Refused  Outcome = iota // Decision.Err says why
	Replayed                // a retry of an operation that exists; nothing was started
	Started                 // a new operation
)

// Decision is the verdict on a call. Next is to be committed as Change says,
// whatever the outcome.
type Decision struct {
	Next    Record
	Change  Change
	Outcome Outcome
	// OperationID is set unless the call was refused.
	OperationID string
	Err         *Error
}

// Check judges the request alone: every fault at once, before anything is
// looked up. It returns nil or an InvalidArgument error.
func (q Request) Check(rules Rules) *Error {
	var errs []error
	fault := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	id := func(field, v string) {
		if len(v) > MaxIDBytes {
			fault("%s: %d bytes, the limit is %d", field, len(v), MaxIDBytes)
		}
	}
	if q.MachineID == "" {
		fault("machine_id: missing")
	}
	id("machine_id", q.MachineID)
	id("shard_id", q.Fence.Shard)
	if rules.RequireFence && q.Fence.Empty() {
		fault("shard_id, shard_epoch, sequence_number: missing, and this provider requires a fencing token (--require-fence)")
	}
	switch q.Kind {
	case Configure:
		if q.Cluster == "" {
			fault("cluster_id: missing")
		}
		id("cluster_id", q.Cluster)
		if strings.ContainsFunc(q.Cluster, unicode.IsControl) || !utf8.ValidString(q.Cluster) {
			fault("cluster_id: has a control character or is not UTF-8; a host gets it as an environment variable")
		}
		if q.BlobBytes > MaxBlobBytes {
			fault("bootstrap_blob: %d bytes, the limit is %d", q.BlobBytes, MaxBlobBytes)
		}
		if n := len(q.Metadata); n > MaxMetadataKeys {
			fault("shard_metadata: %d keys, the limit is %d", n, MaxMetadataKeys)
		}
		size := 0
		for k, v := range q.Metadata {
			size += len(k) + len(v)
		}
		if size > MaxMetadataBytes {
			fault("shard_metadata: %d bytes, the limit is %d", size, MaxMetadataBytes)
		}
	case Drain:
		if q.GraceSeconds < 0 {
			fault("grace_period_seconds: %d is negative", q.GraceSeconds)
		}
		if q.GraceSeconds > int64(MaxGrace/time.Second) {
			fault("grace_period_seconds: %d, the limit is %d", q.GraceSeconds, int64(MaxGrace/time.Second))
		}
	case Create, Delete:
	}
	if len(errs) == 0 {
		return nil
	}
	return &Error{Code: InvalidArgument, Text: errors.Join(errs...).Error()}
}

// Decide judges a mutating call against the committed record: arguments, fence,
// existence, replay, position, in that order. It is pure; the caller commits
// Next and only then answers.
func Decide(cur Record, q Request, rules Rules, now time.Time) Decision {
	if err := q.Check(rules); err != nil {
		return Decision{Next: cur, Err: err}
	}
	if q.Kind == Delete && !rules.CanDelete {
		return Decision{Next: cur, Err: refuse(Unsupported, "this substrate cannot give hosts back; a drained host stays in the pool")}
	}

	d := Decision{Next: cur}
	if !q.Fence.Empty() {
		mark, seen := cur.Marks.Of(q.Fence.Shard)
		if seen && !mark.Admits(q.Fence) {
			d.Err = refuse(Stale, "stale fencing token: shard %q sent epoch %d, sequence %d for machine %q, but epoch %d, sequence %d was already used; every call needs a token of its own, also the retry of one that was refused",
				q.Fence.Shard, q.Fence.Epoch, q.Fence.Sequence, q.MachineID, mark.Epoch, mark.Sequence)
			return d
		}
		if !seen && len(cur.Marks) >= MaxShards {
			d.Err = refuse(InvalidArgument, "shard_id: machine %q already has fencing marks of %d shards, the limit", q.MachineID, MaxShards)
			return d
		}
		d.Next = cur.Clone()
		d.Next.Marks = cur.Marks.With(q.Fence.Shard, Mark{Epoch: q.Fence.Epoch, Sequence: q.Fence.Sequence})
		d.Change = Private
	}

	if cur.State == Unknown {
		d.Next.ID = q.MachineID
		d.Err = refuse(NotFound, "machine %q: not found", q.MachineID)
		return d
	}
	if id := replayOf(cur, q); id != "" {
		d.Outcome, d.OperationID = Replayed, id
		return d
	}
	if err := position(cur, q); err != nil {
		d.Err = err
		return d
	}

	d.Next = start(d.Next, q, now)
	d.Change, d.Outcome, d.OperationID = Visible, Started, q.OperationID
	return d
}

// replayOf returns the id of the operation that the call repeats, or "". A call
// repeats an operation while the machine is in that transition or rests where
// it ends, within one life of the slot.
func replayOf(cur Record, q Request) string {
	during, end := edge(q.Kind).during, edge(q.Kind).to
	if cur.State != during && cur.State != end {
		return ""
	}
	if q.Kind == Configure && cur.Cluster != q.Cluster {
		return ""
	}
	return cur.History.Of(q.Kind)
}

// position refuses a call that the machine's state does not allow.
func position(cur Record, q Request) *Error {
	e := edge(q.Kind)
	if cur.State == e.from {
		if cur.Retired && q.Kind == Create {
			return refuse(Misplaced, "machine %q: its offering was removed", cur.ID)
		}
		return nil
	}
	switch {
	case cur.State == Failed:
		return refuse(Misplaced, "machine %q is FAILED for good (%s); another id takes its slot", cur.ID, cur.LastError)
	case q.Kind == Configure && (cur.State == Configuring || cur.State == Configured):
		return refuse(Misplaced, "machine %q is %s for cluster %q, not %q; drain it first", cur.ID, cur.State, cur.Cluster, q.Cluster)
	case cur.State.Transitional():
		return refuse(Busy, "machine %q is %s; %s needs %s", cur.ID, cur.State, q.Kind, e.from)
	default:
		return refuse(Misplaced, "machine %q is %s; %s needs %s", cur.ID, cur.State, q.Kind, e.from)
	}
}

// start enters the transition.
func start(next Record, q Request, now time.Time) Record {
	next = next.Clone()
	next.State, next.Since = edge(q.Kind).during, now
	next.Op = &Operation{
		ID: q.OperationID, Kind: q.Kind, Started: now, Deadline: now.Add(q.Timeout),
		Ref: next.Host,
	}
	switch q.Kind {
	case Create:
		next.Bound = next.Bound || next.History.Delete != "" // earlier releases bound nothing
		next.History = History{Create: q.OperationID}
		next.Op.Ref = ""
		next.Lock = nil // the new server's host is another
		if next.Offer != nil {
			next.Op.Options = next.Offer.Options
		}
	case Configure:
		next.History.Configure, next.History.Drain = q.OperationID, ""
		next.Cluster = q.Cluster
		next.Metadata = maps.Clone(q.Metadata)
		next.Op.Sealed = q.Sealed
	case Drain:
		next.History.Drain = q.OperationID
		next.Op.Grace = time.Duration(q.GraceSeconds) * time.Second
	case Delete:
		next.History.Delete = q.OperationID
	}
	return next
}
