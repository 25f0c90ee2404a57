package provider

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"time"

	"bigfleet-providers/provider/internal/cloud"
	"bigfleet-providers/provider/internal/lifecycle"
	"bigfleet-providers/provider/internal/machine"
	"bigfleet-providers/provider/internal/offering"
	"bigfleet-providers/provider/internal/telemetry"
)

// catalogDeadline is how long a reading of types and prices may take.
const catalogDeadline = time.Minute

// slotSource turns offerings and the cloud's catalogue into slots.
type slotSource struct {
	cfg     *Config
	catalog cloud.Catalog
	fitter  cloud.Fitter                       // nil where orders cannot be judged beforehand
	adopter cloud.Adopter                      // nil where no server can be given by hand
	reach   func([]offering.Offering) []string // nil where there is nothing to say
	engine  *lifecycle.Engine
	metrics *metrics
	log     *slog.Logger
	warned  bool // of what does not change while the process runs
}

// seed reads offerings and catalogue and brings the slots in line. A fault in
// the offerings is an error; a type that the cloud does not know, or cannot make
// as it is asked to, costs its own slots only.
//
// While the cloud does not answer, only a start goes on, by what was recorded
// of the cloud, and on that word only adds slots.
func (s *slotSource) seed(ctx context.Context, start bool) error {
	offerings, err := s.cfg.offerings()
	if err != nil {
		return err
	}
	if s.adopter != nil { // before anything can take one
		var given []string
		for _, o := range offerings {
			given = append(given, o.Servers...)
		}
		s.adopter.Reserve(given)
	}
	if !s.warned && s.reach != nil {
		s.warned = true
		for _, words := range s.reach(offerings) {
			s.log.Warn("servers may not reach what they need", "offerings", words)
		}
	}
	reading, cancel := context.WithTimeout(ctx, catalogDeadline)
	defer cancel()
	types, err := s.catalog.Types(reading)
	seed := s.engine.Seed
	result := resultOK
	if err != nil {
		err = fmt.Errorf("read the cloud's types and prices: %w", err)
		if !start || ctx.Err() != nil {
			s.metrics.pricesRead(resultFailed)
			return err
		}
		result = resultRecorded
		s.log.Error("types and prices come from the record in this program until the next refresh; slots that exist stay as they are", telemetry.KeyError, err.Error())
		if types, err = s.catalog.Recorded(); err != nil {
			return err
		}
		if len(types) == 0 { // there is no record of this substrate
			s.metrics.pricesRead(result)
			return nil
		}
		seed = s.engine.SeedMissing
	}
	s.metrics.pricesRead(result)
	slots, problems := offering.Slots(s.cfg.Provider, offerings, types, s.cfg.EURUSD, func(o offering.Offering) error {
		if s.fitter == nil {
			return nil
		}
		return s.fitter.Fit(reading, o.CommercialType, o.Options)
	})
	slots, refused := s.adopt(ctx, slots)
	problems = append(problems, refused...)
	for _, p := range problems {
		level := slog.LevelError
		if p.LeftOut == 0 {
			level = slog.LevelWarn // what it asks for is offered all the same
		}
		s.log.Log(ctx, level, "offering with a problem", "left_out", p.LeftOut, telemetry.KeyError, p.String())
	}
	s.metrics.slotsLeftOut(problems)
	byID := make(map[string]*machine.Offer, len(slots))
	for _, slot := range slots {
		byID[slot.ID] = slot.Offer
	}
	return seed(ctx, byID)
}

// adopt has the servers that were given by hand made their slots' machines. A
// slot whose server cannot be is left out; one whose server could not be asked
// about stays, and its Create says more.
func (s *slotSource) adopt(ctx context.Context, slots []offering.Slot) (kept []offering.Slot, problems []offering.Problem) {
	if s.adopter == nil {
		return slots, nil
	}
	for _, slot := range slots {
		if slot.Server == "" || !s.engine.MayTag() {
			kept = append(kept, slot)
			continue
		}
		asking, cancel := context.WithTimeout(ctx, askDeadline)
		err := s.adopter.Adopt(asking, slot.Server, slot.Offer.InstanceType, slot.ID, func(id string) bool {
			lineage, _ := machine.Lineage(id)
			return lineage == slot.ID
		})
		cancel()
		if err == nil {
			kept = append(kept, slot)
			continue
		}
		p := offering.Problem{CommercialType: slot.Offer.InstanceType, Reason: err.Error()}
		if errors.Is(err, cloud.ErrInvalid) {
			p.LeftOut = 1
		} else {
			kept = append(kept, slot)
		}
		problems = append(problems, p)
	}
	return kept, problems
}

// offerings reads the offerings file, or shares --seed-count without one.
func (c *Config) offerings() ([]offering.Offering, error) {
	if c.Offerings == "" {
		return c.settings.Builtin(c.SeedCount), nil
	}
	rules := c.settings.Scope(c).Offerings
	rules.Vendor, rules.ZoneFlag = c.vendor.Title, c.vendor.Help.Owner.Zone
	list, err := offering.Load(c.Offerings, rules)
	if err != nil {
		return nil, fmt.Errorf("--offerings: %w", err)
	}
	return list, nil
}

// refresh seeds again now and then, so that prices and hardware stay true. A
// failure leaves them as they are.
func (s *slotSource) refresh(ctx context.Context, every time.Duration) error {
	// Loading and seeding a large fleet leaves as much garbage as there is state.
	debug.FreeOSMemory()
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if err := s.seed(ctx, false); err != nil && ctx.Err() == nil {
			s.log.Error("offerings and prices stay as they were", telemetry.KeyError, err.Error())
		}
	}
}
