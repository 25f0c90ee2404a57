package operator

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	pb "bigfleet-providers/proto/bigfleet/v1alpha1"
)

// fullEvery is how often a follower reads the whole list: a delta does not tell
// which ids have disappeared.
const fullEvery = 30

// follower follows the list by its revisions.
type follower struct {
	client *client
	match  func(*pb.Machine) bool
	// known are the machines that match; since is when their state was first seen,
	// zero for those that were in it before the follower came.
	known  map[string]*pb.Machine
	since  map[string]time.Time
	turn   map[string]int // of its last change
	turns  int
	cursor []byte
	rounds int
	lost   bool // the last question was not answered
}

func follow(c *client, match func(*pb.Machine) bool) *follower {
	return &follower{client: c, match: match, known: map[string]*pb.Machine{}, since: map[string]time.Time{}, turn: map[string]int{}}
}

// event is a change of one machine: old is nil for a new one, machine is nil for
// one that is listed no more, or matches no more.
type event struct {
	id           string
	old, machine *pb.Machine
}

// next asks what has changed. After a question without an answer it asks for
// everything.
func (f *follower) next(ctx context.Context) ([]event, error) {
	full := f.lost || f.rounds%fullEvery == 0
	filter := &pb.ListFilter{SinceRevision: f.cursor}
	if full {
		filter.SinceRevision = nil
	}
	l, err := f.client.list(ctx, filter)
	f.lost = err != nil
	if err != nil {
		return nil, err
	}
	first := f.rounds == 0
	f.rounds++
	f.cursor = l.GetRevision()
	return f.take(l, full, first), nil
}

// take finds what is new in a list. A delta may turn out to be the full list:
// what is known already is no news.
func (f *follower) take(l *pb.MachineList, full, first bool) []event {
	var events []event
	listed := make(map[string]bool, len(l.GetMachines()))
	for _, m := range l.GetMachines() {
		id := m.GetId()
		old := f.known[id]
		if !f.match(m) {
			if old != nil {
				f.forget(id)
				events = append(events, event{id, old, nil})
			}
			continue
		}
		listed[id] = true
		if proto.Equal(old, m) {
			continue
		}
		f.known[id] = m
		f.turns++
		f.turn[id] = f.turns
		if !first && (old == nil || old.GetState() != m.GetState()) {
			f.since[id] = time.Now()
		}
		events = append(events, event{id, old, m})
	}
	if !full {
		return events
	}
	for id, old := range f.known {
		if !listed[id] {
			f.forget(id)
			events = append(events, event{id, old, nil})
		}
	}
	return events
}

func (f *follower) forget(id string) {
	delete(f.known, id)
	delete(f.since, id)
	delete(f.turn, id)
}

// sorted returns the known machines in one of the orders, those under way first.
func (f *follower) sorted(by string) []*pb.Machine {
	compare := orders[by]
	return slices.SortedFunc(maps.Values(f.known), func(a, b *pb.Machine) int {
		busy := func(m *pb.Machine) int {
			if underWay(m.GetState()) {
				return 0
			}
			return 1
		}
		turn := 0
		if by == "changed" {
			turn = f.turn[a.GetId()] - f.turn[b.GetId()]
		}
		return cmp.Or(busy(a)-busy(b), compare(a, b), turn, cmp.Compare(a.GetId(), b.GetId()))
	})
}
