package provider

import (
	"os"
	"runtime/debug"
)

// The heap is mostly records that stay. While they are loaded there is next to
// no garbage, and collecting would only slow the start; afterwards half of the
// live heap is enough room for it.
const (
	gcPercentLoading = 400
	gcPercentServing = 40
)

// collectRarely is for the start; the function it returns is for the time after
// it. An operator's own GOGC stands.
func collectRarely() (serve func()) {
	if os.Getenv("GOGC") != "" {
		return func() {}
	}
	debug.SetGCPercent(gcPercentLoading)
	return func() { debug.SetGCPercent(gcPercentServing) }
}
