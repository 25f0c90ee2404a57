package rpc

import (
	"context"
	"runtime"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
)

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
	// Compressed it would be another buffer, and nothing tells when it is sent.
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
