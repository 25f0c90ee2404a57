package provider

import (
	"runtime"
	"runtime/debug"
	"testing"
	"time"
)

func TestGCPercentFor(t *testing.T) {
	for live, want := range map[uint64]int{
		0: gcPercentMax, 1 << 20: gcPercentMax, 12 << 20: 200, 48 << 20: 50, 80 << 20: 30, 1 << 40: 30,
	} {
		if got := gcPercentFor(live); got != want {
			t.Errorf("%d bytes live: %d %%, want %d %%", live, got, want)
		}
	}
}

// TestCollectorFollowsTheHeap: the percentage is right again right after the
// collection that finds another heap.
func TestCollectorFollowsTheHeap(t *testing.T) {
	t.Setenv("GOGC", "")
	before := debug.SetGCPercent(100)
	t.Cleanup(func() { debug.SetGCPercent(before) })
	c := collectRarely()
	if got := currentGCPercent(); got != gcPercentLoading {
		t.Fatalf("%d %% while loading", got)
	}
	c.serve()
	settles := func(what string, want func(int) bool) {
		t.Helper()
		for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
			runtime.GC()
			if want(currentGCPercent()) {
				return
			}
			if time.Now().After(deadline) {
				t.Fatalf("%s: %d %%", what, currentGCPercent())
			}
		}
	}
	settles("a small heap", func(p int) bool { return p > 2*gcPercentServing })
	ballast := make([]byte, 6*garbageFloor)
	settles("a large heap", func(p int) bool { return p <= gcPercentServing*10/9 })
	runtime.KeepAlive(ballast)
	settles("a small heap again", func(p int) bool { return p > 2*gcPercentServing })
	c.stop()
	debug.SetGCPercent(77)
	runtime.GC()
	time.Sleep(50 * time.Millisecond)
	if got := currentGCPercent(); got != 77 {
		t.Errorf("%d %% after the end", got)
	}
}

func TestCollectorLeavesGOGC(t *testing.T) {
	t.Setenv("GOGC", "55")
	before := debug.SetGCPercent(55)
	t.Cleanup(func() { debug.SetGCPercent(before) })
	collectRarely().serve()
	runtime.GC()
	if got := currentGCPercent(); got != 55 {
		t.Errorf("%d %%", got)
	}
}
