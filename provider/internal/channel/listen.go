package channel

import (
	"container/list"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// listener accepts connections and does their TLS handshakes, each in a
// goroutine of its own that then ends: its stack, grown by the handshake, goes
// with it instead of staying with a poll that is parked for a minute.
//
// A connection is unproven until it carried an authorised request. There are so
// many of those at most, also of handshakes: a new one waits in the kernel's queue
// until one of them proves itself, ends, or had its time, and the oldest is cut
// off then. So whoever has no token cannot take the places of those who have one,
// and a fleet that comes back at once is let in at the pace of the processor.
type listener struct {
	net.Listener
	conf *tls.Config
	most int                   // unproven connections
	keep time.Duration         // how long one keeps its place when all are taken
	fail func(net.Addr, error) // told of handshakes that failed
	left func(net.Addr)        // told of connections that ended without a byte

	ready  chan *tls.Conn
	freed  chan struct{} // room for one: a place was given back
	broken chan struct{} // closed after err was set: nothing is accepted any more
	err    error
	closed chan struct{}
	once   sync.Once
	work   sync.WaitGroup

	mu       sync.Mutex
	unproven *list.List // of *tracked, oldest first
}

func listenTLS(ln net.Listener, conf *tls.Config, limits Limits, fail func(net.Addr, error), left func(net.Addr)) *listener {
	l := &listener{
		Listener: ln, conf: conf, most: limits.Unproven, keep: limits.UnprovenTime, fail: fail, left: left,
		ready: make(chan *tls.Conn), freed: make(chan struct{}, 1), broken: make(chan struct{}), closed: make(chan struct{}), unproven: list.New(),
	}
	l.work.Go(l.run)
	return l
}

// run accepts until the listener is closed or broken.
func (l *listener) run() {
	for pause := time.Duration(0); ; {
		l.makeRoom()
		raw, err := l.Listener.Accept()
		if err != nil {
			// net/http waits such faults out too, out of descriptors above all.
			if temporary, ok := err.(interface{ Temporary() bool }); ok && temporary.Temporary() {
				pause = min(max(2*pause, 5*time.Millisecond), time.Second)
				select {
				case <-time.After(pause):
					continue
				case <-l.closed:
				}
			}
			l.err = err
			close(l.broken)
			return
		}
		pause = 0
		c := l.track(raw)
		l.work.Go(func() { l.handshake(c) })
	}
}

// makeRoom returns when there is a place for one more unproven connection.
func (l *listener) makeRoom() {
	for {
		l.mu.Lock()
		if l.unproven.Len() < l.most {
			l.mu.Unlock()
			return
		}
		oldest := l.unproven.Front().Value.(*tracked)
		left := l.keep - time.Since(oldest.since)
		if left <= 0 {
			l.drop(oldest)
		}
		l.mu.Unlock()
		if left <= 0 {
			_ = oldest.Conn.Close() // it is given up
			return
		}
		timer := time.NewTimer(left)
		select {
		case <-l.freed:
		case <-timer.C:
		case <-l.closed:
			timer.Stop()
			return // Accept says so
		}
		timer.Stop()
	}
}

func (l *listener) handshake(raw *tracked) {
	conn := tls.Server(raw, l.conf)
	ctx, cancel := context.WithTimeout(context.Background(), readHeaderTimeout)
	err := conn.HandshakeContext(ctx)
	cancel()
	if err != nil {
		// A load balancer that looks whether the port is open connects and hangs up,
		// by FIN or by RST.
		if hungUp := errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET); hungUp && !raw.spoke.Load() {
			l.left(raw.RemoteAddr())
		} else {
			l.fail(raw.RemoteAddr(), err)
		}
		_ = raw.Close() // it failed
		return
	}
	select {
	case l.ready <- conn:
	case <-l.closed:
		_ = raw.Close() // nobody will answer there
	}
}

// Accept implements net.Listener. Its connections are *tls.Conn after their
// handshake.
func (l *listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.ready:
		return c, nil
	case <-l.broken:
		return nil, l.err
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// giveBack has Accept return a connection again; false when nobody will accept it.
func (l *listener) giveBack(c *tls.Conn) bool {
	select {
	case l.ready <- c:
		return true
	case <-l.closed:
		return false
	case <-l.broken:
		return false
	}
}

// Close implements net.Listener: it ends the handshakes that are under way, and
// waits for them.
func (l *listener) Close() error {
	var err error
	l.once.Do(func() {
		close(l.closed)
		err = l.Listener.Close()
		l.mu.Lock()
		var open []*tracked
		for e := l.unproven.Front(); e != nil; e = e.Next() {
			if c := e.Value.(*tracked); !c.served {
				open = append(open, c)
			}
		}
		l.mu.Unlock()
		for _, c := range open {
			_ = c.Close() // in mid-handshake
		}
	})
	l.work.Wait()
	return err
}

// tracked is a connection that may be unproven.
type tracked struct {
	net.Conn
	l      *listener
	since  time.Time
	place  *list.Element // in l.unproven; nil once it is proven or closed
	served bool          // its handshake is done and it was accepted
	spoke  atomic.Bool   // a byte came from it
}

// Read implements net.Conn.
func (c *tracked) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n > 0 && !c.spoke.Load() {
		c.spoke.Store(true)
	}
	return n, err
}

func (l *listener) track(raw net.Conn) *tracked {
	c := &tracked{Conn: raw, l: l, since: time.Now()}
	l.mu.Lock()
	defer l.mu.Unlock()
	c.place = l.unproven.PushBack(c)
	return c
}

// drop takes the connection off the list. Callers hold l.mu.
func (l *listener) drop(c *tracked) {
	if c.place != nil {
		l.unproven.Remove(c.place)
		c.place = nil
		select {
		case l.freed <- struct{}{}:
		default: // makeRoom looks already
		}
	}
}

// prove keeps the connection from being cut off for a new one.
func (c *tracked) prove() {
	c.l.mu.Lock()
	defer c.l.mu.Unlock()
	c.l.drop(c)
}

// Close implements net.Conn.
func (c *tracked) Close() error {
	c.prove()
	return c.Conn.Close()
}

// connKey is where a request's context has its *tracked.
type connKey struct{}

// withConn puts the connection where prove finds it.
func withConn(ctx context.Context, c net.Conn) context.Context {
	if t, ok := c.(*tls.Conn); ok {
		if raw, ok := t.NetConn().(*tracked); ok {
			raw.l.mu.Lock()
			raw.served = true
			raw.l.mu.Unlock()
			return context.WithValue(ctx, connKey{}, raw)
		}
	}
	return ctx
}

// prove notes that the request's connection carried an authorised one.
func prove(ctx context.Context) {
	if c, ok := ctx.Value(connKey{}).(*tracked); ok {
		c.prove()
	}
}
