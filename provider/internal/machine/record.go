// Package machine is the lifecycle of one machine as pure values: its record,
// the fencing marks, the transition table and the one function, Decide, that
// judges a mutating call. It does no I/O, reads no clock, holds no lock and
// knows nothing of the wire or of a cloud.
package machine

import (
	"maps"
	"time"
)

// State is the position of a machine in its lifecycle. The values are those of
// the wire enum.
type State int32

// The states. Unknown is the state of an id that has no record.
const (
	Unknown     State = 0
	Speculative State = 1
	Creating    State = 2
	Idle        State = 3
	Configuring State = 4
	Configured  State = 5
	Draining    State = 6
	Deleting    State = 7
	Failed      State = 8
)

// String is the state's name in capitals, as operators read it.
func (s State) String() string {
	switch s {
	case Speculative:
		return "SPECULATIVE"
	case Creating:
		return "CREATING"
	case Idle:
		return "IDLE"
	case Configuring:
		return "CONFIGURING"
	case Configured:
		return "CONFIGURED"
	case Draining:
		return "DRAINING"
	case Deleting:
		return "DELETING"
	case Failed:
		return "FAILED"
	default:
		return "UNKNOWN"
	}
}

// Transitional says that an operation is under way in this state.
func (s State) Transitional() bool {
	return s == Creating || s == Configuring || s == Draining || s == Deleting
}

// Kind is the kind of a mutating call.
type Kind int

// The kinds.
const (
	Create Kind = iota + 1
	Configure
	Drain
	Delete
)

// Kinds lists the kinds in the order of a machine's life.
func Kinds() []Kind { return []Kind{Create, Configure, Drain, Delete} }

// String is the kind's name as operators read it.
func (k Kind) String() string {
	switch k {
	case Create:
		return "Create"
	case Configure:
		return "Configure"
	case Drain:
		return "Drain"
	case Delete:
		return "Delete"
	default:
		return "Kind(?)"
	}
}

// CapacityType is how the cloud sells the capacity. The values are those of the
// wire enum.
type CapacityType int

// The capacity types.
const (
	CapacityUnspecified CapacityType = 0
	BareMetal           CapacityType = 1
	Reserved            CapacityType = 2
	OnDemand            CapacityType = 3
	Spot                CapacityType = 4
)

// String is the capacity type's name as metrics show it.
func (c CapacityType) String() string {
	switch c {
	case BareMetal:
		return "bare_metal"
	case Reserved:
		return "reserved"
	case OnDemand:
		return "on_demand"
	case Spot:
		return "spot"
	default:
		return "unspecified"
	}
}

// Offer is what a slot offers. It is shared between records and never changed
// after it was made.
type Offer struct {
	InstanceType string
	Zone         string
	Capacity     CapacityType
	PricePerHour float64 // USD, finite, ≥ 0
	Interruption float64 // probability in [0, 1]; > 0 for Spot only
	Resources    map[string]string
	Labels       map[string]string
	Allocatable  map[string]string
	// Options is what the cloud's adapter is told about new instances, in a form
	// that only it and the offerings know. List does not show it.
	Options string
}

// Operation is one transition under way: all that is needed to continue it
// after a restart.
type Operation struct {
	ID       string
	Kind     Kind
	Started  time.Time
	Deadline time.Time // absolute; past it the machine is FAILED
	// Step is the name of the step that may have begun; "" before the first.
	// StepBegan says since when.
	Step      string
	StepBegan time.Time
	// Ref and Notes are the cloud steps' own memory (cloud.Task).
	Ref   string
	Notes map[string]string
	// Grace is Drain's grace period.
	Grace time.Duration
	// Sealed is Configure's bootstrap blob, encrypted; nil when it could not be
	// sealed and lives in memory only.
	Sealed []byte
	// Joined says that the host reported success and only the cloud's own
	// bookkeeping is left.
	Joined bool
	// Options are Create's: those of the offer when the call was accepted. What is
	// offered may change, or go, while an instance is half made.
	Options string
}

// History is the operation ids of the present life of a slot, by kind; "" for
// a kind that was not started in it. A retry is recognised by it.
type History struct {
	Create, Configure, Drain, Delete string
}

// Of returns the id of the kind's last operation in this life.
func (h History) Of(k Kind) string {
	switch k {
	case Create:
		return h.Create
	case Configure:
		return h.Configure
	case Drain:
		return h.Drain
	case Delete:
		return h.Delete
	default:
		return ""
	}
}

// Record is all that is known of one machine. Records are values: whoever
// changes one works on a Clone. A Record in state Unknown stands for an id that
// is not one of ours; it may still carry fencing marks.
type Record struct {
	ID    string
	Slot  string // the quota slot it fills; a successor of a failed machine has the slot and another id
	Offer *Offer

	// State and the three after it share a word: a record fits 256 bytes, which is
	// a size that the allocator has, see TestSize.
	State State
	// Retired says that no offering has this slot any more: the record goes when
	// its host does.
	Retired bool
	// Succeeded says that another machine fills the slot of this failed one.
	Succeeded bool
	// Bound says that the id has had a life before, so that only the token of the
	// present one is the machine's, see Life.
	Bound bool

	Since time.Time // when State was entered

	Host      string // the cloud's zone and id of the server; "" until IDLE
	Cluster   string
	Metadata  map[string]string
	LastError string // set when, and only when, State is Failed

	Marks   Marks
	History History
	Op      *Operation // nil when no operation is under way

	// Leftover is what a failed operation still has in the cloud, to be torn
	// down in the background; nil when nothing is left.
	Leftover *Leftover
	// Lock is which host may use the machine's token; nil for the first that comes.
	Lock *HostLock
	// Revision is the store's, of the last change that List shows.
	Revision uint64
}

// Leftover is a host, or the beginnings of one, that has no future.
type Leftover struct {
	OperationID string
	Ref         string
	Notes       map[string]string
	Step        string
	After       time.Time // not to be touched before
}

// Clone returns a copy that shares only what is never changed in place.
func (r Record) Clone() Record {
	c := r
	c.Metadata = maps.Clone(r.Metadata)
	if r.Op != nil {
		op := *r.Op
		op.Notes = maps.Clone(r.Op.Notes)
		c.Op = &op
	}
	if r.Leftover != nil {
		l := *r.Leftover
		l.Notes = maps.Clone(r.Leftover.Notes)
		c.Leftover = &l
	}
	return c
}

// Change says what a store has to do with the record that a Mutation returns.
type Change int

// The changes.
const (
	Unchanged Change = iota // nothing to write
	Private                 // write it; List shows nothing new, the revision stays
	Visible                 // write it under the next revision
	Gone                    // remove it
)

// Next is what is to become of one machine.
type Next struct {
	Record Record
	Change Change
}

// Mutation makes the next record out of the committed one. It must be pure: it
// may be called again on another base. The error is for the caller only; the
// change is committed whether it is nil or not (a refused call may still have
// advanced a fencing mark).
type Mutation func(current Record) (Record, Change, error)
