package rpc

import (
	"context"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	reflectionv1 "google.golang.org/grpc/reflection/grpc_reflection_v1"
	reflectionv1alpha "google.golang.org/grpc/reflection/grpc_reflection_v1alpha"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"
)

// Limits bound what callers can have a server keep in memory for them: requests
// that are not all there yet and lists that were not read yet. gRPC itself bounds
// neither. Zero fields take their defaults.
type Limits struct {
	// Calls are those of all callers, from their first header on. When there are
	// so many, callers and connections that have less than their share of them may
	// still begin one. Default 4,096.
	Calls int
	// Requests may be on their way at a time; others wait. Default 32.
	Requests int
	// Arrival is how long a request may be on its way, Turn the same while others
	// wait and its caller wants more than a share. Defaults 10 s and 250 ms.
	Arrival, Turn time.Duration
	// Answers are the bytes of lists that were not read yet, AnswersEach those of
	// one connection; a list over a limit is made when nothing else waits. Defaults
	// 128 MiB and 32 MiB.
	Answers, AnswersEach int64
	// Patience is how long a List waits for earlier ones to be read. Default 10 s.
	Patience time.Duration
	// Reflections are open streams of gRPC reflection. Default 16.
	Reflections int
}

func (l *Limits) setDefaults() {
	setDefault(&l.Calls, 4096)
	setDefault(&l.Requests, 32)
	setDefault(&l.Arrival, 10*time.Second)
	setDefault(&l.Turn, 250*time.Millisecond)
	setDefault(&l.Answers, 128<<20)
	setDefault(&l.AnswersEach, 32<<20)
	setDefault(&l.Patience, 10*time.Second)
	setDefault(&l.Reflections, 16)
}

func setDefault[T int | int64 | time.Duration](field *T, def T) {
	if *field <= 0 {
		*field = def
	}
}

// windowBytes is what a call may send before anybody reads it, connWindowBytes
// the same of a connection. Left alone, gRPC lets both grow to 16 MiB.
const (
	windowBytes     = 64 << 10
	connWindowBytes = 1 << 20
)

// Flow holds one server to its limits. It is the server's stats handler, since
// that is told when a connection ends, and since gRPC begins to read a call's
// request only when TagRPC returned.
type Flow struct {
	limits   Limits
	requests *semaphore.Weighted
	answers  *semaphore.Weighted

	mu          sync.Mutex
	shares      shares
	reflections int
	waiting     int // callers that wait for requests
}

// NewFlow returns a Flow for one server.
func NewFlow(l Limits) *Flow {
	l.setDefaults()
	return &Flow{limits: l, shares: shares{callers: map[string]*flowCaller{}}, requests: semaphore.NewWeighted(int64(l.Requests)), answers: semaphore.NewWeighted(l.Answers)}
}

// Options install the flow in a server.
func (f *Flow) Options() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.InTapHandle(f.tap), grpc.StatsHandler(f),
		grpc.StaticStreamWindowSize(windowBytes), grpc.StaticConnWindowSize(connWindowBytes),
	}
}

type (
	flowConnKey struct{}
	flowCallKey struct{}
)

// flowConn is one connection.
type flowConn struct {
	flow    *Flow
	caller  *flowCaller
	calls   int                 // guarded by the flow's mu
	first   *semaphore.Weighted // of the calls that wait for a place
	answers *semaphore.Weighted

	mu     sync.Mutex
	leases map[*lease]struct{}
}

// flowCall is one call, until its request is there.
type flowCall struct {
	flow       *Flow
	from       *flowConn
	reflection bool
	cancel     context.CancelFunc

	mu    sync.Mutex
	ended bool
	conn  *flowConn // where the request has a place; nil when it has none
	until time.Time
	timer *time.Timer
	lease *lease // of a list; nil for a small answer
}

// tap is called with the headers of a call, and must not wait.
func (f *Flow) tap(ctx context.Context, info *tap.Info) (context.Context, error) {
	conn, ok := ctx.Value(flowConnKey{}).(*flowConn)
	if !ok {
		return ctx, status.Error(codes.Internal, "a call without a connection")
	}
	c := &flowCall{flow: f, from: conn, reflection: info.FullMethodName == reflectionv1.ServerReflection_ServerReflectionInfo_FullMethodName ||
		info.FullMethodName == reflectionv1alpha.ServerReflection_ServerReflectionInfo_FullMethodName}
	if full := c.count(); full > 0 {
		return ctx, status.Errorf(codes.ResourceExhausted, "more than %d calls at once; try again after a pause", full)
	}
	ctx, c.cancel = context.WithCancel(ctx) // its parent ends with the call
	// The context ends with the call, also with one that no handler was found for.
	context.AfterFunc(ctx, c.end)
	return context.WithValue(ctx, flowCallKey{}, c), nil
}

// count counts the call among those that there are; if they are too many it is
// not counted, and the limit is returned.
func (c *flowCall) count() (full int) {
	f := c.flow
	f.mu.Lock()
	defer f.mu.Unlock()
	if c.reflection && f.reflections >= f.limits.Reflections {
		return f.limits.Reflections
	}
	if !f.shares.begin(c.from, f.limits.Calls) {
		return f.limits.Calls
	}
	if c.reflection {
		f.reflections++
	}
	return 0
}

func (c *flowCall) discount() {
	c.flow.mu.Lock()
	defer c.flow.mu.Unlock()
	c.flow.shares.end(c.from)
	if c.reflection {
		c.flow.reflections--
	}
}

// TagRPC implements stats.Handler: it returns when the call's request may be
// read.
func (f *Flow) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context {
	conn, _ := ctx.Value(flowConnKey{}).(*flowConn)
	c, _ := ctx.Value(flowCallKey{}).(*flowCall)
	if conn == nil || c == nil {
		return ctx
	}
	// An error is the call's end, which whoever reads the request finds too.
	if conn.admit(ctx) == nil {
		c.begin(conn)
	}
	return ctx
}

// admit waits for a place. A connection waits with one call at a time, and a
// caller with one connection: however many a caller has of either, another one
// comes after one of them.
func (c *flowConn) admit(ctx context.Context) error {
	if err := c.first.Acquire(ctx, 1); err != nil {
		return err
	}
	defer c.first.Release(1)
	c.want(1)
	err := c.caller.first.Acquire(ctx, 1)
	if err == nil {
		if !c.flow.requests.TryAcquire(1) {
			c.flow.wait(1)
			err = c.flow.requests.Acquire(ctx, 1)
			c.flow.wait(-1)
		}
		c.caller.first.Release(1)
	}
	if err != nil {
		c.want(-1)
	}
	return err
}

// want counts the places that the caller has or waits for.
func (c *flowConn) want(n int) {
	c.flow.mu.Lock()
	defer c.flow.mu.Unlock()
	c.caller.wants += n
}

func (f *Flow) wait(n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.waiting += n
}

// greedy says whether somebody waits for a place while the caller wants more than
// its share of them.
func (c *flowConn) greedy() bool {
	f := c.flow
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.waiting > 0 && c.caller.wants > share(f.limits.Requests, f.shares.activeCallers)
}

// begin gives the call a place, which it keeps for so long at most.
func (c *flowCall) begin(conn *flowConn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	limits := c.flow.limits
	c.conn, c.until = conn, time.Now().Add(limits.Arrival)
	c.timer = time.AfterFunc(min(limits.Turn, limits.Arrival), c.linger)
	if c.ended {
		c.release()
	}
}

// turnPause is between two looks whether somebody waits for a place.
const turnPause = 50 * time.Millisecond

// linger ends a call whose request has not come yet, if it is time or its place
// is wanted.
func (c *flowCall) linger() {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.conn == nil: // it came
	case !time.Now().Before(c.until) || c.conn.greedy():
		c.cancel()
	default:
		c.timer.Reset(min(turnPause, time.Until(c.until)))
	}
}

// release is called with c.mu held.
func (c *flowCall) release() {
	if c.conn == nil {
		return
	}
	c.timer.Stop()
	c.conn.want(-1)
	c.flow.requests.Release(1)
	c.conn = nil
}

func (c *flowCall) arrived() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.release()
}

func (c *flowCall) end() {
	c.discount()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended = true
	c.release()
}

// HandleRPC implements stats.Handler.
func (f *Flow) HandleRPC(ctx context.Context, s stats.RPCStats) {
	c, ok := ctx.Value(flowCallKey{}).(*flowCall)
	if !ok {
		return
	}
	switch s.(type) {
	case *stats.InPayload:
		c.arrived()
	case *stats.OutPayload:
		c.sent(ctx)
	}
}

// sent is called once the transport has the answer. When its call had ended by
// then, also by its deadline, the transport drops it, and does not always say so.
func (c *flowCall) sent(ctx context.Context) {
	c.mu.Lock()
	l := c.lease
	c.mu.Unlock()
	if l != nil && ctx.Err() != nil {
		l.release()
	}
}

// TagConn implements stats.Handler.
func (f *Flow) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context {
	f.mu.Lock()
	defer f.mu.Unlock()
	return context.WithValue(ctx, flowConnKey{}, &flowConn{
		flow: f, caller: f.shares.join(callerKey(ctx)), leases: map[*lease]struct{}{},
		first: semaphore.NewWeighted(1), answers: semaphore.NewWeighted(f.limits.AnswersEach),
	})
}

// HandleConn implements stats.Handler. What a connection that broke off had not
// read, gRPC leaves to the garbage collector and does not free.
func (f *Flow) HandleConn(ctx context.Context, s stats.ConnStats) {
	conn, ok := ctx.Value(flowConnKey{}).(*flowConn)
	if _, ended := s.(*stats.ConnEnd); !ended || !ok {
		return
	}
	conn.mu.Lock()
	left := conn.leases
	conn.leases = nil
	conn.mu.Unlock()
	for l := range left {
		l.release()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.shares.leave(conn.caller)
}
