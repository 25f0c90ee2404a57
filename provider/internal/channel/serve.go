package channel

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"golang.org/x/net/netutil"

	"bigfleet-providers/provider/internal/telemetry"
)

// Limits of the server that no operator needs to turn.
const (
	readHeaderTimeout = 10 * time.Second // the TLS handshake too
	idleTimeout       = 30 * time.Second // an agent polls again at once
	maxHeaderBytes    = 16 << 10
	maxErrorBytes     = 512 // of one line of net/http
)

// ListenAndServe is Serve on a TCP address, on IPv4 and IPv6.
func (s *Server) ListenAndServe(ctx context.Context, addr string, conf *tls.Config) error {
	var lc net.ListenConfig
	ln, err := lc.Listen(ctx, "tcp", addr)
	if err != nil {
		return fmt.Errorf("bootstrap channel: %w", err)
	}
	return s.Serve(ctx, ln, conf)
}

// Serve serves the channel on ln over TLS 1.3 until ctx ends; then it releases
// the parked polls, waits for the requests in flight, up to a limit, and returns
// nil. It closes ln. conf holds the certificate; no version below TLS 1.3 is spoken whatever
// it says.
func (s *Server) Serve(ctx context.Context, ln net.Listener, conf *tls.Config) error {
	if conf == nil || (len(conf.Certificates) == 0 && conf.GetCertificate == nil) {
		return errors.Join(errors.New("bootstrap channel: no certificate; set --bootstrap-tls-cert and --bootstrap-tls-key"), ln.Close())
	}
	srv, conf := s.httpServer(), channelTLS(conf)
	s.log.InfoContext(ctx, "serving the bootstrap channel", telemetry.KeyListen, ln.Addr().String())
	served := make(chan error, 1)
	secured := listenTLS(netutil.LimitListener(ln, s.limits.Connections), conf, s.limits, func(addr net.Addr, err error) {
		srv.ErrorLog.Printf("TLS handshake error from %s: %v", addr, err)
	}, func(addr net.Addr) {
		s.log.DebugContext(ctx, "a connection to the bootstrap channel ended before its first byte", telemetry.KeyRemote, addr.String())
	})
	go func() { served <- srv.Serve(secured) }()
	select {
	case err := <-served:
		s.Release()
		err = errors.Join(err, srv.Close())
		over, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.limits.ShutdownTimeout)
		defer cancel()
		s.awaitHeld(over)
		return fmt.Errorf("bootstrap channel: %w", err)
	case <-ctx.Done():
	}
	s.Release()
	// ctx is over; what is in flight gets its own time.
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.limits.ShutdownTimeout)
	defer cancel()
	err := srv.Shutdown(grace)
	if errors.Is(err, context.DeadlineExceeded) {
		// A slow download of a package, say: a host comes back for what it lacks,
		// and the stop as such is in order.
		s.log.WarnContext(ctx, "requests on the bootstrap channel were cut off", telemetry.KeyDuration, s.limits.ShutdownTimeout)
		err = srv.Close()
	}
	if serveErr := <-served; !errors.Is(serveErr, http.ErrServerClosed) {
		err = errors.Join(err, serveErr)
	}
	s.awaitHeld(grace)
	if err != nil {
		return fmt.Errorf("bootstrap channel: %w", err)
	}
	return nil
}

// channelTLS is the channel's part of the TLS settings. HTTP/2 is not offered: an
// agent has one request at a time, and what HTTP/2 adds to that is memory a
// connection and ways to attack.
func channelTLS(conf *tls.Config) *tls.Config {
	conf = conf.Clone()
	conf.MinVersion = tls.VersionTLS13
	conf.MaxVersion = 0
	conf.GetConfigForClient = nil // could bring older versions back
	conf.NextProtos = []string{"http/1.1"}
	return conf
}

func (s *Server) httpServer() *http.Server {
	// No WriteTimeout and no ReadTimeout: they would end long polls. answer and
	// limitBody set deadlines where something moves.
	srv := &http.Server{
		Handler:           s.Handler(),
		ReadHeaderTimeout: readHeaderTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		ConnContext:       withConn,
		ErrorLog:          slog.NewLogLogger(&errorLog{Handler: s.log.Handler()}, slog.LevelWarn),
		Protocols:         new(http.Protocols),
	}
	srv.Protocols.SetHTTP1(true)
	return srv
}

// errorLog carries the lines of net/http, mostly about failed handshakes: thin,
// since anybody can cause them, and short. They quote addresses and TLS alerts,
// never a request.
type errorLog struct {
	slog.Handler
	thin thinner
}

// Handle implements slog.Handler.
func (l *errorLog) Handle(ctx context.Context, rec slog.Record) error {
	n, ok := l.thin.due()
	if !ok {
		return nil
	}
	reason := rec.Message
	if len(reason) > maxErrorBytes {
		reason = reason[:maxErrorBytes]
	}
	line := slog.NewRecord(rec.Time, rec.Level, "a connection to the bootstrap channel failed", rec.PC)
	line.AddAttrs(slog.String(telemetry.KeyReason, reason), slog.Int(telemetry.KeyCount, n))
	return l.Handler.Handle(ctx, line)
}
