package hook

import (
	"context"
	"time"
)

// Job is a prepared run.
type Job struct {
	Dir   string // the run's directory; it exists and identifies the run
	Path  string // the hook
	Verb  Verb
	Env   []string
	Stdin string // a file, or "" for none
	Token string // cut out of what the hook prints
}

// Runner starts jobs and follows them. A job outlives the runner that started
// it: Wait and Stop work for jobs of an earlier process too.
type Runner interface {
	// Start starts the job. It is called at most once for a Dir.
	Start(Job) error
	// Wait blocks until the job's hook ended or ctx does and returns the exit
	// status, or ErrLost when it cannot be known. It does not wait for what the
	// hook left running.
	Wait(context.Context, Job) (int, error)
	// Ended tells whether the job's hook ended by itself, so that what it left
	// running is meant to run.
	Ended(Job) bool
	// Stop ends everything that the job started and has not left its process
	// group: it is asked to end and, after patience, killed. With strays also
	// what has left the group, as far as it can be found. It returns when all is
	// gone, which takes patience and a few seconds at most.
	Stop(job Job, patience time.Duration, strays bool) error
}
