package store

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"time"

	"google.golang.org/protobuf/proto"

	statev1 "bigfleet-providers/proto/bigfleet/state/v1"
	"bigfleet-providers/provider/internal/machine"
)

// A value in the file is the CRC-32C of its bucket's name, its key and its
// payload, then the payload: bbolt has no checksums of its own, and a value that
// was moved under another key is as wrong as one with a bit flipped.

const sumBytes = 4

var errChecksum = errors.New("checksum does not match")

func sum(bucket, key string, payload []byte) uint32 {
	c := crc32.Checksum([]byte(bucket), castagnoli)
	c = crc32.Update(c, castagnoli, []byte(key))
	return crc32.Update(c, castagnoli, payload)
}

// seal encodes a message as a value.
func seal(bucket, key string, m proto.Message) ([]byte, error) {
	v, err := proto.MarshalOptions{}.MarshalAppend(make([]byte, sumBytes, 512), m)
	if err != nil {
		return nil, fmt.Errorf("encode %s %q: %w", bucket, key, err)
	}
	return sign(bucket, key, v), nil
}

// sign sets the checksum of a value that has room for it at its start.
func sign(bucket, key string, value []byte) []byte {
	binary.BigEndian.PutUint32(value, sum(bucket, key, value[sumBytes:]))
	return value
}

// open returns the payload of a value.
func open(bucket, key string, value []byte) ([]byte, error) {
	if len(value) < sumBytes || binary.BigEndian.Uint32(value) != sum(bucket, key, value[sumBytes:]) {
		return nil, errChecksum
	}
	return value[sumBytes:], nil
}

// encoder encodes changes. It remembers encoded offers, which many machines
// share. It belongs to one goroutine.
type encoder struct {
	provider string // the owner's, for every Host
	offers   map[*machine.Offer][]byte
}

// maxOffers bounds what the encoder remembers: prices, and with them offers,
// are replaced for ever.
const maxOffers = 4096

// record sets the change's data from its record.
func (e *encoder) record(c *change) (err error) {
	r := c.rec
	offer, err := e.offer(r.Offer)
	if err != nil {
		return fmt.Errorf("machine %q: encode its offer: %w", c.id, err)
	}
	c.data, err = seal(machinesBucket, c.id, &statev1.Record{
		Revision:  r.Revision,
		Slot:      r.Slot,
		Offer:     offer,
		State:     statev1.State(r.State),
		Since:     toNano(r.Since),
		Host:      e.host(r.Host),
		Cluster:   r.Cluster,
		Metadata:  toBytes(r.Metadata),
		LastError: []byte(r.LastError),
		Marks:     toMarks(r.Marks),
		History:   toHistory(r.History),
		Op:        toOperation(r.Op),
		Leftover:  toLeftover(r.Leftover),
		Retired:   r.Retired,
		Succeeded: r.Succeeded,
		Lock:      toLock(r.Lock),
		Bound:     r.Bound,
	})
	return err
}

// marks sets the change's data from its marks.
func (e *encoder) marks(c *change) (err error) {
	c.data, err = seal(marksBucket, c.id, &statev1.UnknownMarks{Age: c.age, Marks: toMarks(c.marks)})
	return err
}

func (e *encoder) offer(o *machine.Offer) ([]byte, error) {
	if o == nil {
		return nil, nil
	}
	if b := e.offers[o]; b != nil {
		return b, nil
	}
	// Deterministic, so that offers of the same content are one at load.
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(&statev1.Offer{
		InstanceType: o.InstanceType,
		Zone:         o.Zone,
		Capacity:     statev1.Capacity(o.Capacity),
		PricePerHour: o.PricePerHour,
		Interruption: o.Interruption,
		Resources:    toBytes(o.Resources),
		Labels:       toBytes(o.Labels),
		Allocatable:  toBytes(o.Allocatable),
		Options:      []byte(o.Options),
	})
	if err != nil {
		return nil, err
	}
	if e.offers == nil || len(e.offers) >= maxOffers {
		e.offers = map[*machine.Offer][]byte{}
	}
	if b == nil {
		b = []byte{} // an offer of zero values is still an offer
	}
	e.offers[o] = b
	return b, nil
}

func (e *encoder) host(ref string) *statev1.Host {
	if ref == "" {
		return nil
	}
	return &statev1.Host{Provider: e.provider, Ref: ref}
}

func toNano(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixNano()
}

func toBytes(m map[string]string) map[string][]byte {
	if len(m) == 0 {
		return nil
	}
	out := make(map[string][]byte, len(m))
	for k, v := range m {
		out[k] = []byte(v)
	}
	return out
}

func toMarks(marks machine.Marks) []*statev1.ShardMark {
	if len(marks) == 0 {
		return nil
	}
	out := make([]*statev1.ShardMark, len(marks))
	for i, m := range marks {
		out[i] = &statev1.ShardMark{Shard: m.Shard, Mark: &statev1.Mark{Epoch: m.Epoch, Sequence: m.Sequence}}
	}
	return out
}

func toLock(l *machine.HostLock) *statev1.HostLock {
	if l == nil {
		return nil
	}
	return &statev1.HostLock{Ref: l.Ref, Host: l.Host}
}

func toHistory(h machine.History) *statev1.History {
	if h == (machine.History{}) {
		return nil
	}
	return &statev1.History{Create: h.Create, Configure: h.Configure, Drain: h.Drain, Delete: h.Delete}
}

func toOperation(op *machine.Operation) *statev1.Operation {
	if op == nil {
		return nil
	}
	return &statev1.Operation{
		Id:        op.ID,
		Kind:      statev1.Kind(op.Kind),
		Started:   toNano(op.Started),
		Deadline:  toNano(op.Deadline),
		Step:      op.Step,
		StepBegan: toNano(op.StepBegan),
		Ref:       op.Ref,
		Notes:     toBytes(op.Notes),
		Grace:     int64(op.Grace),
		Sealed:    op.Sealed,
		Joined:    op.Joined,
		Options:   []byte(op.Options),
	}
}

func toLeftover(l *machine.Leftover) *statev1.Leftover {
	if l == nil {
		return nil
	}
	return &statev1.Leftover{
		OperationId: l.OperationID,
		Ref:         l.Ref,
		Notes:       toBytes(l.Notes),
		Step:        l.Step,
		After:       toNano(l.After),
	}
}
