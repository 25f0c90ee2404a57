package cloud

import (
	"context"
	"time"
)

// Returner is implemented by clouds with a Keeper. It gives spare servers back,
// which this program never does of its own accord.
type Returner interface {
	// Spares lists the servers that are no machine's.
	Spares(ctx context.Context) ([]Spare, error)
	// Return gives a spare back, for good: its disks are wiped. It matches
	// ErrNotFound when there is no such server, ErrInvalid when it is not spare, and
	// ErrConflict when it cannot be returned at this moment.
	Return(ctx context.Context, ref string) error
}

// Spare is a server that is paid for and no machine's.
type Spare struct {
	Ref, Type string
	Status    string // the cloud's own word
	Since     string // when it became spare, as its tag says; people may have written anything
	// Billing says what it costs, and until when it bills if it is returned now.
	Billing string
	// Keep says why it must not be returned, "" when it may.
	Keep string
	// Created is when it was ordered.
	Created time.Time
}
