package provider

import (
	"context"
	"log/slog"
	"net"

	"bigfleet-providers/provider/internal/telemetry"
)

// ports are the process's own listeners; the bootstrap channel has another.
type ports struct {
	grpc    net.Listener
	metrics net.Listener // nil: turned off
	admin   net.Listener // nil: turned off
}

// openPorts opens them. Those that are open when it fails are among what opened
// closes.
func openPorts(ctx context.Context, cfg *Config, opened *undo, log *slog.Logger) (p ports, err error) {
	if p.grpc, err = opened.listener(listen(ctx, "addr", cfg.Addr)); err != nil {
		return p, err
	}
	if p.metrics, err = opened.listener(listenMetrics(ctx, cfg, log)); err != nil {
		return p, err
	}
	if cfg.AdminSocket != "" {
		p.admin, err = opened.listener(listenAdmin(ctx, cfg.AdminSocket))
	}
	return p, err
}

// listenMetrics opens the metrics port. Only a trial on the fake backend, with
// the port left at its default, may go elsewhere when it is taken.
func listenMetrics(ctx context.Context, cfg *Config, log *slog.Logger) (net.Listener, error) {
	if cfg.MetricsAddr == "" {
		return nil, nil
	}
	ln, err := listen(ctx, "metrics-addr", cfg.MetricsAddr)
	if err != nil && cfg.UseFake && !cfg.Given("metrics-addr") {
		log.Warn("the default metrics port is taken; using a free one, since this is a trial", telemetry.KeyError, err.Error())
		return listen(ctx, "metrics-addr", "127.0.0.1:0")
	}
	return ln, err
}

func addrOf(ln net.Listener) string {
	if ln == nil {
		return "off"
	}
	return ln.Addr().String()
}
