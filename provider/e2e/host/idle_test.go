package host

import (
	"fmt"
	"testing"
	"time"

	"bigfleet-providers/provider/e2e/host/hosttest"
)

const (
	maxResident = 15 << 10 // KiB
	maxIdleCPU  = 0.001    // of one processor
	idleTime    = 30 * time.Second
)

// testIdle measures an agent that has nothing to do.
func testIdle(t *testing.T, g *hosttest.Guest) {
	t.Helper()
	type sample struct {
		resident, cpu, switches int64 // KiB, ns, count
	}
	take := func() (s sample) {
		t.Helper()
		out := g.Run(t, `set -eu
			cd "/proc/$(systemctl show -P MainPID bigfleet-agent)"
			awk '/^VmRSS/ { print $2 }' status
			cat task/*/schedstat | awk '{ cpu += $1 } END { printf "%d\n", cpu }'
			cat task/*/status | awk '/ctxt_switches/ { n += $2 } END { print n }'`)
		if _, err := fmt.Sscan(out, &s.resident, &s.cpu, &s.switches); err != nil {
			t.Fatalf("%q: %v", out, err)
		}
		return s
	}
	before := take()
	time.Sleep(idleTime) // what is measured is that nothing happens
	after := take()
	cpu := float64(after.cpu-before.cpu) / float64(idleTime)
	t.Logf("idle for %s: RSS %.1f MiB, CPU %.4f %%, %d context switches",
		idleTime, float64(after.resident)/1024, cpu*100, after.switches-before.switches)
	if after.resident > maxResident {
		t.Errorf("RSS is %d KiB, want %d at most", after.resident, maxResident)
	}
	if cpu > maxIdleCPU {
		t.Errorf("idle CPU is %.4f %%, want %.1f at most", cpu*100, maxIdleCPU*100)
	}
}
