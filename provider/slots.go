package provider

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"bigfleet-providers/provider/internal/cloud"
	"bigfleet-providers/provider/internal/lifecycle"
	"bigfleet-providers/provider/internal/machine"
	"bigfleet-providers/provider/internal/offering"
	"bigfleet-providers/provider/internal/telemetry"
)

// slotSource turns offerings and the cloud's catalogue into slots.
type slotSource struct {
	cfg     *Config
	catalog cloud.Catalog
	engine  *lifecycle.Engine
	log     *slog.Logger
}

// seed reads offerings and catalogue and brings the slots in line. A fault in
// the offerings is an error; a type that the cloud does not know costs its own
// slots only.
func (s *slotSource) seed(ctx context.Context) error {
	offerings, err := s.offerings()
	if err != nil {
		return err
	}
	reading, cancel := context.WithTimeout(ctx, catalogDeadline)
	defer cancel()
	types, err := s.catalog.Types(reading)
	if err != nil {
		return fmt.Errorf("read the cloud's types and prices: %w", err)
	}
	slots, problems := offering.Slots(s.cfg.Provider, offerings, types, s.cfg.EURUSD)
	for _, p := range problems {
		s.log.Error("offering left out", telemetry.KeyError, p.String())
	}
	if len(slots) > maxSlots {
		return fmt.Errorf("--offerings: %d slots in all, the limit is %d", len(slots), maxSlots)
	}
	byID := make(map[string]*machine.Offer, len(slots))
	for _, slot := range slots {
		byID[slot.ID] = slot.Offer
	}
	return s.engine.Seed(ctx, byID)
}

func (s *slotSource) offerings() ([]offering.Offering, error) {
	if s.cfg.Offerings == "" {
		return offering.Builtin(s.cfg.Substrate, s.cfg.Zone, s.cfg.SeedCount), nil
	}
	list, err := offering.Load(s.cfg.Offerings, offering.Rules{Substrate: s.cfg.Substrate, Zone: s.cfg.Zone})
	if err != nil {
		return nil, fmt.Errorf("--offerings %s: %w", s.cfg.Offerings, err)
	}
	return list, nil
}

// refresh seeds again now and then, so that prices and hardware stay true. A
// failure leaves them as they are.
func (s *slotSource) refresh(ctx context.Context, every time.Duration) error {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if err := s.seed(ctx); err != nil && ctx.Err() == nil {
			s.log.Error("offerings and prices stay as they were", telemetry.KeyError, err.Error())
		}
	}
}
