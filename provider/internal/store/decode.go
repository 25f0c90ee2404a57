package store

import (
	"fmt"
	"math"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	statev1 "bigfleet-providers/proto/bigfleet/state/v1"
	"bigfleet-providers/provider/internal/machine"
)

// decoder decodes values. Offers of the same content become one. It may be used
// by many goroutines.
type decoder struct {
	mu     sync.Mutex
	offers map[string]*machine.Offer
}

// record decodes a machine; value is not kept.
func (d *decoder) record(id string, value []byte) (*machine.Record, error) {
	payload, err := open(machinesBucket, id, value)
	if err != nil {
		return nil, err
	}
	var p statev1.Record
	if err := proto.Unmarshal(payload, &p); err != nil {
		return nil, err
	}
	state := machine.State(p.State)
	if state < machine.Speculative || state > machine.Failed {
		return nil, fmt.Errorf("unknown state %d", p.State)
	}
	offer, err := d.offer(p.Offer)
	if err != nil {
		return nil, fmt.Errorf("its offer: %w", err)
	}
	op, err := fromOperation(p.Op)
	if err != nil {
		return nil, err
	}
	// Strings that are the same nearly always share their bytes.
	slot, history := p.Slot, fromHistory(p.History)
	if slot == id {
		slot = id
	}
	if op != nil && op.ID == history.Create {
		history.Create = op.ID
	}
	return &machine.Record{
		ID:        id,
		Revision:  p.Revision,
		Slot:      slot,
		Offer:     offer,
		State:     state,
		Since:     fromNano(p.Since),
		Host:      p.Host.GetRef(),
		Cluster:   p.Cluster,
		Metadata:  fromBytes(p.Metadata),
		LastError: string(p.LastError),
		Marks:     fromMarks(p.Marks),
		History:   history,
		Op:        op,
		Leftover:  fromLeftover(p.Leftover),
		Retired:   p.Retired,
		Succeeded: p.Succeeded,
		Lock:      fromLock(p.Lock),
		Bound:     p.Bound,
	}, nil
}

// offer decodes an offer, or returns the one of the same content.
func (d *decoder) offer(b []byte) (*machine.Offer, error) {
	if b == nil {
		return nil, nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if o := d.offers[string(b)]; o != nil {
		return o, nil
	}
	var p statev1.Offer
	if err := proto.Unmarshal(b, &p); err != nil {
		return nil, err
	}
	o := &machine.Offer{
		InstanceType: p.InstanceType,
		Zone:         p.Zone,
		Capacity:     machine.CapacityType(p.Capacity),
		PricePerHour: p.PricePerHour,
		Interruption: p.Interruption,
		Resources:    fromBytes(p.Resources),
		Labels:       fromBytes(p.Labels),
		Allocatable:  fromBytes(p.Allocatable),
		Options:      string(p.Options),
	}
	if d.offers == nil {
		d.offers = map[string]*machine.Offer{}
	}
	d.offers[string(b)] = o
	return o, nil
}

func unknownMarks(id string, value []byte) (age uint64, marks machine.Marks, err error) {
	payload, err := open(marksBucket, id, value)
	if err != nil {
		return 0, nil, err
	}
	var p statev1.UnknownMarks
	if err := proto.Unmarshal(payload, &p); err != nil {
		return 0, nil, err
	}
	return p.Age, fromMarks(p.Marks), nil
}

func rememberedGeneration(slot string, value []byte) (age uint64, generation int, err error) {
	payload, err := open(generationsBucket, slot, value)
	if err != nil {
		return 0, 0, err
	}
	var p statev1.Generation
	if err := proto.Unmarshal(payload, &p); err != nil {
		return 0, 0, err
	}
	if p.Generation < 2 || p.Generation > math.MaxInt {
		return 0, 0, fmt.Errorf("%d is none that is remembered", p.Generation)
	}
	return p.Age, int(p.Generation), nil
}

func fromNano(n int64) time.Time {
	if n == 0 {
		return time.Time{}
	}
	return time.Unix(0, n).UTC()
}

func fromBytes(m map[string][]byte) map[string]string {
	if len(m) == 0 {
		return nil
	}
	out := make(map[string]string, len(m))
	for k, v := range m {
		out[k] = string(v)
	}
	return out
}

func fromMarks(marks []*statev1.ShardMark) machine.Marks {
	var out machine.Marks
	for _, m := range marks {
		out = out.With(m.Shard, machine.Mark{Epoch: m.Mark.GetEpoch(), Sequence: m.Mark.GetSequence()})
	}
	return out
}

func fromLock(l *statev1.HostLock) *machine.HostLock {
	if l == nil {
		return nil
	}
	return &machine.HostLock{Ref: l.Ref, Host: l.Host}
}

func fromHistory(h *statev1.History) machine.History {
	return machine.History{Create: h.GetCreate(), Configure: h.GetConfigure(), Drain: h.GetDrain(), Delete: h.GetDelete()}
}

func fromOperation(op *statev1.Operation) (*machine.Operation, error) {
	if op == nil {
		return nil, nil
	}
	kind := machine.Kind(op.Kind)
	if kind < machine.Create || kind > machine.Delete {
		return nil, fmt.Errorf("unknown kind %d of its operation", op.Kind)
	}
	return &machine.Operation{
		ID:        op.Id,
		Kind:      kind,
		Started:   fromNano(op.Started),
		Deadline:  fromNano(op.Deadline),
		Step:      op.Step,
		StepBegan: fromNano(op.StepBegan),
		Ref:       op.Ref,
		Notes:     fromBytes(op.Notes),
		Grace:     time.Duration(op.Grace),
		Sealed:    op.Sealed,
		Joined:    op.Joined,
		Options:   string(op.Options),
	}, nil
}

func fromLeftover(l *statev1.Leftover) *machine.Leftover {
	if l == nil {
		return nil
	}
	return &machine.Leftover{
		OperationID: l.OperationId,
		Ref:         l.Ref,
		Notes:       fromBytes(l.Notes),
		Step:        l.Step,
		After:       fromNano(l.After),
	}
}
