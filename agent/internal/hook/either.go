package hook

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// Either runs hooks as units or as processes, and follows each run by the way
// that it was started: an agent with another setting must not take a run for
// lost that goes on.
type Either struct {
	Units     *Units
	Processes *Processes
	Direct    bool // start as processes
}

// unitMark is in the directory of each run that was started as a unit.
func unitMark(job Job) string { return filepath.Join(job.Dir, "unit") }

func (e *Either) preferred() Runner {
	if e.Direct {
		return e.Processes
	}
	return e.Units
}

func (e *Either) of(job Job) Runner {
	if _, err := os.Stat(job.Dir); errors.Is(err, fs.ErrNotExist) {
		return e.preferred() // somebody removed it: the likelier
	}
	if _, err := os.Stat(unitMark(job)); err == nil {
		return e.Units
	}
	return e.Processes
}

// Start implements Runner.
func (e *Either) Start(job Job) error { return e.preferred().Start(job) }

// Wait implements Runner.
func (e *Either) Wait(ctx context.Context, job Job) (int, error) { return e.of(job).Wait(ctx, job) }

// Ended implements Runner.
func (e *Either) Ended(job Job) bool { return ended(job) }

// Stop implements Runner.
func (e *Either) Stop(job Job, patience time.Duration, strays bool) error {
	return e.of(job).Stop(job, patience, strays)
}
