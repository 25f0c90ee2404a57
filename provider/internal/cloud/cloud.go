// Package cloud is the port through which the lifecycle reaches a cloud. A
// cloud knows instances and nothing else: it never sees a bootstrap blob, a
// fencing token or a machine state.
//
// Slow work is a list of named steps. The caller makes the name of a step
// durable before it runs the step, so that a restart continues where the
// process died; each step must therefore find its own earlier effect and never
// repeat it. cloudtest holds the suite that every adapter must pass.
package cloud

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Limits that every adapter may rely on.
const (
	// MaxNotesBytes bounds the keys and values of Task.Notes together.
	MaxNotesBytes = 8 << 10
)

// NoteAsIs is the one note that means something to the caller, too: a Create sets it
// when the instance keeps the system that somebody put there by hand, so that the
// user data do not reach it.
const NoteAsIs = "as-is"

// Power is what a cloud says about an instance, in our words.
type Power int

// The power states. PowerUnknown covers words that a cloud invents later.
const (
	PowerUnknown Power = iota
	PowerRunning
	PowerStopped  // off; starting it is possible
	PowerChanging // on its way between the two
	PowerLocked   // held by the cloud; nothing can be done with it
)

// String names the state for logs.
func (p Power) String() string {
	switch p {
	case PowerRunning:
		return "running"
	case PowerStopped:
		return "stopped"
	case PowerChanging:
		return "changing"
	case PowerLocked:
		return "locked"
	default:
		return "unknown"
	}
}

// Spec says which instance an operation wants.
type Spec struct {
	MachineID   string // tagged on the instance
	OperationID string // the idempotency key: at most one instance ever carries it; it is Instance.Life, too
	Type        string // the cloud's commercial type
	Zone        string
	// Options is what Options.Encode made of the operator's wishes; "" for none.
	// Only Create needs them: what it made, it must be possible to tear down
	// without.
	Options string
	// UserData renders the first-boot data. It holds a token, so it is made
	// when needed and never stored or logged.
	UserData func() ([]byte, error)
}

// Instance is one server that carries this provider's tags.
type Instance struct {
	Ref         string // zone and id, unique in the cloud; HostRef.ref
	MachineID   string // from its tags; "" when they do not say
	OperationID string // from its tags
	Cluster     string // from its tags; "" when unbound
	// Life is the operation whose user data the instance was made to boot with,
	// from its tags; "" for one that an earlier release made, or people.
	Life      string
	Type      string
	Zone      string
	Power     Power
	PowerWord string // the cloud's own word for Power
	Created   time.Time
	// Unfinished says that it never had the system that its Create is to install,
	// so that no machine can be made of it as it is.
	Unfinished bool
	// Epoch is that of the process that made the instance, or wrote its tags last.
	Epoch OwnerEpoch
	// Spare says that it is no machine's: Discard has put it back, and the next
	// Create of its type takes it. It has no MachineID then.
	Spare bool
}

// Task is what the steps of one operation share. The caller persists Ref and
// Notes whenever a step returns, whatever it returns.
type Task struct {
	Spec Spec
	// Ref is the instance, "" until there is one.
	Ref string
	// Notes are small facts a later step needs, such as volume ids: no secrets,
	// at most MaxNotesBytes.
	Notes map[string]string
	// Rerun is true when the step was begun before, in this process or in one
	// that died: its effect may exist although nobody saw the answer.
	Rerun bool
}

// Note sets a note.
func (t *Task) Note(key, value string) {
	if t.Notes == nil {
		t.Notes = map[string]string{}
	}
	t.Notes[key] = value
}

// Step is one re-runnable piece of slow work. Run returns nil when the step's
// effect is there, an error made by Again to be called again later, an error
// that matches one of the sentinels below, or any other error, which counts as
// transient. It must not block for longer than a few cloud calls.
type Step struct {
	Name string // lower-case words joined by "-"; shown to operators
	Run  func(ctx context.Context, t *Task) error
	// Sign is what it means that the host is heard from while the step is waited for.
	Sign Sign
}

// Sign is what a sign of life from a host says about a step that asked to be run
// again, or that failed.
type Sign int

// The meanings of a sign of life.
const (
	SignNothing Sign = iota
	SignLook         // the step may be done: it is run again at once
	SignDone         // the step is done, whatever the cloud says
)

// Cloud is one substrate of one cloud in one zone. All methods may be called
// from many goroutines at once.
type Cloud interface {
	// Create brings an instance from nothing to powered on, with the user data
	// in place before it first boots.
	Create() []Step
	// Start powers on an instance that was found stopped; on a running one it
	// does nothing. A sign of life from the host is SignDone to each of its steps.
	Start() []Step
	// Discard tears down whatever the task's operation made, from any point of
	// Create and from any power state, side resources included. It succeeds
	// when nothing is left. A cloud that keeps its servers, see Keeper, makes them
	// spares instead.
	Discard() []Step
	// Scrub removes the user data, and so the token in it, from where the cloud
	// keeps it. The guest has booted by then and does not need it again.
	Scrub(ctx context.Context, ref string) error
	// SetCluster records the binding on the instance; "" clears it.
	SetCluster(ctx context.Context, ref, cluster string) error
	// SetEpoch has every instance that is made, or whose tags are written, from now
	// on carry the epoch. From then on a call or a step that would change an
	// instance with a greater one changes nothing; its error is a *NotOwnerError.
	SetEpoch(epoch OwnerEpoch)
	// MarkEpoch writes SetEpoch's epoch on the instance.
	MarkEpoch(ctx context.Context, ref string) error
	// Oldest reads, with one call of the API, the instance that was made before all
	// others that List would return; ok is false when there is none.
	Oldest(ctx context.Context) (in Instance, ok bool, err error)
	// Get reads one instance; ErrNotFound when the cloud says that it is gone.
	Get(ctx context.Context, ref string) (Instance, error)
	// List reads every instance that carries this provider's tags, in every
	// state. It is complete or an error, never a part.
	List(ctx context.Context) ([]Instance, error)
	// ProviderID is the node's spec.providerID for the instance, as the cloud's
	// own cloud controller manager writes it.
	ProviderID(ref string) string
}

// ManyReader is implemented by clouds that can read several instances with one
// call.
type ManyReader interface {
	// GetMany reads the instances of refs, 50 at most. One that is missing in the
	// answer may be there all the same: Get tells.
	GetMany(ctx context.Context, refs []string) ([]Instance, error)
}

// Deleter is implemented by clouds whose instances can be given back. Its
// steps follow the rules of Cloud.Discard; they start with Task.Ref set.
type Deleter interface {
	Delete() []Step
}

// Keeper is implemented by clouds whose servers this program never gives back,
// since they are paid for in advance or dearly.
type Keeper interface {
	// Keeps says, for operators, what becomes of the server that a failed
	// operation leaves, what it costs, and how to give it back by hand; ref is ""
	// when none is known.
	Keeps(ref, commercialType string) string
}

// Adopter is implemented by clouds whose servers can also be given by hand.
type Adopter interface {
	// Reserve names the servers that are given, in place of those of the call before:
	// only a Create that names one takes it.
	Reserve(serverIDs []string)
	// Adopt makes a server the machine's; one that is mine already, by the machine in
	// its tags, stays as it is. It matches ErrInvalid when the server cannot be the
	// machine's as it is.
	Adopt(ctx context.Context, serverID, commercialType, machineID string, mine func(machineID string) bool) error
}

// Type is what a cloud sells under one commercial type.
type Type struct {
	Name         string
	Arch         string            // "amd64" or "arm64"
	Allocatable  map[string]string // Kubernetes quantities of the whole hardware: cpu, memory, and GPUs if any
	Labels       map[string]string // e.g. kubernetes.io/arch
	PricePerHour float64           // in the cloud's own currency; 0 when unknown
	Currency     string            // "EUR" for Scaleway
}

// Catalog tells what types exist and cost.
type Catalog interface {
	// Types asks the cloud.
	Types(ctx context.Context) (map[string]Type, error)
	// Recorded is what the cloud sold and asked when it was last looked at by
	// people, for a start while it does not answer. It may lack what is new.
	Recorded() (map[string]Type, error)
}

// Fitter is implemented by catalogs that can tell before an order whether it
// could be carried out. It reads and makes nothing.
type Fitter interface {
	// Fit returns an error that matches ErrInvalid and names the option at fault
	// when an instance of the type can never be made with the options; any other
	// error means that it could not be found out.
	Fit(ctx context.Context, commercialType string, o Options) error
}

// The decisions an error can carry. Adapters wrap them with the cloud's own
// words; match with errors.Is.
var (
	ErrNotFound   = errors.New("not found")           // the object is gone, by the cloud's own word
	ErrNoCapacity = errors.New("no capacity")         // out of stock: another type or zone may do
	ErrQuota      = errors.New("quota exceeded")      // an operator must raise it or free some
	ErrThrottled  = errors.New("rate limited")        // come back later
	ErrDenied     = errors.New("permission denied")   // the key lacks a permission or is wrong
	ErrInvalid    = errors.New("invalid request")     // the same request will never succeed
	ErrConflict   = errors.New("conflicting request") // the object is busy or in another state
	ErrUncertain  = errors.New("outcome unknown")     // it may have been done, nobody can tell, and it must not be done twice
)

// ErrLimit is an ErrQuota of anything else than instances of the type, such as
// addresses, or room in a network: other orders of the type may well succeed.
var ErrLimit error = limitError{}

type limitError struct{}

func (limitError) Error() string { return "limit reached" }

func (limitError) Is(target error) bool { return target == ErrQuota }

// AgainError says that a step is under way and should be run again.
type AgainError struct {
	After  time.Duration
	Reason string // what it waits for, for logs and for last_error at the deadline
}

func (e *AgainError) Error() string { return fmt.Sprintf("again in %s: %s", e.After, e.Reason) }

// Again is returned by a step that must be run again after d.
func Again(d time.Duration, reason string) error { return &AgainError{After: d, Reason: reason} }

// Advise adds to an error what the operator should do about it, where what its
// sentinel suggests is not it.
func Advise(err error, advice string) error { return &advised{err, advice} }

// Advice is what Advise added to an error, "" when nothing.
func Advice(err error) string {
	if a, ok := errors.AsType[*advised](err); ok {
		return a.advice
	}
	return ""
}

type advised struct {
	error
	advice string
}

func (a *advised) Unwrap() error { return a.error }
