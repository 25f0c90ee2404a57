package contract

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"

	pb "bigfleet-providers/proto/bigfleet/v1alpha1"
)

// life is the model of one machine: everything that decides what the server may
// answer. It is a value that can be compared.
type life struct {
	state    pb.MachineState
	cluster  string
	metadata string    // as pack writes it
	ops      [4]string // of this life, by kind
	used     string    // all operation ids so far, each between bars
	marks    [3]mark   // of the shards, by their number
	kept     bool      // there is no Delete
}

// anything stands for an operation of which the model knows that it exists, but
// not its id.
const anything = "*"

// newborn is what a SPECULATIVE machine may be: it may have been deleted before,
// and remember it.
func newborn() []life {
	return []life{{state: speculative}, {state: speculative, ops: [4]string{del: anything}}}
}

// unborn is the same of a machine of the server under test.
func unborn() []life {
	if keeps() {
		return []life{{state: speculative, kept: true}}
	}
	return newborn()
}

func pack(metadata map[string]string) string {
	var b strings.Builder
	for _, k := range slices.Sorted(maps.Keys(metadata)) {
		fmt.Fprintf(&b, "%q=%q ", k, metadata[k])
	}
	return b.String()
}

// event is one call or Get of a history, with its answer.
type event struct {
	call    call
	shard   int  // whose token it carries, by number; -1: none
	get     bool // a Get, not a call
	invalid bool // the arguments are wrong
	answer  answer

	from, to int64 // when it was sent and answered, by one clock
}

func (e event) String() string {
	if e.get {
		return fmt.Sprintf("Get: %v", e.answer)
	}
	c := e.call
	return fmt.Sprintf("%s (shard %d, epoch %d, sequence %d, cluster %q, grace %d): %v", c.kind, e.shard, c.token.epoch, c.token.sequence, c.cluster, c.grace, e.answer)
}

// after returns the life after the event, or why its answer is wrong in this
// life.
func (l life) after(e event) (life, error) {
	switch {
	case e.get:
		if e.answer.err != nil {
			return l, e.answer.err
		}
		return l, l.shows(e.answer.machine)
	case e.invalid:
		return l, e.answer.hasCode(codes.InvalidArgument)
	case l.kept && e.call.kind == del:
		return l, e.answer.hasCode(codes.Unimplemented)
	}
	if e.shard >= 0 {
		if !l.marks[e.shard].admits(e.call.token) {
			return l, e.answer.hasCode(codes.FailedPrecondition)
		}
		l.marks[e.shard] = mark{true, e.call.token.epoch, e.call.token.sequence}
	}
	k := e.call.kind
	edge := edges[k]
	if l.ops[k] != "" && (l.state == edge.during || l.state == edge.to) && (k != configure || l.cluster == e.call.cluster) {
		return l.replayed(k, e.answer)
	}
	if l.state != edge.from {
		if !misplaced(e.answer.code()) {
			return l, fmt.Errorf("%v, want a refusal of %s in %s", e.answer, k, l.state)
		}
		return l, nil
	}
	return l.started(e)
}

// replayed expects the answer to a call that repeats an operation.
func (l life) replayed(k kind, a answer) (life, error) {
	if err := a.hasCode(codes.OK); err != nil {
		return l, err
	}
	if l.ops[k] == anything {
		l.ops[k] = a.operation
	}
	if a.operation == "" || a.operation != l.ops[k] {
		return l, fmt.Errorf("operation %q for a retry of %s, want %q", a.operation, k, l.ops[k])
	}
	return l, l.shows(a.machine)
}

// started expects the answer to a call that starts an operation.
func (l life) started(e event) (life, error) {
	if err := e.answer.hasCode(codes.OK); err != nil {
		return l, err
	}
	k, operation := e.call.kind, e.answer.operation
	if operation == "" || strings.Contains(l.used, "|"+operation+"|") || slices.Contains(l.ops[:], operation) {
		return l, fmt.Errorf("operation %q for a new %s: empty, or used before", operation, k)
	}
	switch k {
	case create:
		l.ops = [4]string{}
	case configure:
		l.ops[drain] = ""
		l.cluster, l.metadata = e.call.cluster, pack(e.call.metadata)
	case drain, del:
	}
	l.state, l.ops[k] = edges[k].during, operation
	l.used += "|" + operation + "|"
	return l, l.shows(e.answer.machine)
}

// settled is the life at the end of its transition, if it is in one.
func (l life) settled() (life, bool) {
	end, moving := ends[l.state]
	if !moving {
		return l, false
	}
	if l.state == draining {
		l.cluster, l.metadata = "", ""
	}
	l.state = end
	return l, true
}

// shows says in what a machine differs from the life.
func (l life) shows(m *pb.Machine) error {
	if m.GetState() != l.state {
		return fmt.Errorf("the machine is %s, want %s", m.GetState(), l.state)
	}
	var errs []error
	if m.GetCluster() != l.cluster {
		errs = append(errs, fmt.Errorf("cluster %q, want %q", m.GetCluster(), l.cluster))
	}
	if got := pack(m.GetShardMetadata()); got != l.metadata {
		errs = append(errs, fmt.Errorf("metadata %s, want %s", got, l.metadata))
	}
	return errors.Join(append(errs, stateFaults(m))...)
}

func (a answer) hasCode(want codes.Code) error {
	if a.code() != want {
		return fmt.Errorf("%v, want %s", a, want)
	}
	return nil
}

// follow returns the lives that a machine may have after an event, if it may
// have had any of lives before: each may have settled meanwhile. An answer that
// is wrong in all of them is an error.
func follow(lives []life, e event) ([]life, error) {
	var next []life
	var errs []error
	for _, l := range lives {
		for moving := true; moving; l, moving = l.settled() {
			after, err := l.after(e)
			if err != nil {
				errs = append(errs, fmt.Errorf("were it %s: %w", l.state, err))
			} else if !slices.Contains(next, after) {
				next = append(next, after)
			}
		}
	}
	if len(next) == 0 {
		return nil, fmt.Errorf("%v: %w", e, errors.Join(errs...))
	}
	return next, nil
}
