package cloud

import (
	"context"
	"time"
)

// The kinds of side resources.
const (
	KindVolume  = "volume"
	KindAddress = "address"
)

// Stray is a side resource with tags of this provider that no server uses.
type Stray struct {
	Kind        string    // KindVolume or KindAddress
	Ref         string    // zone and id, unique among its kind
	MachineID   string    // from its tags; "" when they do not say
	OperationID string    // of the Create that made it, from its tags
	Created     time.Time // zero when the cloud does not say
}

// Sweeper is implemented by clouds where something that bills can outlive the
// server that it was made for.
type Sweeper interface {
	// Strays reads every stray. It is complete or an error, never a part.
	Strays(ctx context.Context) ([]Stray, error)
	// Remove deletes a stray after a direct read that confirms that it is this
	// provider's and still unused; else it returns ErrConflict. It succeeds when
	// the stray is gone already.
	Remove(ctx context.Context, s Stray) error
}
