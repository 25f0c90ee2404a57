// Package delivery is the port through which the lifecycle reaches the inside
// of a host: over the bootstrap channel to an agent, or by the means of a cloud
// that has its own.
package delivery

import (
	"context"
	"errors"
	"time"

	"bigfleet-providers/shared/command"
)

// ErrSuperseded ends a Deliver whose command was replaced by a newer one.
var ErrSuperseded = errors.New("superseded by a newer command")

// ErrInvalid says that a command can never be delivered as it is.
var ErrInvalid = errors.New("the command cannot be sent")

// Report is what a host said about a command. Whoever receives one must call
// Confirm exactly once, after it recorded the outcome: the host repeats its
// report until then, so that a report is never lost to a crash.
type Report struct {
	OK    bool
	Error string // the host's own words when OK is false
	// Fetched is when the host took the command; Started and Finished are when it
	// worked on it, by its own clock. Zero where that is not known.
	Fetched, Started, Finished time.Time
	// Confirm tells the host's side that the report is durable, or, with an
	// error, that it is not and must be repeated.
	Confirm func(error)
}

// Delivery reaches hosts. All methods may be called from many goroutines.
type Delivery interface {
	// Contact blocks until the machine's host was heard from after the given
	// time, or ctx ends.
	Contact(ctx context.Context, machineID string, after time.Time) error
	// HeardWithin says whether the machine's host was heard from within d, and has
	// not hung up since.
	HeardWithin(machineID string, d time.Duration) bool
	// Knock has a host that is there be heard from within some seconds.
	Knock(machineID string)
	// Deliver offers the command to the machine's host and blocks until the host
	// reports on it, or ctx ends. A command under an id that the host finished
	// before is reported again and not run again. A machine has one command at a
	// time: a new one replaces the one before, whose Deliver returns
	// ErrSuperseded.
	Deliver(ctx context.Context, cmd command.Command) (Report, error)
	// Forget drops what is held for a machine whose host is given back or gone, so
	// that the next host under the same id starts afresh. It may come more than once.
	Forget(machineID string)
}
