package provider

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"

	"bigfleet-providers/provider/internal/rpc"
	"bigfleet-providers/provider/internal/telemetry"
)

// pipes is a listener of connections in memory, whose deadlines the test's clock
// drives.
type pipes struct {
	conns  chan net.Conn
	closed context.Context
	close  context.CancelFunc
}

func newPipes() *pipes {
	closed, cancel := context.WithCancel(context.Background())
	return &pipes{conns: make(chan net.Conn), closed: closed, close: cancel}
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.closed.Done():
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	p.close()
	return nil
}

func (p *pipes) Addr() net.Addr { return &net.TCPAddr{} }

func (p *pipes) dial() net.Conn {
	here, there := net.Pipe()
	p.conns <- there
	return here
}

// TestKeepalive: docs/configuration.md says how often a client may ping, and when
// a quiet connection ends.
func TestKeepalive(t *testing.T) {
	for name, tc := range map[string]struct {
		every time.Duration // between two pings of the client; 0 for none
		mute  bool          // it answers none of the provider's
		after time.Duration // when its connection ends; 0 for not within the hour
		code  http2.ErrCode
	}{
		"at the limit": {every: 10 * time.Second},
		// The first ping is none too soon; a second is for the client to read why.
		"sooner":         {every: 9 * time.Second, after: (1+3)*9*time.Second + time.Second, code: http2.ErrCodeEnhanceYourCalm},
		"quiet":          {},
		"quiet and mute": {mute: true, after: 2*time.Minute + 20*time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ln := newPipes()
				ctx, stop := context.WithCancel(t.Context())
				served := make(chan error, 1)
				go func() {
					served <- serveGRPC(ctx, ln, rpc.New(slowLife{}, nil, "p"), grpcOptions{
						stopTimeout: time.Second, serving: new(atomic.Bool), metrics: newMetrics(telemetry.NewRegistry("toy", "p", "test")), log: slog.New(slog.DiscardHandler),
					})
				}()
				conn := ln.dial()
				begun := time.Now()
				writes := make(chan func(*http2.Framer) error, 100)
				ended := make(chan http2.ErrCode, 1)
				framer := http2.NewFramer(conn, conn)
				go func() {
					_, err := io.WriteString(conn, http2.ClientPreface)
					for write := range writes {
						if err == nil {
							err = write(framer)
						}
					}
				}()
				writes <- func(f *http2.Framer) error { return f.WriteSettings() }
				var reading sync.WaitGroup
				reading.Go(func() {
					code := http2.ErrCodeNo
					for {
						frame, err := framer.ReadFrame()
						if err != nil {
							ended <- code
							return
						}
						switch frame := frame.(type) {
						case *http2.GoAwayFrame:
							code = frame.ErrCode
						case *http2.PingFrame:
							if data := frame.Data; !frame.IsAck() && !tc.mute {
								writes <- func(f *http2.Framer) error { return f.WritePing(true, data) }
							}
						}
					}
				})
				next := tc.every
				if next == 0 {
					next = time.Hour
				}
				ticker := time.NewTicker(next)
				hour := time.After(time.Hour)
				for over := false; !over; {
					select {
					case <-ticker.C:
						writes <- func(f *http2.Framer) error { return f.WritePing(false, [8]byte{1}) }
					case code := <-ended:
						if took := time.Since(begun); tc.after == 0 || took != tc.after || code != tc.code {
							t.Errorf("it ended after %s with %s, want %s with %s", took, code, tc.after, tc.code)
						}
						over = true
					case <-hour:
						if tc.after != 0 {
							t.Errorf("it goes on after an hour, and should end after %s", tc.after)
						}
						over = true
					}
				}
				ticker.Stop()
				stop()
				err := conn.Close()
				reading.Wait() // it writes too
				close(writes)
				if err := errors.Join(err, <-served); err != nil {
					t.Error(err)
				}
			})
		})
	}
}
