package lifecycle_test

import (
	"sync"
	"time"

	"bigfleet-providers/provider/internal/lifecycle"
	"bigfleet-providers/provider/internal/machine"
)

// witness is an observer that keeps what the tests look at.
type witness struct {
	mu      sync.Mutex
	last    lifecycle.PassReport // of the last complete pass
	passes  int                  // complete ones
	failed  int                  // passes
	orphans map[string]int       // by "kind result"
	blocked map[string]time.Time
}

func newWitness() *witness {
	return &witness{orphans: map[string]int{}, blocked: map[string]time.Time{}}
}

func (*witness) Started(machine.Kind)                        {}
func (*witness) Settled(machine.Kind, string, time.Duration) {}
func (*witness) StepFailed(machine.Kind, string, string)     {}
func (*witness) Panicked()                                   {}

func (*witness) StepDone(machine.Kind, string, string, time.Duration) {}

func (w *witness) Reconciled(r lifecycle.PassReport) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !r.Complete {
		w.failed++
		return
	}
	w.passes++
	w.last = r
}

func (w *witness) Orphan(kind, result string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.orphans[kind+" "+result]++
}

func (w *witness) TypeBlocked(commercialType, class string, until time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.blocked[commercialType+" "+class] = until
}

func (w *witness) look(f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f()
}
