package crash

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"

	pb "bigfleet-providers/proto/bigfleet/v1alpha1"
)

// mirror is the list as deltas tell it, with some of its past.
type mirror struct {
	cursor   []byte
	machines map[string]*pb.Machine
	past     []mirror // oldest first
	applied  int
}

const (
	// keptPast is how many earlier cursors are tried after a restart, and
	// pastEvery how many deltas lie between two of them.
	keptPast  = 6
	pastEvery = 7
)

func newMirror() mirror { return mirror{machines: map[string]*pb.Machine{}} }

func (m *mirror) apply(l *pb.MachineList) error {
	before, after := revision(m.cursor), revision(l.GetRevision())
	if after < before {
		return fmt.Errorf("the revision went back from %d to %d", before, after)
	}
	for _, x := range l.GetMachines() {
		m.machines[x.GetId()] = x
	}
	m.cursor = l.GetRevision()
	if m.applied++; m.applied%pastEvery == 0 {
		m.past = append(m.past, mirror{cursor: m.cursor, machines: maps.Clone(m.machines)})
		m.past = m.past[max(0, len(m.past)-keptPast):]
	}
	return nil
}

// revision reads a cursor: instance, revision, checksum. Shards must not.
func revision(cursor []byte) uint64 {
	if len(cursor) != 28 {
		return 0
	}
	return binary.BigEndian.Uint64(cursor[16:])
}

func (w *world) since(cursor []byte) (*pb.MachineList, error) {
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	return w.List(ctx, &pb.ListFilter{SinceRevision: cursor})
}

// checkCursors gives back the newest cursor and some of the past: each delta,
// laid over what was known then, must make the full list.
func (c *churn) checkCursors() error {
	var errs []error
	for _, old := range append(c.mirror.past, mirror{cursor: c.mirror.cursor, machines: c.mirror.machines}) {
		errs = append(errs, c.checkCursor(old))
	}
	return errors.Join(errs...)
}

func (c *churn) checkCursor(old mirror) error {
	// Completions go on meanwhile, so the two answers may be of different
	// revisions; then they are asked for again.
	for range 200 {
		delta, err := c.since(old.cursor)
		if err != nil {
			return err
		}
		full, err := c.since(nil)
		if err != nil {
			return err
		}
		if revision(full.GetRevision()) < revision(old.cursor) {
			return fmt.Errorf("the revision went back from %d to %d", revision(old.cursor), revision(full.GetRevision()))
		}
		if revision(delta.GetRevision()) != revision(full.GetRevision()) {
			continue
		}
		got := maps.Clone(old.machines)
		for _, m := range delta.GetMachines() {
			got[m.GetId()] = m
		}
		var errs []error
		for _, want := range full.GetMachines() {
			if !same(got[want.GetId()], want) {
				errs = append(errs, fmt.Errorf("by the delta since %d, %s is %v; it is %v", revision(old.cursor), want.GetId(), got[want.GetId()], want))
			}
			delete(got, want.GetId())
		}
		for id, m := range got {
			if m.GetState() != failed { // only those leave the list
				errs = append(errs, fmt.Errorf("%s (%s) is listed no more", id, m.GetState()))
			}
		}
		return errors.Join(errs...)
	}
	return errors.New("the list did not hold still")
}
