package rpc

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
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
	// Calls are those of all connections, from their first header on. Default
	// 4,096.
	Calls int
	// Requests may be on their way at a time, RequestsEach of them on one
	// connection; others wait. Defaults 32 and 16.
	Requests, RequestsEach int
	// Arrival is how long a request may be on its way, Hurry the same while other
	// connections wait for its place. Defaults 10 s and 3 s.
	Arrival, Hurry time.Duration
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
	setDefault(&l.RequestsEach, 16)
	setDefault(&l.Arrival, 10*time.Second)
	setDefault(&l.Hurry, 3*time.Second)
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
	limits      Limits
	calls       atomic.Int64
	reflections atomic.Int64
	requests    *semaphore.Weighted
	waiting     atomic.Int64 // connections that wait for requests
	answers     *semaphore.Weighted
}

// NewFlow returns a Flow for one server.
func NewFlow(l Limits) *Flow {
	l.setDefaults()
	return &Flow{limits: l, requests: semaphore.NewWeighted(int64(l.Requests)), answers: semaphore.NewWeighted(l.Answers)}
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
	flow     *Flow
	requests *semaphore.Weighted
	first    *semaphore.Weighted // of the calls that wait for the flow's requests
	answers  *semaphore.Weighted

	mu     sync.Mutex
	leases map[*lease]struct{}
}

// flowCall is one call, until its request is there.
type flowCall struct {
	flow       *Flow
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
	c := &flowCall{flow: f, reflection: info.FullMethodName == reflectionv1.ServerReflection_ServerReflectionInfo_FullMethodName ||
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
	if c.flow.calls.Add(1) > int64(c.flow.limits.Calls) {
		full = c.flow.limits.Calls
	}
	if c.reflection && c.flow.reflections.Add(1) > int64(c.flow.limits.Reflections) {
		full = c.flow.limits.Reflections
	}
	if full > 0 {
		c.discount()
	}
	return full
}

func (c *flowCall) discount() {
	c.flow.calls.Add(-1)
	if c.reflection {
		c.flow.reflections.Add(-1)
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

// admit waits for a place. A connection waits with one call at a time for what it
// shares with others: however many calls it has, the others come after one.
func (c *flowConn) admit(ctx context.Context) error {
	if err := c.requests.Acquire(ctx, 1); err != nil {
		return err
	}
	err := c.first.Acquire(ctx, 1)
	if err == nil {
		if !c.flow.requests.TryAcquire(1) {
			c.flow.waiting.Add(1)
			err = c.flow.requests.Acquire(ctx, 1)
			c.flow.waiting.Add(-1)
		}
		c.first.Release(1)
	}
	if err != nil {
		c.requests.Release(1)
	}
	return err
}

// begin gives the call a place, which it keeps for so long at most.
func (c *flowCall) begin(conn *flowConn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	limits := c.flow.limits
	c.conn, c.until = conn, time.Now().Add(limits.Arrival)
	c.timer = time.AfterFunc(min(limits.Hurry, limits.Arrival), c.linger)
	if c.ended {
		c.release()
	}
}

// hurryPause is between two looks whether somebody waits for a place.
const hurryPause = 100 * time.Millisecond

// linger ends a call whose request has not come yet, if it is time or its place
// is wanted.
func (c *flowCall) linger() {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.conn == nil: // it came
	case c.flow.waiting.Load() > 0 || !time.Now().Before(c.until):
		c.cancel()
	default:
		c.timer.Reset(min(hurryPause, time.Until(c.until)))
	}
}

// release is called with c.mu held.
func (c *flowCall) release() {
	if c.conn == nil {
		return
	}
	c.timer.Stop()
	c.flow.requests.Release(1)
	c.conn.requests.Release(1)
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
	return context.WithValue(ctx, flowConnKey{}, &flowConn{
		flow: f, leases: map[*lease]struct{}{},
		requests: semaphore.NewWeighted(int64(f.limits.RequestsEach)), first: semaphore.NewWeighted(1), answers: semaphore.NewWeighted(f.limits.AnswersEach),
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
}

// lease is an answer's part of what may wait to be read. It is the pool of the
// answer's last buffer, which is put back when the whole answer was sent or
// given up. An answer that reaches the transport behind the end of its call is
// forgotten there and not put back (grpc 1.85, loopyWriter.preprocessData): that
// ends with the call, see sent, and at the latest with the buffer's memory, which
// may be minutes later: who waits for room leaves no garbage to collect.
type lease struct {
	conn        *flowConn
	each, total int64
	once        sync.Once
}

// reserve gives an answer of so many bytes its part. Where that is not free yet it
// waits, or says that it would have to. It returns nil for a small one, which takes
// no more than the windows that each call has anyway.
func reserve(ctx context.Context, size int, mayWait bool) (l *lease, wait bool, err error) {
	conn, _ := ctx.Value(flowConnKey{}).(*flowConn)
	call, _ := ctx.Value(flowCallKey{}).(*flowCall)
	if conn == nil || call == nil || size <= windowBytes {
		return nil, false, nil
	}
	// Compressed it would be another buffer, of which nobody knows when it is sent.
	if err := grpc.SetSendCompressor(ctx, encoding.Identity); err != nil {
		return nil, false, status.Errorf(codes.Internal, "the answer's encoding: %v", err)
	}
	limits := conn.flow.limits
	l = &lease{conn: conn, each: min(int64(size), limits.AnswersEach), total: min(int64(size), limits.Answers)}
	whose := "this connection"
	if mayWait {
		ctx, cancel := context.WithTimeout(ctx, limits.Patience)
		defer cancel()
		if err = conn.answers.Acquire(ctx, l.each); err == nil {
			if err = conn.flow.answers.Acquire(ctx, l.total); err != nil {
				whose = "all connections"
				conn.answers.Release(l.each)
			}
		}
	} else {
		if !conn.answers.TryAcquire(l.each) {
			return nil, true, nil
		}
		if !conn.flow.answers.TryAcquire(l.total) {
			conn.answers.Release(l.each)
			return nil, true, nil
		}
	}
	if err != nil {
		return nil, false, status.Errorf(codes.ResourceExhausted, "lists of %s wait to be read by their callers, and this one of %d bytes found no room beside them for %s; read them, use since_revision or max_results, or cancel", whose, size, limits.Patience)
	}
	if !conn.add(l) {
		return nil, false, status.Error(codes.Canceled, "the connection ended")
	}
	call.mu.Lock()
	call.lease = l
	call.mu.Unlock()
	return l, false, nil
}

// add keeps the lease for the connection's end; false if that is over, and the
// lease was given back.
func (c *flowConn) add(l *lease) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.leases == nil {
		c.flow.answers.Release(l.total)
		return false
	}
	c.leases[l] = struct{}{}
	return true
}

func (l *lease) release() {
	l.once.Do(func() {
		l.conn.mu.Lock()
		delete(l.conn.leases, l)
		l.conn.mu.Unlock()
		l.conn.flow.answers.Release(l.total)
		l.conn.answers.Release(l.each)
	})
}

// leaseBufferBytes is more than what mem.NewBuffer would rather not give back.
const leaseBufferBytes = 4 << 10

// last returns the answer's last buffer.
func (l *lease) last(tail []byte) mem.Buffer {
	b := new([]byte)
	*b = append(make([]byte, 0, max(leaseBufferBytes, len(tail))), tail...)
	runtime.AddCleanup(b, func(l *lease) { l.release() }, l)
	return mem.NewBuffer(b, l)
}

// Get implements mem.BufferPool; nothing is taken from it.
func (l *lease) Get(length int) *[]byte { return mem.DefaultBufferPool().Get(length) }

// Put implements mem.BufferPool.
func (l *lease) Put(*[]byte) { l.release() }
