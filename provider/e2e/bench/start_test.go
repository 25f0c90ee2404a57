package bench

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	pb "bigfleet-providers/proto/bigfleet/v1alpha1"
)

// BenchmarkFirstStart measures a start without a state file, which makes one with
// a record for each slot, and the most memory that it takes.
func BenchmarkFirstStart(b *testing.B) {
	for _, machines := range sizes {
		b.Run(fmt.Sprintf("machines=%d", machines), func(b *testing.B) {
			for b.Loop() {
				dir := b.TempDir()
				state := filepath.Join(dir, "state.db")
				s := serve(b, machines, state, alone)
				peak := s.memory("VmHWM:")
				idle := settledRSS(s)
				s.stop()
				bytes, floor := writeFloor(b, state)
				b.ReportMetric(s.started.Seconds()*1000, "ms")
				b.ReportMetric(float64(peak)/1e6, "MB-peak")
				b.ReportMetric(ratio(s.started, floor), "start/write")
				record("first start to first answer", machines, fmt.Sprintf("a file of %.1f MB", float64(bytes)/1e6), short(s.started),
					fmt.Sprintf("write and sync of the bytes %s: × %.1f", short(floor), ratio(s.started, floor)))
				record("first start: memory (RSS)", machines, "", fmt.Sprintf("%d MB at most", peak/1_000_000), fmt.Sprintf("%d MB idle", idle/1_000_000))
			}
		})
	}
}

// writeFloor times a write of a file's bytes to another, from the first to the
// last, and a sync. The best of some counts.
func writeFloor(b *testing.B, path string) (int, time.Duration) {
	b.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		b.Fatal(err)
	}
	best := measure(5, func() {
		f, err := os.Create(path + ".floor")
		if err != nil {
			b.Fatal(err)
		}
		defer f.Close()
		if _, err := f.Write(data); err != nil {
			b.Fatal(err)
		}
		if err := f.Sync(); err != nil {
			b.Fatal(err)
		}
	})[0]
	return len(data), best
}

// BenchmarkStart measures a start on a file with many machines, with a warm and
// a cold page cache, and the memory it takes.
func BenchmarkStart(b *testing.B) {
	for _, machines := range sizes {
		b.Run(fmt.Sprintf("machines=%d", machines), func(b *testing.B) {
			for b.Loop() {
				state := filepath.Join(b.TempDir(), "state.db")
				serve(b, machines, state, alone).stop()
				warm := serve(b, machines, state, alone)
				idle := settledRSS(warm)
				ids := warm.ids()
				warm.create(ids[:min(len(ids), 60_000)], 32)
				for range 20 {
					warm.list(&pb.ListFilter{})
				}
				used := warm.rss()
				warm.stop()
				note := "page cache could not be dropped"
				coldTook := time.Duration(0)
				if err := os.WriteFile("/proc/sys/vm/drop_caches", []byte("1"), 0o600); err == nil {
					cold := serve(b, machines, state, alone)
					coldTook = cold.started
					note = "cold " + short(coldTook)
					cold.stop()
				}
				b.ReportMetric(warm.started.Seconds()*1000, "ms-warm")
				b.ReportMetric(coldTook.Seconds()*1000, "ms-cold")
				b.ReportMetric(float64(idle)/1e6, "MB-idle")
				b.ReportMetric(float64(used)/1e6, "MB-used")
				record("start to first answer", machines, "", "warm "+short(warm.started)+", "+note, "")
				record("memory (RSS)", machines, "", fmt.Sprintf("%d MB idle", idle/1_000_000),
					fmt.Sprintf("%d MB after %d Creates and 20 full Lists", used/1_000_000, min(len(ids), 60_000)))
			}
		})
	}
}

// settledRSS is the memory a moment after the start, when the garbage of
// loading was given back.
func settledRSS(s *server) int64 {
	time.Sleep(2 * time.Second)
	return s.rss()
}
