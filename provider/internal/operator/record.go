package operator

import (
	"time"

	pb "bigfleet-providers/proto/bigfleet/v1alpha1"
	"bigfleet-providers/provider/internal/machine"
)

// record is a machine's record as JSON. It names what it shows field by field,
// so that a field that is added to the records, a secret perhaps, does not show
// by itself.
type record struct {
	ID        string            `json:"id"`
	Slot      string            `json:"slot,omitempty"`
	State     string            `json:"state"`
	Since     *time.Time        `json:"since,omitempty"`
	Revision  uint64            `json:"revision,omitempty"`
	Offer     *offer            `json:"offer,omitempty"`
	Host      string            `json:"host,omitempty"`
	Cluster   string            `json:"cluster,omitempty"`
	Metadata  map[string]string `json:"shard_metadata,omitempty"`
	LastError string            `json:"last_error,omitempty"`
	Marks     map[string]mark   `json:"marks,omitempty"`
	History   map[string]string `json:"history,omitempty"`
	Operation *operation        `json:"operation,omitempty"`
	Leftover  *leftover         `json:"leftover,omitempty"`
	Retired   bool              `json:"retired,omitempty"`
	Succeeded bool              `json:"succeeded,omitempty"`
	Lock      *hostLock         `json:"lock,omitempty"`
	Bound     bool              `json:"bound,omitempty"` // the token is that of History's Create alone
}

// hostLock is the host that the machine's token is tied to: the server, and the
// beginning of the digest of the host's id, as in host list.
type hostLock struct {
	Ref  string `json:"ref"`
	Host string `json:"host"`
}

// mark is the newest fencing token of a shard.
type mark struct {
	Epoch    int64 `json:"epoch"`
	Sequence int64 `json:"sequence"`
}

type offer struct {
	InstanceType string            `json:"instance_type"`
	Zone         string            `json:"zone"`
	Capacity     string            `json:"capacity_type"`
	PricePerHour float64           `json:"price_per_hour"`
	Interruption float64           `json:"interruption_probability"`
	Resources    map[string]string `json:"resources,omitempty"`
	Labels       map[string]string `json:"labels,omitempty"`
	Allocatable  map[string]string `json:"allocatable,omitempty"`
	Options      string            `json:"options,omitempty"`
}

type operation struct {
	ID        string            `json:"id"`
	Kind      string            `json:"kind"`
	Started   *time.Time        `json:"started,omitempty"`
	Deadline  *time.Time        `json:"deadline,omitempty"`
	Step      string            `json:"step,omitempty"`
	StepBegan *time.Time        `json:"step_began,omitempty"`
	Ref       string            `json:"ref,omitempty"`
	Notes     map[string]string `json:"notes,omitempty"`
	Grace     string            `json:"grace,omitempty"`
	Blob      int               `json:"sealed_blob_bytes"`
	Joined    bool              `json:"joined,omitempty"`
	Options   string            `json:"options,omitempty"`
}

type leftover struct {
	OperationID string            `json:"operation_id"`
	Ref         string            `json:"ref,omitempty"`
	Notes       map[string]string `json:"notes,omitempty"`
	Step        string            `json:"step,omitempty"`
	After       *time.Time        `json:"after,omitempty"`
}

func newRecord(m machine.Record) record {
	r := record{
		ID: m.ID, Slot: m.Slot, State: m.State.String(), Since: at(m.Since), Revision: m.Revision,
		Cluster: m.Cluster, Metadata: m.Metadata, LastError: m.LastError, Marks: newMarks(m.Marks),
		Retired: m.Retired, Succeeded: m.Succeeded, Bound: m.Bound,
	}
	if o := m.Offer; o != nil {
		r.Offer = &offer{o.InstanceType, o.Zone, capacityName(pb.CapacityType(o.Capacity)), o.PricePerHour, o.Interruption, o.Resources, o.Labels, o.Allocatable, o.Options}
	}
	if m.Host != "" {
		r.Host = m.Host
	}
	for _, k := range machine.Kinds() {
		if id := m.History.Of(k); id != "" {
			if r.History == nil {
				r.History = map[string]string{}
			}
			r.History[k.String()] = id
		}
	}
	if op := m.Op; op != nil {
		r.Operation = &operation{
			ID: op.ID, Kind: op.Kind.String(), Started: at(op.Started), Deadline: at(op.Deadline), Step: op.Step,
			StepBegan: at(op.StepBegan), Ref: op.Ref, Notes: op.Notes, Blob: len(op.Sealed), Joined: op.Joined, Options: op.Options,
		}
		if op.Grace > 0 {
			r.Operation.Grace = op.Grace.String()
		}
	}
	if l := m.Leftover; l != nil {
		r.Leftover = &leftover{l.OperationID, l.Ref, l.Notes, l.Step, at(l.After)}
	}
	if l := m.Lock; l != nil {
		r.Lock = &hostLock{l.Ref, l.Host[:min(len(l.Host), 12)]}
	}
	return r
}

func newMarks(marks machine.Marks) map[string]mark {
	out := make(map[string]mark, len(marks))
	for _, m := range marks {
		out[m.Shard] = mark{m.Epoch, m.Sequence}
	}
	return out
}

// at is a time, nil for none.
func at(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}
