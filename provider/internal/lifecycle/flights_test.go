package lifecycle

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"bigfleet-providers/provider/internal/machine"
)

func TestFlightsKnowTheOldest(t *testing.T) {
	e := &Engine{flights: newFlights()}
	f := e.flights[machine.Create]
	random := rand.New(rand.NewPCG(3, 4))
	epoch := time.Unix(1_800_000_000, 0)
	started := map[string]time.Time{}
	for i := range 3000 {
		if len(started) > 0 && random.IntN(2) == 0 {
			for id := range started {
				f.remove(id)
				f.remove(id) // twice does no harm
				delete(started, id)
				break
			}
		} else {
			id := fmt.Sprint("op-", i)
			started[id] = epoch.Add(time.Duration(i+random.IntN(50)) * time.Second)
			f.add(id, started[id])
		}
		var want time.Time
		for _, at := range started {
			if want.IsZero() || at.Before(want) {
				want = at
			}
		}
		if n, oldest := e.InFlight(machine.Create); n != len(started) || !oldest.Equal(want) {
			t.Fatalf("after %d changes: %d in flight, the oldest of %v; want %d, %v", i+1, n, oldest, len(started), want)
		}
	}
	if n, oldest := e.InFlight(machine.Drain); n != 0 || !oldest.IsZero() {
		t.Errorf("of another kind: %d, %v", n, oldest)
	}
}
