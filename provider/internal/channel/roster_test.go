package channel

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestRoster compares the roster with a walk over all mailboxes.
func TestRoster(t *testing.T) {
	r := roster{versions: map[string]int{}}
	boxes := make([]*mailbox, 200)
	for i := range boxes {
		boxes[i] = &mailbox{}
	}
	random := rand.New(rand.NewPCG(5, 6))
	now := time.Unix(1_800_000_000, 0)
	heard := map[*mailbox]bool{}
	for range 5000 {
		now = now.Add(time.Duration(random.IntN(3000)) * time.Millisecond)
		b := boxes[random.IntN(len(boxes))]
		if random.IntN(8) == 0 {
			r.drop(b)
			r.drop(b) // twice does no harm
			delete(heard, b)
			continue
		}
		seen := Sighting{At: now, Version: fmt.Sprint("1.", random.IntN(4))}
		r.saw(b, seen)
		b.sighting = seen
		heard[b] = true
	}
	now = now.Add(2 * time.Minute)
	wantVersions, wantHeard := map[string]int{}, make([]int, len(within))
	for b := range heard {
		wantVersions[b.sighting.Version]++
		for i, w := range within {
			if now.Sub(b.sighting.At) <= w.age {
				wantHeard[i]++
			}
		}
	}
	if diff := cmp.Diff(wantVersions, r.versions); diff != "" {
		t.Errorf("versions (-walk +roster):\n%s", diff)
	}
	if diff := cmp.Diff(wantHeard, r.heard(now)); diff != "" {
		t.Errorf("heard (-walk +roster):\n%s", diff)
	}
	if wantHeard[0] == wantHeard[len(wantHeard)-1] {
		t.Errorf("%v: the test has lost its variety", wantHeard)
	}
	for _, b := range boxes {
		r.drop(b)
	}
	if r.size != 0 || len(r.versions) != 0 || r.oldest != nil || r.newest != nil {
		t.Errorf("not empty in the end: %+v", r)
	}
}

// TestVersionsAreBounded: they are what hosts say.
func TestVersionsAreBounded(t *testing.T) {
	r := roster{versions: map[string]int{}}
	for i := range 10_000 {
		r.saw(&mailbox{}, Sighting{Version: fmt.Sprint("v", i)})
	}
	r.saw(&mailbox{}, Sighting{})
	r.saw(&mailbox{}, Sighting{Version: "\xff"})
	if got := len(r.versions); got > maxVersions+2 || r.versions[versionOther] == 0 || r.versions[versionUnknown] != 1 {
		t.Errorf("%d versions: %v", got, r.versions)
	}
}
