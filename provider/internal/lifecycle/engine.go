// Package lifecycle carries machines through their transitions. Start accepts
// a mutating call: one atomic decision, made durable, then the work goes on in
// the background as a list of named steps, each of which may be run again. The
// name of a step is durable before the step runs, so that a new process
// continues every operation where the last one left it, under the same
// operation id and with the same deadline.
package lifecycle

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"bigfleet-providers/provider/internal/cloud"
	"bigfleet-providers/provider/internal/delivery"
	"bigfleet-providers/provider/internal/machine"
	"bigfleet-providers/provider/internal/telemetry"
)

// Store holds the records. Its one committer runs mutations one after another
// and makes them durable before it answers.
type Store interface {
	// Do commits a mutation that somebody waits for.
	Do(ctx context.Context, id string, m machine.Mutation) (machine.Record, error)
	// DoMany commits changes of several machines at once, or none of them.
	DoMany(ctx context.Context, ids []string, m func(current []machine.Record) ([]machine.Next, error)) ([]machine.Record, error)
	// DoLater commits a mutation that can wait for others to share its cost.
	DoLater(ctx context.Context, id string, m machine.Mutation) (machine.Record, error)
	// Record returns one committed record.
	Record(id string) (machine.Record, bool)
	// SetInventoried makes durable that the first reconcile has succeeded.
	SetInventoried(ctx context.Context) error
	// Ownership returns the owner epoch on record, zero for a state that is new or
	// was restored; SetOwnership makes one durable.
	Ownership() machine.Ownership
	SetOwnership(ctx context.Context, o machine.Ownership) error
	// Records walks a snapshot of all records until yield returns false.
	Records(yield func(machine.Record) bool)
	// Generation is the lowest generation that may fill a slot which has no
	// machine; it outlives the machines that had the ones before.
	Generation(slot string) int
}

// Observer is told what happens, for metrics. Its methods must not block.
type Observer interface {
	Started(k machine.Kind)
	Settled(k machine.Kind, class string, took time.Duration)
	StepFailed(k machine.Kind, step, class string)
	// StepDone is told of each step that ended: well, given up without harm
	// ("skipped"), or by the class of failure that ended its transition. took
	// counts from its first try, restarts included.
	StepDone(k machine.Kind, step, outcome string, took time.Duration)
	// Panicked is told of each fault that was caught.
	Panicked()
	// Reconciled is told of each reconcile pass; Orphan of each thing that nobody
	// claims and that a pass judged old enough to remove: its kind and what came
	// of it.
	Reconciled(PassReport)
	Orphan(kind, result string)
	// TypeBlocked is told until when a type is not ordered and why, and with a
	// zero time that it is sold again.
	TypeBlocked(commercialType, class string, until time.Time)
}

// Timeouts say how long each kind of transition may take. Drain's is on top of
// the grace period.
type Timeouts struct {
	Create, Configure, Drain, Delete time.Duration
}

// Pace is how fast the engine repeats itself.
type Pace struct {
	RetryMin time.Duration // first pause after a failed step
	RetryMax time.Duration // longest pause
	// Poll is how often the cloud may be asked about a host that is waited for; 0 is
	// 5 s.
	Poll time.Duration
	// Reconnect is how long after a start hosts may still report on what they did
	// while no provider was there, although its deadline has passed.
	Reconnect time.Duration
	// CallsFirst makes cloud steps wait a little while calls come in: for clouds
	// whose calls cost our own processors.
	CallsFirst bool
	// TypePauseMin and TypePauseMax bound how long a type is not ordered after the
	// cloud refused it.
	TypePauseMin, TypePauseMax time.Duration
	TagBudget                  time.Duration // how long an operation waits for its cluster tag before reconcile takes over
}

// Options are what an engine is made of. All fields but the last group are
// required.
type Options struct {
	Store    Store
	Cloud    cloud.Cloud
	Delivery delivery.Delivery
	Provider string // the name in HostRef.provider
	// UserData renders a machine's first-boot data, for the life that the Create of
	// the given operation begins.
	UserData func(machineID, operationID string) ([]byte, error)
	NewID    func() string // operation ids, never repeated
	Timeouts Timeouts
	Pace     Pace
	Log      *slog.Logger
	Observer Observer

	// Hints are for last_error.
	Hints Hints
	// Tracer is nil where nobody looks at traces.
	Tracer Tracer
	// Deleter is nil where hosts cannot be given back.
	Deleter cloud.Deleter
	// Sweeper is nil where nothing outlives its server.
	Sweeper cloud.Sweeper
	// Keeper is nil where what a failure leaves is removed.
	Keeper cloud.Keeper
	// Capacity is that of servers that are adopted although nothing offers them;
	// zero is OnDemand.
	Capacity machine.CapacityType
	// Sealer is nil when blobs cannot be kept across a restart.
	Sealer       *Sealer
	RequireFence bool
	// FailedRetention is how long the host of a machine that failed while bound
	// is kept, since workloads may still run there.
	FailedRetention time.Duration
	// FailedListed is how long a failed machine stays listed after nothing of
	// it is left.
	FailedListed time.Duration
	// MaxCloudSteps bounds the cloud steps of one priority that run at the same time.
	MaxCloudSteps int
	// MaxCreates bounds the Creates that are driven at the same time, from the
	// order to the first contact; later ones wait their turn.
	MaxCreates int
	// Awaiting is true when the first reconcile must succeed before a call is
	// accepted: the store is new, and servers of an earlier life may exist, or it
	// is an older copy, and what a server's tags say is newer.
	Awaiting bool
	// RemovalsFrom is when what no record claims may be removed again; zero for
	// now.
	RemovalsFrom time.Time
	// RemovalGrace is how old a server, volume or address that no record claims
	// must be before it is removed, RemovalCap how many one pass may remove.
	RemovalGrace time.Duration
	RemovalCap   int
	// DryRun keeps reconcile from removing anything: it logs what it would remove,
	// and frees no slot whose host is gone.
	DryRun bool
}

// Engine drives machines. Make one with New, run it with Run.
type Engine struct {
	o     Options
	rules machine.Rules
	gates gates

	calls callers
	owner *owner

	mu       sync.Mutex
	running  context.Context         // nil until Run, and again once it stops
	stop     context.CancelCauseFunc // ends running; nil until Run
	since    time.Time               // when Run began
	resumed  bool                    // every operation of the store has its driver
	work     sync.WaitGroup          // every driver and teardown
	lanes    map[machine.Kind]*lane
	flights  map[string]*flight // what is in the lanes, by operation
	errands  map[string]bool    // other work under way, by name
	blobs    map[string]*blobWait
	released map[string]chan struct{} // by machine: wakes the teardown of its kept host
	awaiting bool
	// inventoryFault is why the first inventory failed, in words that continue a
	// sentence; "" before it was tried.
	inventoryFault string
	began          chan struct{} // closed when calls are admitted for the first time

	reconciling sync.Mutex
	missing     map[string]int // consecutive complete inventories without a machine's host
	off         map[string]int // those that show it powered off
	strays      map[strayKey]sighting

	stock      *stock
	succession succession
	lookout    *lookout
}

// New makes an engine that does nothing until Run.
func New(o Options) *Engine {
	if o.Tracer == nil {
		o.Tracer = untraced{}
	}
	if o.Capacity == machine.CapacityUnspecified {
		o.Capacity = machine.OnDemand
	}
	o.Pace.Poll = cmp.Or(o.Pace.Poll, 5*time.Second)
	return &Engine{
		o:          o,
		rules:      machine.Rules{RequireFence: o.RequireFence, CanDelete: o.Deleter != nil},
		gates:      newGates(o.MaxCloudSteps),
		lanes:      lanes(o.MaxCreates),
		flights:    map[string]*flight{},
		errands:    map[string]bool{},
		blobs:      map[string]*blobWait{},
		released:   map[string]chan struct{}{},
		owner:      newOwner(),
		awaiting:   o.Awaiting,
		began:      make(chan struct{}),
		stock:      newStock(o.Pace),
		succession: succession{rows: map[string]failedCreates{}},
		lookout:    newLookout(),
	}
}

// Start judges a mutating call, makes the verdict durable, and starts the work
// if it begins a new operation. blob is Configure's; Start does not keep it
// past the operation. It returns the operation's id and the machine as
// committed; the error is a *machine.Error or the store's.
//
// A call whose context is over when Start begins does nothing. From then on the
// context does not matter: a client that hangs up must not leave an accepted
// operation that nobody drives.
func (e *Engine) Start(ctx context.Context, q machine.Request, blob []byte) (string, machine.Record, error) {
	q.OperationID = e.o.NewID()
	q.Timeout = e.timeout(q)
	q.BlobBytes = len(blob)
	if err := q.Check(e.rules); err != nil {
		return "", machine.Record{}, err
	}
	if err := e.admits(); err != nil {
		return "", machine.Record{}, err
	}
	if ctx.Err() != nil {
		return "", machine.Record{}, context.Cause(ctx)
	}
	if q.Kind == machine.Configure && e.o.Sealer != nil && e.couldStart(q) {
		q.Sealed = e.o.Sealer.Seal(q.MachineID, q.OperationID, blob)
	}
	e.calls.enter()
	defer e.calls.leave()
	var d machine.Decision
	rec, err := e.o.Store.Do(context.WithoutCancel(ctx), q.MachineID, func(cur machine.Record) (machine.Record, machine.Change, error) {
		d = machine.Decide(cur, q, e.rules, time.Now())
		if d.Err != nil {
			return d.Next, d.Change, d.Err
		}
		return d.Next, d.Change, nil
	})
	if err != nil {
		return "", machine.Record{}, err
	}
	if q.Kind == machine.Configure && rec.Op != nil {
		e.offerBlob(rec.Op, d.Outcome, blob)
	}
	if d.Outcome == machine.Started {
		e.o.Observer.Started(q.Kind)
		e.o.Tracer.Accepted(ctx, traced(rec))
		log := e.o.Log
		if rec.Cluster != "" {
			log = log.With(telemetry.KeyCluster, rec.Cluster)
		}
		if q.Kind == machine.Delete {
			e.o.Delivery.Forget(rec.ID) // its host is refused from here on, and what it has parked ends
		}
		log.Info("transition accepted", telemetry.KeyMachine, rec.ID, telemetry.KeyKind, q.Kind.String(), telemetry.KeyOperation, d.OperationID, telemetry.KeyState, rec.State.String())
		e.launch(rec)
	}
	return d.OperationID, rec, nil
}

// couldStart says whether it is worth sealing a blob for the call. It looks at
// what is committed, so the verdict may differ: an operation that starts without
// a sealed blob has it in memory.
func (e *Engine) couldStart(q machine.Request) bool {
	rec, ok := e.o.Store.Record(q.MachineID)
	return ok && machine.Decide(rec, q, e.rules, time.Now()).Outcome == machine.Started
}

// Began is closed when the engine admits calls for the first time.
func (e *Engine) Began() <-chan struct{} { return e.began }

// beganIfReady is called with e.mu held, after what admits looks at changed.
func (e *Engine) beganIfReady() {
	select {
	case <-e.began:
	default:
		if e.resumed && !e.awaiting {
			close(e.began)
		}
	}
}

// Ready returns why the engine would refuse any call now, nil when it would not.
func (e *Engine) Ready() error { return e.admits() }

func (e *Engine) timeout(q machine.Request) time.Duration {
	switch q.Kind {
	case machine.Create:
		return e.o.Timeouts.Create
	case machine.Configure:
		return e.o.Timeouts.Configure
	case machine.Drain:
		grace := min(max(q.GraceSeconds, 0), int64(machine.MaxGrace/time.Second))
		return e.o.Timeouts.Drain + time.Duration(grace)*time.Second
	default:
		return e.o.Timeouts.Delete
	}
}

// admits refuses calls that nobody would drive.
func (e *Engine) admits() error {
	if err := e.lostTo(); err != nil {
		return &machine.Error{Code: machine.Unavailable, Text: err.Error()}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case !e.resumed:
		return &machine.Error{Code: machine.Unavailable, Text: "the provider is starting or stopping; try again shortly"}
	case e.awaiting:
		return &machine.Error{Code: machine.Unavailable, Text: "the state is new and the cloud's inventory has not been read yet" + e.inventoryFault + "; try again shortly"}
	default:
		return nil
	}
}

// Run resumes every operation that the store holds and drives operations until
// ctx ends; then it waits for all drivers, which leave their operations
// resumable. interval is the pause between two reconcile passes.
func (e *Engine) Run(ctx context.Context, interval time.Duration) error {
	running, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	e.mu.Lock()
	e.running, e.stop, e.since = running, stop, time.Now()
	e.mu.Unlock()
	if err := e.lostTo(); err != nil {
		stop(err) // before there was anything to end
	}
	var resumed []machine.Record
	e.o.Store.Records(func(rec machine.Record) bool {
		if rec.Op != nil {
			resumed = append(resumed, rec)
		}
		if rec.State == machine.Failed {
			e.launchTeardown(rec)
		}
		return ctx.Err() == nil
	})
	slices.SortFunc(resumed, func(a, b machine.Record) int { return a.Op.Started.Compare(b.Op.Started) })
	for _, rec := range resumed {
		e.enqueue(rec, true)
	}
	if len(resumed) > 0 {
		e.o.Log.Info("operations resumed", telemetry.KeyCount, len(resumed))
	}
	e.mu.Lock()
	e.resumed = true
	e.beganIfReady()
	e.mu.Unlock()

	e.work.Go(func() { e.endOverdue(running) })
	e.work.Go(func() { e.lookOut(running) })
	e.reconcileLoop(ctx, interval)

	e.mu.Lock()
	e.running, e.resumed = nil, false
	e.mu.Unlock()
	e.work.Wait()
	return nil
}

// goFor starts fn as a part of Run, unless Run is over or a goroutine with the
// name is already there.
func (e *Engine) goFor(name string, fn func(context.Context)) {
	e.mu.Lock()
	defer e.mu.Unlock()
	ctx := e.running
	if ctx == nil || ctx.Err() != nil || e.errands[name] {
		return
	}
	e.errands[name] = true
	e.work.Go(func() {
		defer func() {
			e.mu.Lock()
			delete(e.errands, name)
			e.mu.Unlock()
		}()
		fn(ctx)
	})
}
