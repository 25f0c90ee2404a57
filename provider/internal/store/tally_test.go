package store

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"bigfleet-providers/provider/internal/machine"
)

// TestCounts compares the running counts with those of a walk over all machines,
// after changes of every sort and after a load.
func TestCounts(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	offers := []*machine.Offer{
		{InstanceType: "DEV1-S", Capacity: machine.OnDemand, PricePerHour: 0.1},
		{InstanceType: "PRO2-M", Capacity: machine.OnDemand, PricePerHour: 0.7},
		{InstanceType: "EM-A210R", Capacity: machine.BareMetal, PricePerHour: 0.3},
	}
	s, err := Open(Options{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	random := rand.New(rand.NewPCG(1, 2))
	for range 500 {
		id := fmt.Sprint("m-", random.IntN(100))
		_, err := s.Do(t.Context(), id, func(cur machine.Record) (machine.Record, machine.Change, error) {
			if random.IntN(10) == 0 {
				return cur, machine.Gone, nil
			}
			next := cur.Clone()
			next.State = machine.State(1 + random.IntN(8))
			next.Offer = offers[random.IntN(len(offers))]
			next.Leftover = nil
			if random.IntN(2) == 0 {
				next.Leftover = &machine.Leftover{Ref: "r"}
			}
			return next, []machine.Change{machine.Visible, machine.Private}[random.IntN(2)], nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	check := func(when string) {
		t.Helper()
		want := map[Group]Count{}
		s.Records(func(rec machine.Record) bool {
			g := Group{State: rec.State, Capacity: rec.Offer.Capacity, InstanceType: rec.Offer.InstanceType}
			c := want[g]
			c.Machines++
			if rec.State != machine.Speculative && (rec.State != machine.Failed || rec.Leftover != nil) {
				c.PricePerHour += rec.Offer.PricePerHour
			}
			want[g] = c
			return true
		})
		if len(want) < 20 {
			t.Errorf("%s: %d groups: the test has lost its variety", when, len(want))
		}
		if diff := cmp.Diff(want, s.Counts(), cmpopts.EquateApprox(0, 1e-6)); diff != "" {
			t.Errorf("%s: counts (-walk +running):\n%s", when, diff)
		}
	}
	check("after changes")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if s, err = Open(Options{Path: path}); err != nil {
		t.Fatal(err)
	}
	check("after a load")

	ids := []string{}
	s.Records(func(rec machine.Record) bool { ids = append(ids, rec.ID); return true })
	for _, id := range ids {
		if _, err := s.Do(t.Context(), id, func(cur machine.Record) (machine.Record, machine.Change, error) { return cur, machine.Gone, nil }); err != nil {
			t.Fatal(err)
		}
	}
	if got := s.Counts(); len(got) != 0 {
		t.Errorf("without machines: got %v", got)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestCommittedIsTold(t *testing.T) {
	type told struct {
		changes int
		failed  bool
	}
	var got []told
	s, err := Open(Options{Path: filepath.Join(t.TempDir(), "state.db"), Committed: func(changes int, took time.Duration, err error) {
		if took <= 0 {
			t.Errorf("took %v", took)
		}
		got = append(got, told{changes, err != nil})
	}})
	if err != nil {
		t.Fatal(err)
	}
	insert := func(cur machine.Record) (machine.Record, machine.Change, error) {
		cur.State = machine.Speculative
		return cur, machine.Visible, nil
	}
	if _, err := s.Do(t.Context(), "m-1", insert); err != nil {
		t.Fatal(err)
	}
	s.disk = failingDisk{s.disk}
	if _, err := s.Do(t.Context(), "m-2", insert); err == nil {
		t.Error("a failed write was acknowledged")
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]told{{1, false}, {1, true}}, got, cmp.AllowUnexported(told{})); diff != "" {
		t.Errorf("told (-want +got):\n%s", diff)
	}
}

// failingDisk writes nothing.
type failingDisk struct{ persister }

func (failingDisk) write(*batch) error { return errors.New("no") }
