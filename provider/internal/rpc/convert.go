package rpc

import (
	"maps"
	"sync"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	pb "bigfleet-providers/proto/bigfleet/v1alpha1"
	"bigfleet-providers/provider/internal/machine"
)

// Field numbers of provider.proto. TestReadsAreTheRecords holds what is encoded
// by them against the generated code.
const (
	listMachines protowire.Number = 1
	listRevision protowire.Number = 2

	machineID        protowire.Number = 1
	machineState     protowire.Number = 2
	machineHost      protowire.Number = 3
	machineLabels    protowire.Number = 10
	machineLastError protowire.Number = 12
	machineCluster   protowire.Number = 14
	machineMetadata  protowire.Number = 15

	hostProvider protowire.Number = 1
	hostRef      protowire.Number = 2

	mapKey   protowire.Number = 1
	mapValue protowire.Number = 2
)

// Framer encodes records as elements of MachineList.machines, tag and length
// included, so that a list is the concatenation of its machines' frames and is
// never encoded again. What an offer contributes is encoded once for all of its
// machines: it is most of a frame, and maps are slow to encode. It may be
// used by many goroutines.
type Framer struct {
	// Provider is the name in every HostRef.provider.
	Provider string

	mu     sync.RWMutex
	offers map[*machine.Offer][]byte
}

// maxOffers bounds what a Framer remembers: prices, and with them offers, are
// replaced for ever.
const maxOffers = 4096

// Frame encodes a record. The result must not be changed.
func (f *Framer) Frame(rec *machine.Record) []byte {
	offer := f.offer(rec.Offer)
	size := len(offer) + sizeText(machineID, rec.ID) + sizeText(machineLastError, rec.LastError) + sizeText(machineCluster, rec.Cluster) +
		protowire.SizeTag(machineState) + protowire.SizeVarint(uint64(rec.State))
	host := 0
	if rec.Host != "" {
		host = sizeText(hostProvider, f.Provider) + sizeText(hostRef, rec.Host)
		size += protowire.SizeTag(machineHost) + protowire.SizeBytes(host)
	}
	stage := stageOf(rec)
	if stage != "" {
		size += protowire.SizeTag(machineLabels) + protowire.SizeBytes(sizeEntry(stageLabel, stage))
	}
	for k, v := range rec.Metadata {
		size += protowire.SizeTag(machineMetadata) + protowire.SizeBytes(sizeEntry(k, v))
	}

	b := make([]byte, 0, protowire.SizeTag(listMachines)+protowire.SizeBytes(size))
	b = appendHead(b, listMachines, size)
	b = appendText(b, machineID, rec.ID)
	b = protowire.AppendTag(b, machineState, protowire.VarintType)
	b = protowire.AppendVarint(b, uint64(rec.State))
	if host > 0 {
		b = appendHead(b, machineHost, host)
		b = appendText(b, hostProvider, f.Provider)
		b = appendText(b, hostRef, rec.Host)
	}
	b = append(b, offer...)
	if stage != "" {
		b = appendEntry(b, machineLabels, stageLabel, stage)
	}
	b = appendText(b, machineLastError, rec.LastError)
	b = appendText(b, machineCluster, rec.Cluster)
	for k, v := range rec.Metadata {
		b = appendEntry(b, machineMetadata, k, v)
	}
	return b
}

// stageLabel is the label under which a dedicated server that is being made
// shows how far it has got: that takes minutes to hours, and List says nothing
// else of it.
const stageLabel = "bigfleet.io/stage"

// stageOf is the step of such a Create, "" otherwise.
func stageOf(rec *machine.Record) string {
	if rec.State != machine.Creating || rec.Op == nil || rec.Offer == nil || rec.Offer.Capacity != machine.BareMetal {
		return ""
	}
	return rec.Op.Step
}

// offer returns the encoded fields that a machine has from its offer.
func (f *Framer) offer(o *machine.Offer) []byte {
	if o == nil {
		return nil
	}
	f.mu.RLock()
	b, ok := f.offers[o]
	f.mu.RUnlock()
	if ok {
		return b
	}
	m := &pb.Machine{}
	setOffer(m, o)
	b, err := proto.Marshal(m)
	if err != nil {
		// Marshalling fails only on text that is not UTF-8, which the loader of
		// offerings does not let in.
		panic("rpc: an offer cannot be encoded: " + err.Error())
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.offers == nil || len(f.offers) >= maxOffers {
		f.offers = map[*machine.Offer][]byte{}
	}
	f.offers[o] = b
	return b
}

// unframe returns the machine inside a frame.
func unframe(frame []byte) []byte {
	tag := protowire.SizeTag(listMachines)
	_, n := protowire.ConsumeVarint(frame[tag:])
	return frame[tag+n:]
}

func appendRevision(b, revision []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(b, listRevision, protowire.BytesType), revision)
}

// appendHead appends tag and length of a field whose content follows.
func appendHead(b []byte, field protowire.Number, size int) []byte {
	return protowire.AppendVarint(protowire.AppendTag(b, field, protowire.BytesType), uint64(size))
}

// appendText appends a string field; an empty one is not on the wire.
func appendText(b []byte, field protowire.Number, v string) []byte {
	if v == "" {
		return b
	}
	return protowire.AppendString(protowire.AppendTag(b, field, protowire.BytesType), v)
}

func sizeText(field protowire.Number, v string) int {
	if v == "" {
		return 0
	}
	return protowire.SizeTag(field) + protowire.SizeBytes(len(v))
}

// appendEntry appends an entry of a map field. Entries of one map need not stand
// together, and the last of a key counts.
func appendEntry(b []byte, field protowire.Number, k, v string) []byte {
	b = appendHead(b, field, sizeEntry(k, v))
	b = protowire.AppendString(protowire.AppendTag(b, mapKey, protowire.BytesType), k)
	return protowire.AppendString(protowire.AppendTag(b, mapValue, protowire.BytesType), v)
}

// sizeEntry is the size of a map entry, whose key and value are always there.
func sizeEntry(k, v string) int {
	return protowire.SizeTag(mapKey) + protowire.SizeBytes(len(k)) + protowire.SizeTag(mapValue) + protowire.SizeBytes(len(v))
}

// toProto shows a record as the wire does. Marks, operations and what is left
// to clean up are ours alone.
func toProto(rec *machine.Record, provider string) *pb.Machine {
	m := &pb.Machine{
		Id:            rec.ID,
		State:         pb.MachineState(rec.State),
		LastError:     rec.LastError,
		Cluster:       rec.Cluster,
		ShardMetadata: rec.Metadata,
	}
	if rec.Host != "" {
		m.Host = &pb.HostRef{Provider: provider, Ref: rec.Host}
	}
	if rec.Offer != nil {
		setOffer(m, rec.Offer)
	}
	if stage := stageOf(rec); stage != "" {
		if m.Labels = maps.Clone(m.Labels); m.Labels == nil {
			m.Labels = map[string]string{}
		}
		m.Labels[stageLabel] = stage
	}
	return m
}

func setOffer(m *pb.Machine, o *machine.Offer) {
	m.InstanceType, m.Zone = o.InstanceType, o.Zone
	m.CapacityType = pb.CapacityType(o.Capacity)
	m.PricePerHour, m.InterruptionProbability = o.PricePerHour, o.Interruption
	m.Labels = o.Labels
	m.Resources = &pb.Resources{Resources: o.Resources}
	m.Allocatable = &pb.Resources{Resources: o.Allocatable}
}
