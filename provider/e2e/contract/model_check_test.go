package contract

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "bigfleet-providers/proto/bigfleet/v1alpha1"
)

// machine is one that has what its state demands.
func machine(state pb.MachineState) *pb.Machine {
	m := &pb.Machine{Id: "m", State: state}
	if state != speculative && state != creating {
		m.Host = &pb.HostRef{Provider: "p", Ref: "r"}
	}
	if state == configuring || state == configured || state == draining {
		m.Cluster = "c"
	}
	return m
}

func ok(operation string, state pb.MachineState) answer {
	return answer{operation, machine(state), nil}
}

func refusal(code codes.Code) answer { return answer{err: status.Error(code, "")} }

// did is an event without a token.
func did(k kind, a answer) event {
	return event{call: call{kind: k, id: "m", cluster: "c"}, shard: -1, answer: a}
}

func got(state pb.MachineState) event {
	return event{get: true, answer: answer{machine: machine(state)}}
}

func with(e event, change func(*event)) event {
	change(&e)
	return e
}

// TestModel: the model must take a right history, and find the fault of each
// wrong one, which is in its last event.
func TestModel(t *testing.T) {
	t.Parallel()
	created := []event{did(create, ok("1", creating)), got(idle)}
	bound := slices.Concat(created, []event{did(configure, ok("2", configuring)), got(configured)})
	drained := slices.Concat(bound, []event{did(drain, ok("3", draining)), got(idle)})
	deleted := slices.Concat(drained, []event{did(del, ok("4", deleting)), got(speculative)})
	fenced := []event{with(did(create, ok("1", creating)), func(e *event) { e.shard, e.call.token = 0, token{"s", 2, 2} })}
	at := func(history []event, last ...event) []event { return slices.Concat(history, last) }
	withToken := func(epoch, sequence int64, a answer) event {
		return with(did(create, a), func(e *event) { e.shard, e.call.token = 0, token{"s", epoch, sequence} })
	}
	for name, tt := range map[string]struct {
		history []event
		wrong   string // part of what is said; empty: all is right
	}{
		"a whole life":                     {deleted, ""},
		"a second life":                    {at(deleted, did(create, ok("5", creating))), ""},
		"an unseen end":                    {[]event{did(create, ok("1", creating)), did(configure, ok("2", configuring)), did(drain, ok("3", draining))}, ""},
		"a retry in the transition":        {at(created[:1], did(create, ok("1", creating))), ""},
		"a retry at its end":               {at(created, did(create, ok("1", idle))), ""},
		"a retry after the drain":          {at(drained, did(drain, ok("3", idle))), ""},
		"an earlier life's Delete":         {[]event{did(del, ok("0", speculative)), did(del, ok("0", speculative))}, ""},
		"no earlier life":                  {[]event{did(del, refusal(codes.Internal))}, ""},
		"a refusal":                        {at(created, did(drain, refusal(codes.Internal))), ""},
		"a stale token":                    {at(fenced, withToken(2, 2, refusal(codes.FailedPrecondition))), ""},
		"a wrong argument":                 {at(created, with(did(drain, refusal(codes.InvalidArgument)), func(e *event) { e.invalid = true })), ""},
		"a retry starts another operation": {at(created, did(create, ok("2", creating))), "want \"1\""},
		"a retry has no operation":         {at(created, did(create, ok("", idle))), "want \"1\""},
		"a retry is refused":               {at(created, did(create, refusal(codes.Internal))), "want OK"},
		"an operation is used again":       {at(deleted, did(create, ok("1", creating))), "used before"},
		"a new one has no id":              {at(created, did(configure, ok("", configuring))), "used before"},
		"an ack shows the state before":    {[]event{did(create, ok("1", speculative))}, "want MACHINE_STATE_CREATING"},
		"an ack shows the end":             {[]event{did(create, ok("1", idle))}, "want MACHINE_STATE_CREATING"},
		"two earlier operations":           {[]event{did(del, ok("0", speculative)), did(del, ok("1", speculative))}, "want \"0\""},
		"Drain of what was never bound":    {at(created, did(drain, ok("2", idle))), "want a refusal"},
		"the last life's Drain":            {at(deleted, did(create, ok("5", creating)), got(idle), did(drain, ok("3", idle))), "want a refusal"},
		"Configure for another cluster":    {at(bound, with(did(configure, ok("2", configured)), func(e *event) { e.call.cluster = "d" })), "want a refusal"},
		"Delete of a bound machine":        {at(bound, did(del, ok("3", deleting))), "want a refusal"},
		"a refusal that pages a human":     {at(bound, did(del, refusal(codes.FailedPrecondition))), "want a refusal"},
		"a refusal that moved something":   {at(created, did(drain, refusal(codes.Internal)), got(draining)), "were it MACHINE_STATE_IDLE"},
		"an accepted stale token":          {at(fenced, withToken(2, 2, ok("1", creating))), "want FailedPrecondition"},
		"a refused new token":              {at(fenced, withToken(3, 0, refusal(codes.FailedPrecondition))), "want OK"},
		"an accepted wrong argument":       {at(created, with(did(configure, ok("2", configuring)), func(e *event) { e.invalid = true })), "want InvalidArgument"},
		"a step back":                      {[]event{created[0], got(idle), got(creating)}, "the machine is MACHINE_STATE_CREATING"},
		"a lost answer":                    {[]event{did(create, refusal(codes.Unavailable))}, "want OK"},
		"another binding":                  {at(bound, with(got(configured), func(e *event) { e.answer.machine.Cluster = "d" })), "cluster \"d\""},
		"metadata of nobody":               {at(bound, with(got(configured), func(e *event) { e.answer.machine.ShardMetadata = map[string]string{"": ""} })), "metadata"},
		"a binding after the drain":        {at(drained, with(got(idle), func(e *event) { e.answer.machine.Cluster = "c" })), "cluster \"c\""},
		"a host that is not there yet":     {[]event{with(got(speculative), func(e *event) { e.answer.machine.Host = machine(idle).GetHost() })}, "a host"},
		"an error without a failure":       {at(created, with(got(idle), func(e *event) { e.answer.machine.LastError = "?" })), "a last_error"},
		"a failure":                        {at(created, with(got(failed), func(e *event) { e.answer.machine.LastError = "boot" })), "MACHINE_STATE_FAILED"},
	} {
		t.Run(name, func(t *testing.T) {
			lives, err := newborn(), error(nil)
			for i, e := range tt.history {
				e.from, e.to = int64(2*i), int64(2*i+1)
				tt.history[i] = e
				if err != nil {
					t.Fatalf("event %d, which is right: %v", i-1, err)
				}
				lives, err = follow(lives, e)
			}
			if (err == nil) != (tt.wrong == "") || err != nil && !strings.Contains(err.Error(), tt.wrong) {
				t.Errorf("%v, want %q", err, tt.wrong)
			}
			// One after the other, there is one order only.
			if err := explain(newborn(), tt.history); (err == nil) != (tt.wrong == "") {
				t.Errorf("as a history: %v, want %q", err, tt.wrong)
			}
		})
	}
}

// TestExplain: of calls that cross, some order must explain the answers.
func TestExplain(t *testing.T) {
	t.Parallel()
	during := func(from, to int64, e event) event {
		e.from, e.to = from, to
		return e
	}
	for name, tt := range map[string]struct {
		history []event
		right   bool
	}{
		"two creates, one operation":  {[]event{during(0, 9, did(create, ok("1", creating))), during(1, 8, did(create, ok("1", creating)))}, true},
		"two creates, two operations": {[]event{during(0, 9, did(create, ok("1", creating))), during(1, 8, did(create, ok("2", creating)))}, false},
		"answered in the other order": {[]event{during(0, 9, did(configure, ok("2", configuring))), during(1, 8, did(create, ok("1", creating)))}, true},
		"before it could be":          {[]event{during(0, 1, did(configure, ok("2", configuring))), during(2, 3, did(create, ok("1", creating)))}, false},
		"refused before, not after":   {[]event{during(0, 9, did(configure, refusal(codes.Internal))), during(1, 2, did(create, ok("1", creating))), during(3, 4, got(idle))}, true},
		"a read of the past":          {[]event{during(0, 1, did(create, ok("1", creating))), during(2, 3, got(speculative))}, false},
	} {
		t.Run(name, func(t *testing.T) {
			if err := explain(newborn(), tt.history); (err == nil) != tt.right {
				t.Errorf("%v, want right: %t", err, tt.right)
			}
		})
	}
	if err := explain(newborn(), make([]event, mostEvents+1)); err == nil || errors.Unwrap(err) != nil {
		t.Errorf("too many events: %v", err)
	}
}
