package bench

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

// timings are sorted durations of one thing done again and again.
type timings []time.Duration

func (t timings) at(q float64) time.Duration { return t[min(int(q*float64(len(t))), len(t)-1)] }

// and is both, sorted.
func (t timings) and(more timings) timings {
	all := slices.Concat(t, more)
	slices.Sort(all)
	return all
}

// measure times n runs of f.
func measure(n int, f func()) timings {
	t := make(timings, n)
	for i := range t {
		began := time.Now()
		f()
		t[i] = time.Since(began)
	}
	slices.Sort(t)
	return t
}

// syncFloor times a write and sync of 4 KiB, each to a new place in a file, as
// a commit does at best. Take it before and after what is held against it: a disk
// that is shared is half as fast a minute later.
func syncFloor(b *testing.B, dir string) timings {
	b.Helper()
	f, err := os.Create(filepath.Join(dir, "floor"))
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	page := make([]byte, 4096)
	offset := int64(0)
	return measure(300, func() {
		if _, err := f.WriteAt(page, offset); err != nil {
			b.Fatal(err)
		}
		if err := f.Sync(); err != nil {
			b.Fatal(err)
		}
		offset += int64(len(page))
	})
}

// copyFloor times a copy of so many bytes into fresh memory.
func copyFloor(size int) timings {
	src := make([]byte, size)
	return measure(20, func() {
		dst := make([]byte, size)
		copy(dst, src)
	})
}
