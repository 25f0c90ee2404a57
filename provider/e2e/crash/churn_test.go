package crash

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"bigfleet-providers/agent"
	pb "bigfleet-providers/proto/bigfleet/v1alpha1"
	"bigfleet-providers/provider/internal/fakecloud"
)

// actWithin bounds one transition, over any number of kills: far above what one
// takes, so that only a machine that nobody drives reaches it.
const actWithin = 90 * time.Second

// lostAnswers is how many of a hundred calls that change the cloud are carried
// out and never answered.
const lostAnswers = 2

// churn walks machines through their lives, whatever becomes of the provider,
// and writes down what was acknowledged.
type churn struct {
	*world
	slots []*slot
	// calls is held for reading during a call and the writing down of its answer,
	// acts during a whole transition. The audits lock them.
	calls, acts sync.RWMutex
	// scarce is how many of a hundred power-ons find no hardware.
	scarce atomic.Int32

	stop    chan struct{}
	running sync.WaitGroup
	broken  chan error // holds the first fault

	mu     sync.Mutex
	owners map[string]string // which turn an operation id belongs to
	counts map[kind]int      // transitions that ended

	mirror mirror
}

// slot is one machine after another in a quota slot.
type slot struct {
	root, id   string
	generation int
	last       token
	turn       int // counts transitions, over all machines of the slot

	acked   fact // the last acknowledged call on the machine
	pending kind // a call without an answer so far; "" for none
	binding binding
	dead    map[string]string // last_error of failed machines
}

// fact is an acknowledged call.
type fact struct {
	kind      kind
	operation string
	token     token
}

func newChurn(w *world) *churn {
	c := &churn{
		world: w, stop: make(chan struct{}), broken: make(chan error, 1),
		owners: map[string]string{}, counts: map[kind]int{}, mirror: newMirror(),
	}
	for _, route := range changing {
		w.cloud.Inject(fakecloud.Fault{
			Route: route, Times: -1, Commit: true, Hangup: true,
			Match: func(fakecloud.Request) bool { return rand.N(100) < lostAnswers },
		})
	}
	w.cloud.Inject(fakecloud.Fault{
		Route: fakecloud.RouteServerAction, Times: -1, Reply: fakecloud.OutOfStock("DEV1-S"),
		Match: func(r fakecloud.Request) bool { return r.Action == "poweron" && rand.Int32N(100) < c.scarce.Load() },
	})
	return c
}

// begin starts a worker for each machine, and the watch over cursors.
func (c *churn) begin() {
	for i, m := range c.list().GetMachines() {
		s := &slot{root: m.GetId(), id: m.GetId(), generation: 1, last: token{fmt.Sprintf("shard-%d", i%3), 1, 0}, dead: map[string]string{}}
		c.slots = append(c.slots, s)
		c.running.Go(func() { c.fault(c.walk(s)) })
	}
	c.running.Go(func() { c.fault(c.follow()) })
}

// end waits for the workers, whose transitions come to their ends first.
func (c *churn) end() {
	close(c.stop)
	c.running.Wait()
}

func (c *churn) stopped() bool {
	select {
	case <-c.stop:
		return true
	default:
		return false
	}
}

func (c *churn) fault(err error) {
	if err == nil {
		return
	}
	select {
	case c.broken <- err:
	default:
	}
}

// walk takes one machine after another through whole and through short lives.
func (c *churn) walk(s *slot) error {
	life := []kind{create, configure, drain, remove}
	for {
		plan := life
		switch rand.N(6) {
		case 0:
			plan = []kind{create, remove}
		case 1:
			plan = []kind{create, configure, drain, configure, drain, remove}
		}
		for _, k := range plan {
			if c.stopped() {
				return nil
			}
			c.acts.RLock()
			ok, err := c.act(s, k)
			c.acts.RUnlock()
			if err != nil {
				return fmt.Errorf("%s, turn %d, %s: %w", s.id, s.turn, k, err)
			}
			if !ok {
				break // a new machine fills the slot
			}
		}
	}
}

// act is one transition from its call to its end; false when the machine failed
// as it may.
func (c *churn) act(s *slot, k kind) (bool, error) {
	c.calls.RLock() // not during an audit
	s.turn++
	if k == configure {
		s.binding = binding{fmt.Sprintf("cluster-%d", rand.N(3)), fmt.Sprintf("blob of %s, turn %d", s.id, s.turn), metadata(s.turn)}
	}
	c.calls.RUnlock()
	deadline := time.Now().Add(actWithin)
	for {
		m, err := c.call(s, k)
		switch {
		case err == nil:
			return c.await(s, k, deadline)
		case m != nil:
			return false, c.succeed(s, k, m, deadline)
		case status.Code(err) == codes.ResourceExhausted || unanswered(err):
		default:
			return false, err
		}
		if time.Now().After(deadline) {
			return false, fmt.Errorf("no answer within %s: %w", actWithin, err)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// call makes one call and writes down what was acknowledged. With an error it
// returns the machine if that has failed meanwhile.
func (c *churn) call(s *slot, k kind) (*pb.Machine, error) {
	c.calls.RLock()
	defer c.calls.RUnlock()
	s.last.sequence++
	s.pending = k
	ack, err := c.send(k, s.id, s.last, s.binding)
	if status.Code(err) == codes.Internal {
		// An earlier call without an answer was accepted, and failed since.
		if m, getErr := c.get(s.id); getErr == nil && m.GetState() == failed {
			return m, err
		}
	}
	if err != nil {
		return nil, err
	}
	s.pending, s.acked = "", fact{k, ack.GetOperationId(), s.last}
	return nil, c.own(s, k, ack.GetOperationId())
}

// own makes sure that an operation id was never given to another turn.
func (c *churn) own(s *slot, k kind, operation string) error {
	turn := fmt.Sprintf("%s of %s, turn %d", k, s.id, s.turn)
	c.mu.Lock()
	defer c.mu.Unlock()
	if before, known := c.owners[operation]; known && before != turn || operation == "" {
		return fmt.Errorf("operation id %q was given to %s before", operation, before)
	}
	c.owners[operation] = turn
	return nil
}

// await polls until the transition ends.
func (c *churn) await(s *slot, k kind, deadline time.Time) (bool, error) {
	for {
		m, err := c.get(s.id)
		switch {
		case err != nil && !unanswered(err):
			return false, err
		case err != nil:
		case m.GetState() == failed:
			return false, c.succeed(s, k, m, deadline)
		case s.shown(m) != nil:
			return false, s.shown(m)
		case m.GetState() == edges[k].to:
			return true, c.done(s, k)
		}
		if time.Now().After(deadline) {
			return false, fmt.Errorf("it is not over after %s: %v, %w", actWithin, m.GetState(), err)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func (c *churn) done(s *slot, k kind) error {
	c.mu.Lock()
	c.counts[k]++
	c.mu.Unlock()
	switch k {
	case configure:
		return c.hosts.check(s.acked.operation, agent.Configure, s.binding.cluster, s.binding.blob)
	case drain:
		return c.hosts.check(s.acked.operation, agent.Drain, s.binding.cluster, "")
	default: // no host has a part in it
		return nil
	}
}

// succeed turns to the machine that fills the slot of a failed one. Only want of
// hardware is a reason to fail.
func (c *churn) succeed(s *slot, k kind, m *pb.Machine, deadline time.Time) error {
	if k != create || !strings.Contains(m.GetLastError(), "(capacity)") {
		return fmt.Errorf("FAILED: %s", m.GetLastError())
	}
	next := fmt.Sprintf("%s-r%d", s.root, s.generation+1)
	for {
		_, err := c.get(next)
		if err == nil {
			break
		}
		if status.Code(err) != codes.NotFound && !unanswered(err) || time.Now().After(deadline) {
			return fmt.Errorf("no successor %s: %w", next, err)
		}
		time.Sleep(20 * time.Millisecond)
	}
	c.calls.Lock()
	defer c.calls.Unlock()
	s.dead[s.id] = m.GetLastError()
	s.id, s.generation, s.acked, s.pending = next, s.generation+1, fact{}, ""
	return nil
}

// shown judges a machine by what was acknowledged of it.
func (s *slot) shown(m *pb.Machine) error {
	var errs []error
	state := m.GetState()
	last := edges[s.acked.kind]
	fits := s.acked.kind != "" && (state == last.during || state == last.to) || s.acked.kind == "" && state == speculative ||
		state == failed && (s.acked.kind == create || s.pending == create)
	if s.pending != "" {
		fits = fits || state == edges[s.pending].during || state == edges[s.pending].to
	}
	if !fits {
		errs = append(errs, fmt.Errorf("it is %s after an acknowledged %q and with %q unanswered", state, s.acked.kind, s.pending))
	}
	switch state {
	case configuring, configured, draining:
		if m.GetCluster() != s.binding.cluster || !maps.Equal(m.GetShardMetadata(), s.binding.metadata) {
			errs = append(errs, fmt.Errorf("%s: cluster %q and %d metadata, want %q and %d", state, m.GetCluster(), len(m.GetShardMetadata()), s.binding.cluster, len(s.binding.metadata)))
		}
	default:
		if m.GetCluster() != "" || len(m.GetShardMetadata()) != 0 {
			errs = append(errs, fmt.Errorf("%s: bound to %q", state, m.GetCluster()))
		}
	}
	if hosted := state != speculative && state != creating && state != failed; hosted != (m.GetHost().GetRef() != "") {
		errs = append(errs, fmt.Errorf("%s: host %q", state, m.GetHost().GetRef()))
	}
	return errors.Join(errs...)
}

// metadata is what must come back byte for byte.
func metadata(turn int) map[string]string {
	return map[string]string{"": "", "nul": "a\x00b", "control": "\x01\x1f\x7f", "turn": fmt.Sprint(turn), "utf-8": "Ω≈ç"}
}

// follow keeps a mirror of the list by deltas alone.
func (c *churn) follow() error {
	for !c.stopped() {
		c.calls.RLock()
		l, err := c.since(c.mirror.cursor)
		if err == nil {
			err = c.mirror.apply(l)
		}
		c.calls.RUnlock()
		if err != nil && !unanswered(err) {
			return fmt.Errorf("follow the list: %w", err)
		}
		time.Sleep(50 * time.Millisecond)
	}
	return nil
}

// same says whether two views of a machine agree.
func same(a, b *pb.Machine) bool { return proto.Equal(a, b) }
