package provider

import (
	"context"
	"log/slog"

	"bigfleet-providers/provider/internal/lifecycle"
	"bigfleet-providers/provider/internal/telemetry"
)

// establish takes the ownership of the servers before anything is done to them.
// Where that fails, the first pass tries again and steps wait for it.
func establish(ctx context.Context, engine *lifecycle.Engine, log *slog.Logger) {
	ctx, cancel := context.WithTimeout(ctx, askDeadline)
	defer cancel()
	if err := engine.Establish(ctx); err != nil && !engine.IsLost() {
		log.Warn("the cloud's oldest server could not be read, so nothing is done at the cloud until the inventory was", telemetry.KeyError, err.Error())
	}
}

// watchOwner sends hosts away once another process owns them, so that they come
// to that one where both have one name.
func (p *process) watchOwner(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case <-p.engine.Lost():
	}
	if p.boot.channel != nil {
		p.boot.channel.Release()
	}
	<-ctx.Done()
	return nil
}
