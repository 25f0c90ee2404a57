package provider

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"testing"
	"time"

	"bigfleet-providers/provider/internal/cloud"
	"bigfleet-providers/provider/internal/lifecycle"
	"bigfleet-providers/provider/internal/machine"
	"bigfleet-providers/provider/internal/store"
)

// moodyCatalog answers, or not; what it recorded lacks a type that is sold.
type moodyCatalog struct {
	types map[string]cloud.Type
	err   error
}

func (c *moodyCatalog) Types(context.Context) (map[string]cloud.Type, error) { return c.types, c.err }

func (c *moodyCatalog) Recorded() (map[string]cloud.Type, error) {
	old := maps.Clone(c.types)
	delete(old, "GP1-XS")
	dev := old["DEV1-S"]
	dev.PricePerHour = 99
	old["DEV1-S"] = dev
	return old, nil
}

// TestCatalogueFailures: a cloud that does not answer takes no slot away and
// changes no price, whether at a refresh or at a start on an existing state.
func TestCatalogueFailures(t *testing.T) {
	st, err := store.Open(store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	euro := func(name string, price float64) cloud.Type {
		return cloud.Type{Name: name, Arch: "amd64", PricePerHour: price, Currency: "EUR", Allocatable: map[string]string{"cpu": "1"}}
	}
	catalog := &moodyCatalog{types: map[string]cloud.Type{"DEV1-S": euro("DEV1-S", 1), "GP1-XS": euro("GP1-XS", 2)}}
	cfg, err := Load([]string{"--seed-count=4", "--use-fake-backend"}, func(string) (string, bool) { return "", false })
	if err != nil {
		t.Fatal(err)
	}
	s := &slotSource{
		cfg: cfg, catalog: catalog, log: slog.New(slog.DiscardHandler),
		engine: lifecycle.New(lifecycle.Options{Store: st, NewID: time.Now().String}),
	}
	listed := func() map[string]float64 {
		prices := map[string]float64{}
		st.Records(func(rec machine.Record) bool {
			if rec.Retired {
				t.Errorf("%s is retired", rec.ID)
			}
			prices[rec.ID] = rec.Offer.PricePerHour
			return true
		})
		return prices
	}
	if err := s.seed(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	want := listed()
	if len(want) != 4 {
		t.Fatalf("slots %v", slices.Sorted(maps.Keys(want)))
	}
	catalog.err = errors.New("503")
	if err := s.seed(t.Context(), false); !errors.Is(err, catalog.err) {
		t.Errorf("a refresh without an answer: %v", err)
	}
	if got := listed(); !maps.Equal(got, want) {
		t.Errorf("after the refresh %v, want %v", got, want)
	}
	if err := s.seed(t.Context(), true); err != nil {
		t.Errorf("a start without an answer: %v", err)
	}
	if got := listed(); !maps.Equal(got, want) {
		t.Errorf("after the start %v, want %v", got, want)
	}
	cfg.SeedCount = 6
	if err := s.seed(t.Context(), true); err != nil {
		t.Errorf("a start without an answer: %v", err)
	}
	if got := listed(); len(got) != 5 { // the recorded table knows one of the two types
		t.Errorf("a start adds what is recorded: %v", got)
	}
}
