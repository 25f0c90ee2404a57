package provider

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

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
	delete(old, "LARGE")
	dev := old["SMALL"]
	dev.PricePerHour = 99
	old["SMALL"] = dev
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
	catalog := &moodyCatalog{types: map[string]cloud.Type{"SMALL": euro("SMALL", 1), "LARGE": euro("LARGE", 2)}}
	cfg, err := Load(toyVendor(), []string{"--seed-count=4"}, lookupIn(nil))
	if err != nil {
		t.Fatal(err)
	}
	s := &slotSource{
		cfg: cfg, catalog: catalog, log: slog.New(slog.DiscardHandler), metrics: newMetrics(prometheus.NewRegistry()),
		engine: lifecycle.New(lifecycle.Options{Store: st, Delivery: new(toy), NewID: time.Now().String}),
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

// TestRetiredTypeDoesNotStopTheStart: a type that the cloud sells no longer, or
// never did, costs its own slots only, and is told by name. A machine that has a
// server goes on being listed; only its slot is not offered anew.
func TestRetiredTypeDoesNotStopTheStart(t *testing.T) {
	st, err := store.Open(store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	sold := func(names ...string) map[string]cloud.Type {
		types := map[string]cloud.Type{}
		for _, name := range names {
			types[name] = cloud.Type{Name: name, Arch: "amd64", PricePerHour: 1, Currency: "EUR", Allocatable: map[string]string{"cpu": "1"}}
		}
		return types
	}
	var one []string
	for _, name := range []string{"SMALL", "LARGE", "OLD"} {
		one = append(one, `{"commercial_type": "`+name+`", "zone": "town", "count": 2}`)
	}
	cfg, err := Load(toyVendor(), []string{"--offerings=" + writeFile(t, "["+strings.Join(one, ",")+"]")}, lookupIn(nil))
	if err != nil {
		t.Fatal(err)
	}
	reg := prometheus.NewRegistry()
	var log bytes.Buffer
	catalog := &moodyCatalog{types: sold("SMALL", "LARGE", "OLD")}
	s := &slotSource{
		cfg: cfg, catalog: catalog, log: slog.New(slog.NewTextHandler(&log, nil)), metrics: newMetrics(reg),
		engine: lifecycle.New(lifecycle.Options{Store: st, Delivery: new(toy), NewID: time.Now().String}),
	}
	check := func(wantSlots, wantLeftOut map[string]float64) {
		t.Helper()
		if err := s.seed(t.Context(), true); err != nil {
			t.Fatalf("the start failed: %v", err)
		}
		slots := map[string]float64{}
		st.Records(func(rec machine.Record) bool {
			slots[rec.Offer.InstanceType+" "+rec.State.String()]++
			return true
		})
		if !maps.Equal(slots, wantSlots) {
			t.Errorf("slots %v, want %v", slots, wantSlots)
		}
		if got := values(t, reg, "slots_"); !maps.Equal(got, wantLeftOut) {
			t.Errorf("metric %v, want %v", got, wantLeftOut)
		}
	}
	check(map[string]float64{"SMALL SPECULATIVE": 2, "LARGE SPECULATIVE": 2, "OLD SPECULATIVE": 2}, map[string]float64{})
	var old string
	st.Records(func(rec machine.Record) bool {
		if rec.Offer.InstanceType == "OLD" {
			old = rec.ID
		}
		return true
	})
	_, err = st.Do(t.Context(), old, func(cur machine.Record) (machine.Record, machine.Change, error) {
		cur = cur.Clone()
		cur.State = machine.Idle
		return cur, machine.Visible, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	catalog.types = sold("SMALL", "LARGE")
	check(map[string]float64{"SMALL SPECULATIVE": 2, "LARGE SPECULATIVE": 2, "OLD IDLE": 1}, map[string]float64{"left_out OLD": 2})
	if !strings.Contains(log.String(), "OLD") || !strings.Contains(log.String(), "does not sell this type") {
		t.Errorf("the log does not name the type: %s", log.String())
	}
	catalog.types = sold("SMALL", "LARGE", "OLD")
	check(map[string]float64{"SMALL SPECULATIVE": 2, "LARGE SPECULATIVE": 2, "OLD IDLE": 1, "OLD SPECULATIVE": 1}, map[string]float64{})
}
