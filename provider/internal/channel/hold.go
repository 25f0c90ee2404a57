package channel

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"os"
	"time"

	"bigfleet-providers/shared/command"
)

// A poll is parked for a minute, ten thousand at a time. In the hands of net/http
// each would keep two goroutines, two buffers and the whole request. So its
// connection is taken over: one goroutine waits in a read, which ends when the
// host hangs up, when the wait is over, or when whoever has news for the host
// moves the deadline into the past. After the answer the connection goes back
// through the listener, as if it were a new one that is known already.

// heldConn is a connection whose poll is parked.
type heldConn struct {
	*tls.Conn
	raw      *tracked
	request  *request // what is needed of it
	newToken string   // to be handed over with the answer; "" for none
	closing  bool     // the host asked to close it after the answer
}

// hold parks the poll outside of net/http and returns at once; false if the
// connection cannot be taken over, in which case nothing was done.
func (s *Server) hold(w http.ResponseWriter, r *request, p *parkedPoll, wait time.Duration) bool {
	raw, ours := r.Context().Value(connKey{}).(*tracked)
	if !ours || !s.mayHold() {
		return false
	}
	conn, buf, err := http.NewResponseController(w).Hijack()
	if err != nil {
		s.held.Done()
		return false
	}
	secure, ok := conn.(*tls.Conn)
	if !ok {
		panic(fmt.Sprintf("channel: the listener's connections are TLS, and this is a %T", conn))
	}
	h := &heldConn{
		Conn: secure, raw: raw, newToken: w.Header().Get(command.HeaderToken),
		// What came behind the poll would be lost with the buffer; no agent does that.
		closing: r.Close || buf.Reader.Buffered() > 0,
	}
	// The whole request would stay in memory for as long as the poll is parked.
	h.request = &request{Request: (&http.Request{RemoteAddr: r.RemoteAddr}).WithContext(context.Background()), machine: r.machine, life: r.life}
	s.mu.Lock()
	s.holding[h] = struct{}{}
	s.mu.Unlock()
	go func() {
		defer s.held.Done()
		defer s.letGo(h)
		s.metrics.parked.Inc()
		keep := s.await(h, p, wait)
		s.metrics.parked.Dec()
		if !keep || h.closing || !raw.l.giveBack(secure) {
			_ = secure.Close() // the host has its answer, or has gone
		}
	}()
	return true
}

// mayHold counts a goroutine that is about to begin, unless Serve may wait for
// them already.
func (s *Server) mayHold() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.isReleased() {
		return false
	}
	s.held.Add(1)
	return true
}

func (s *Server) letGo(h *heldConn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.holding, h)
}

// awaitHeld waits for the answers to polls that were parked, and cuts off those
// whose host does not read in time.
func (s *Server) awaitHeld(ctx context.Context) {
	stop := context.AfterFunc(ctx, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		for h := range s.holding {
			_ = h.raw.Conn.Close() // under TLS: its own Close could wait for the host
		}
	})
	defer stop()
	s.held.Wait()
}

// await waits for what ends the parked poll and answers it. It says whether the
// connection is still good.
func (s *Server) await(h *heldConn, p *parkedPoll, wait time.Duration) (keep bool) {
	err := h.SetDeadline(time.Time{}) // those of net/http
	if err == nil {
		err = h.SetReadDeadline(time.Now().Add(wait))
	}
	if err == nil && s.interruptible(p, func() { _ = h.SetReadDeadline(time.Unix(1, 0)) }) { // fails when it is closed, which ends the read too
		var n int
		if n, err = h.Read(make([]byte, 1)); n > 0 {
			h.closing = true // as in hold
			err = nil
		}
	}
	gone := err != nil && !errors.Is(err, os.ErrDeadlineExceeded)
	handed, parked := s.unpark(h.request.machine, p, gone)
	answer := &heldAnswer{h: h, header: http.Header{}}
	if h.newToken != "" {
		answer.header.Set(command.HeaderToken, h.newToken)
	}
	r := h.request
	switch {
	case gone && handed == nil:
		s.metrics.polls.WithLabelValues(resultHangup).Inc()
		return false
	case handed != nil:
		s.finishPoll(answer, r, handed, "")
	case !parked:
		s.finishPoll(answer, r, nil, resultTakenOver)
	case s.isReleased():
		h.closing = true
		s.pollReleased(answer)
	default:
		s.finishPoll(answer, r, nil, resultEmpty)
	}
	h.closing = h.closing || answer.header.Get("Connection") == "close"
	return !gone && answer.flush() == nil && h.SetDeadline(time.Time{}) == nil
}

// interruptible has interrupt called when there is news for the parked poll; it
// returns false when there is some already.
func (s *Server) interruptible(p *parkedPoll, interrupt func()) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	p.interrupt = interrupt
	return !p.woken && !s.isReleased()
}

// heldAnswer is the http.ResponseWriter of a heldConn.
type heldAnswer struct {
	h      *heldConn
	header http.Header
	buf    bytes.Buffer
	err    error
}

// Header implements http.ResponseWriter.
func (a *heldAnswer) Header() http.Header { return a.header }

// WriteHeader implements http.ResponseWriter. There is one call for each answer.
func (a *heldAnswer) WriteHeader(status int) {
	a.header.Set("Date", time.Now().UTC().Format(http.TimeFormat))
	if a.h.closing {
		a.header.Set("Connection", "close")
	}
	fmt.Fprintf(&a.buf, "HTTP/1.1 %d %s\r\n", status, http.StatusText(status))
	a.err = a.header.Write(&a.buf)
	a.buf.WriteString("\r\n")
}

// Write implements http.ResponseWriter.
func (a *heldAnswer) Write(p []byte) (int, error) { return a.buf.Write(p) }

// SetWriteDeadline is found by http.ResponseController.
func (a *heldAnswer) SetWriteDeadline(t time.Time) error { return a.h.SetWriteDeadline(t) }

func (a *heldAnswer) flush() error {
	if a.err != nil {
		return a.err
	}
	_, err := a.h.Write(a.buf.Bytes())
	return err
}
