package provider

import (
	"os"
	"runtime"
	"runtime/debug"
	runtimemetrics "runtime/metrics"
	"sync/atomic"
)

// The heap is mostly records that stay. While they are loaded there is next to
// no garbage, and collecting would only slow the start. To make them for a new
// state leaves several times their size. Afterwards garbage may
// take three tenths of what lives. In a small fleet that is so little that it
// would be collected many times a second, and each time the calls under way wait
// some milliseconds: there it may take garbageFloor.
const (
	gcPercentLoading = 400
	gcPercentSeeding = 100
	gcPercentServing = 30
	garbageFloor     = 24 << 20
	// gcPercentMax is for a heap of next to nothing.
	gcPercentMax = 1600
)

// collector sets the pace of garbage collection. An operator's own GOGC stands,
// and a GOMEMLIMIT holds beside it.
type collector struct{ stopped atomic.Bool }

// collectRarely is for the start.
func collectRarely() *collector {
	c := &collector{}
	if os.Getenv("GOGC") != "" {
		c.stop()
		return c
	}
	debug.SetGCPercent(gcPercentLoading)
	return c
}

// seed is for the part of the start that may make records.
func (c *collector) seed() {
	if !c.stopped.Load() {
		debug.SetGCPercent(gcPercentSeeding)
	}
}

// serve is for the time after the start, until stop.
func (c *collector) serve() {
	if c.stopped.Load() {
		return
	}
	debug.SetGCPercent(gcPercentFor(liveHeap()))
	c.watch()
}

func (c *collector) stop() { c.stopped.Store(true) }

// watch sets the percentage again after each collection. That it was one is told
// by the end of an object that nobody has: a timer could come seconds after the
// heap grew to many times its size.
func (c *collector) watch() {
	type sentinel struct{ _ [32]byte } // smaller ones may share an object's memory and outlive it
	percent := currentGCPercent()
	runtime.AddCleanup(new(sentinel), func(struct{}) {
		if c.stopped.Load() {
			return
		}
		// Setting it stops the world for a moment, which a small change is not worth.
		if want := gcPercentFor(liveHeap()); want*10 < percent*9 || want*9 > percent*10 {
			debug.SetGCPercent(want)
		}
		c.watch()
	}, struct{}{})
}

// gcPercentFor is the percentage for so many live bytes.
func gcPercentFor(live uint64) int {
	return int(min(max(gcPercentServing, garbageFloor*100/max(live, 1)), gcPercentMax))
}

// liveHeap is what the last collection left.
func liveHeap() uint64 { return runtimeMetric("/gc/heap/live:bytes") }

func currentGCPercent() int { return int(runtimeMetric("/gc/gogc:percent")) }

func runtimeMetric(name string) uint64 {
	s := []runtimemetrics.Sample{{Name: name}}
	runtimemetrics.Read(s)
	return s[0].Value.Uint64()
}
