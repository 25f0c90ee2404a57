package store

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"bigfleet-providers/provider/internal/machine"
)

// benchStore makes a store of n machines of ordinary size.
func benchStore(b *testing.B, path string, n int) *Store {
	b.Helper()
	s, err := Open(Options{Path: path, View: func(r *machine.Record) []byte {
		return append([]byte(r.ID), strings.Repeat("v", 340)...)
	}})
	if err != nil {
		b.Fatal(err)
	}
	offer := fullRecord().Offer
	const group = 200
	for i := 0; i < n; i += group {
		ids := make([]string, 0, group)
		for j := i; j < min(n, i+group); j++ {
			ids = append(ids, benchID(j))
		}
		if _, err := s.DoMany(b.Context(), ids, func(cur []machine.Record) ([]machine.Next, error) {
			next := make([]machine.Next, len(cur))
			for k := range cur {
				next[k] = machine.Next{Record: machine.Record{State: machine.Idle, Since: time.Now(), Offer: offer, Host: cur[k].ID}, Change: machine.Visible}
			}
			return next, nil
		}); err != nil {
			b.Fatal(err)
		}
	}
	return s
}

func benchID(i int) string { return fmt.Sprintf("scaleway-fr-par-2-slot-%06d", i) }

// floor measures what the disk allows: two writes, each made durable, which is
// the least that a commit of any size costs.
func floor(b *testing.B, dir string) time.Duration {
	b.Helper()
	f, err := os.Create(filepath.Join(dir, "floor"))
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	page := make([]byte, 4096)
	if _, err := f.Write(make([]byte, 1<<20)); err != nil {
		b.Fatal(err)
	}
	if err := f.Sync(); err != nil {
		b.Fatal(err)
	}
	const rounds = 200
	begin := time.Now()
	for i := range 2 * rounds {
		if _, err := f.WriteAt(page, int64(i%256)*4096); err != nil {
			b.Fatal(err)
		}
		if err := syscall.Fdatasync(int(f.Fd())); err != nil {
			b.Fatal(err)
		}
	}
	return time.Since(begin) / rounds
}

// BenchmarkDo moves random machines of 10,000 from many goroutines.
func BenchmarkDo(b *testing.B) {
	for _, workers := range []int{1, 32, 256} {
		b.Run(fmt.Sprintf("workers=%d", workers), func(b *testing.B) {
			dir := b.TempDir()
			s := benchStore(b, filepath.Join(dir, "state"), 10_000)
			least := floor(b, dir)
			batches := s.Stats().Batches
			var next atomic.Int64
			done := make(chan error)
			b.ResetTimer()
			for range workers {
				go func() {
					for {
						i := next.Add(1)
						if i > int64(b.N) {
							done <- nil
							return
						}
						if _, err := s.Do(context.Background(), benchID(int(i*7919)%10_000), to(machine.Configured)); err != nil {
							done <- err
							return
						}
					}
				}()
			}
			for range workers {
				if err := <-done; err != nil {
					b.Error(err)
				}
			}
			b.StopTimer()
			batches = s.Stats().Batches - batches
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "changes/s")
			b.ReportMetric(float64(b.N)/float64(batches), "changes/commit")
			b.ReportMetric(float64(b.Elapsed())/float64(batches)/float64(least), "floors/commit")
			b.ReportMetric(float64(least.Microseconds()), "floor-µs")
			if err := s.Close(); err != nil {
				b.Fatal(err)
			}
		})
	}
}

// BenchmarkList reads all, nothing, and the first pages.
func BenchmarkList(b *testing.B) {
	for _, n := range []int{10_000, 100_000} {
		s := benchStore(b, "", n)
		for i := range 3 { // of all these
			if _, err := s.Do(b.Context(), benchID(i), to(machine.Configured)); err != nil {
				b.Fatal(err)
			}
		}
		head := s.List(Filter{}).Revision
		for name, f := range map[string]Filter{
			"full":        {},
			"empty delta": {Since: head},
			"page of 100": {Max: 100},
			"one of few":  {Max: 1, States: []machine.State{machine.Configured}},
		} {
			b.Run(fmt.Sprintf("%s of %d", name, n), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					s.List(f)
				}
			})
		}
		if err := s.Close(); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkOpen loads 100,000 machines; the file is in the page cache.
func BenchmarkOpen(b *testing.B) {
	path := filepath.Join(b.TempDir(), "state")
	s := benchStore(b, path, 100_000)
	b.ReportMetric(float64(s.Stats().FileBytes), "bytes")
	for {
		if err := s.Close(); err != nil {
			b.Fatal(err)
		}
		if !b.Loop() {
			return
		}
		var err error
		if s, err = Open(Options{Path: path, View: view}); err != nil {
			b.Fatal(err)
		}
	}
}
