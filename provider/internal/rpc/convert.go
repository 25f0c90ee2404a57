package rpc

import (
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	pb "bigfleet-providers/proto/bigfleet/v1alpha1"
	"bigfleet-providers/provider/internal/machine"
)

// machinesField is MachineList.machines in provider.proto.
const machinesField = 1

// Frame encodes a record as one element of MachineList.machines, tag and length
// included, so that a list is the concatenation of its machines' frames and is
// never encoded again. The result must not be changed.
func Frame(rec *machine.Record) []byte {
	m := toProto(rec)
	size := proto.Size(m)
	frame := make([]byte, 0, protowire.SizeTag(machinesField)+protowire.SizeBytes(size))
	frame = protowire.AppendTag(frame, machinesField, protowire.BytesType)
	frame = protowire.AppendVarint(frame, uint64(size))
	frame, err := proto.MarshalOptions{UseCachedSize: true}.MarshalAppend(frame, m)
	if err != nil {
		// Marshalling fails only on text that is not UTF-8, which neither the
		// decoder of a request nor the loader of offerings lets in.
		panic("rpc: a record cannot be encoded: " + err.Error())
	}
	return frame
}

// unframe returns the machine inside a frame.
func unframe(frame []byte) []byte {
	_, n := protowire.ConsumeVarint(frame[protowire.SizeTag(machinesField):])
	return frame[protowire.SizeTag(machinesField)+n:]
}

// toProto shows a record as the wire does. Marks, operations and what is left
// to clean up are ours alone.
func toProto(rec *machine.Record) *pb.Machine {
	m := &pb.Machine{
		Id:            rec.ID,
		State:         pb.MachineState(rec.State),
		LastError:     rec.LastError,
		Cluster:       rec.Cluster,
		ShardMetadata: rec.Metadata,
	}
	if rec.Host != (machine.Host{}) {
		m.Host = &pb.HostRef{Provider: rec.Host.Provider, Ref: rec.Host.Ref}
	}
	if o := rec.Offer; o != nil {
		m.InstanceType, m.Zone = o.InstanceType, o.Zone
		m.CapacityType = pb.CapacityType(o.Capacity)
		m.PricePerHour, m.InterruptionProbability = o.PricePerHour, o.Interruption
		m.Labels = o.Labels
		m.Resources = &pb.Resources{Resources: o.Resources}
		m.Allocatable = &pb.Resources{Resources: o.Allocatable}
	}
	return m
}

// revisionField is MachineList.revision in provider.proto.
const revisionField = 2

func appendRevision(b, revision []byte) []byte {
	b = protowire.AppendTag(b, revisionField, protowire.BytesType)
	return protowire.AppendBytes(b, revision)
}
