package cloud

import "context"

// Prober is implemented by clouds that can look at an account before a provider
// relies on it. Its methods read and make nothing.
type Prober interface {
	// Access makes one cheap call that takes the credentials and the permission
	// to list instances. It matches ErrDenied when the cloud refuses either.
	Access(ctx context.Context) error
	// Missing makes one cheap call more and says what machines need that the
	// account has not. It matches ErrDenied when that is a permission.
	Missing(ctx context.Context) error
	// Probe reads whether the account could make what is wanted. A thing that
	// could not be read is never taken for one that is not there.
	Probe(ctx context.Context, wanted []Wanted) []Finding
}

// Wanted is so many instances that an operator offers.
type Wanted struct {
	At      string // where that is written, such as "offerings[0]"
	Type    string
	Count   int
	Options Options
}

// Finding is what a probe found out of one thing.
type Finding struct {
	Verdict Verdict
	What    string // the thing
	Text    string // what was found and, unless all is well, what to do
}

// Verdict is the gist of a finding.
type Verdict int

// The verdicts.
const (
	Fine    Verdict = iota
	Unknown         // it could not be found out
	Doubt           // it works, perhaps not for long or not well
	Fault           // it cannot work
)
