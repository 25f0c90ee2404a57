package lifecycle

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"bigfleet-providers/provider/internal/cloud"
	"bigfleet-providers/provider/internal/machine"
	"bigfleet-providers/provider/internal/telemetry"
)

// lagReads bounds the looks for another instance to show the epoch.
const lagReads = 3

// owner is this process' claim to what carries the owner tag at the cloud. Two
// processes can have the same tag: a restored backup beside the original, or one
// that was started twice. Each start takes an owner epoch greater than any it
// finds and leaves it on the oldest server, and on each that it makes or tags
// from then on. A process that finds a greater one than its own has lost what it
// owned: it orders, removes and tags nothing more, until its state is restored.
type owner struct {
	mu    sync.Mutex
	epoch cloud.OwnerEpoch // zero until held
	held  chan struct{}    // closed when the epoch is on disk
	lost  chan struct{}    // closed when a greater one was found
	to    cloud.OwnerEpoch // that one
	shown string           // the instance that shows the epoch to a process that starts
}

func newOwner() *owner { return &owner{held: make(chan struct{}), lost: make(chan struct{})} }

// lostError is why nothing is done any more.
type lostError struct{ to string }

func (e *lostError) Error() string {
	return fmt.Sprintf("another provider process owns this provider's servers (owner epoch %s): two processes have the same owner tag, or this state file is an older copy; "+
		"nothing is ordered, removed or tagged from here. Stop one of the two. To make this one the owner, stop both and restore its state file with capacityctl state restore", e.to)
}

// Lost is closed when this process is not the owner any more.
func (e *Engine) Lost() <-chan struct{} { return e.owner.lost }

// IsLost says whether Lost is closed.
func (e *Engine) IsLost() bool { return isClosed(e.owner.lost) }

// MayTag says whether servers may be tagged before the first pass: this process
// is the owner, or its state is new and will be.
func (e *Engine) MayTag() bool {
	return !e.IsLost() && (isClosed(e.owner.held) || e.o.Store.Ownership() == (machine.Ownership{}))
}

// Owner says whether this process may change what carries the owner tag.
func (e *Engine) Owner() bool { return isClosed(e.owner.held) && !e.IsLost() }

// lostTo is an error once the ownership is lost.
func (e *Engine) lostTo() error {
	if !e.IsLost() {
		return nil
	}
	e.owner.mu.Lock()
	defer e.owner.mu.Unlock()
	return &lostError{e.owner.to.String()}
}

// awaitOwnership returns when the process may act at the cloud, or the cause of
// ctx's end. What is lost ends the context of all work.
func (e *Engine) awaitOwnership(ctx context.Context) error {
	select {
	case <-e.owner.held:
		return nil
	default:
	}
	select {
	case <-e.owner.held:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Establish takes the ownership with few calls, where the state says that the
// process before this one had it. Where it does not, or the cloud cannot be
// read, the first pass does.
func (e *Engine) Establish(ctx context.Context) error {
	if e.o.Store.Ownership() == (machine.Ownership{}) || e.isAwaiting() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	oldest, _, err := e.o.Cloud.Oldest(ctx)
	if err != nil {
		return err
	}
	return e.judgeOwner(ctx, []cloud.Instance{oldest})
}

// judgeOwner compares the epochs of instances, the oldest of all first, with
// this process' own, and takes one if it has none yet.
func (e *Engine) judgeOwner(ctx context.Context, instances []cloud.Instance) error {
	var greatest cloud.OwnerEpoch
	for _, in := range instances {
		if in.Epoch.After(greatest) {
			greatest = in.Epoch
		}
	}
	if err := e.takeEpoch(ctx, greatest); err != nil {
		return err
	}
	if len(instances) == 0 || instances[0].Ref == "" {
		return nil
	}
	if err := e.show(ctx, instances[0]); err != nil {
		if e.noticeOwner(ctx, err) {
			return e.lostTo()
		}
		if !errors.Is(err, cloud.ErrNotFound) {
			e.o.Log.Warn("the owner epoch cannot be written on the oldest server; the next pass tries again", telemetry.KeyInstance, instances[0].Ref, telemetry.KeyError, err.Error())
		}
	}
	return nil
}

// show has the oldest instance carry the epoch, for a process that starts and
// reads no other.
func (e *Engine) show(ctx context.Context, oldest cloud.Instance) error {
	e.owner.mu.Lock()
	// Before the call: who gives the instance back from then on finds it here.
	e.owner.shown = oldest.Ref
	behind := e.owner.epoch.After(oldest.Epoch)
	e.owner.mu.Unlock()
	if !behind {
		return nil
	}
	return e.guarded(oldest.MachineID, "mark-epoch", func() error { return e.o.Cloud.MarkEpoch(ctx, oldest.Ref) })
}

// showElsewhere has another instance show the epoch once the one that did was
// given back: until the next pass a former owner that starts would find older
// epochs only, and take over.
func (e *Engine) showElsewhere(ctx context.Context, given string) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	for range lagReads {
		e.owner.mu.Lock()
		shown := e.owner.shown
		e.owner.mu.Unlock()
		if given == "" || shown != given || e.IsLost() {
			return
		}
		oldest, found, err := e.o.Cloud.Oldest(ctx)
		if err == nil && !found {
			return
		}
		if err == nil && oldest.Ref != given {
			if oldest.Epoch.After(e.owner.epoch) {
				err = &cloud.NotOwnerError{Ref: oldest.Ref, Epoch: oldest.Epoch}
			} else {
				err = e.show(ctx, oldest)
			}
		}
		switch {
		case errors.Is(err, cloud.ErrNotFound): // it went, too
			given = oldest.Ref
		case e.noticeOwner(ctx, err):
			return
		case err != nil:
			e.o.Log.Warn("the owner epoch cannot be shown on another server than the one that was given back; the next pass does it", telemetry.KeyInstance, given, telemetry.KeyError, err.Error())
			return
		case oldest.Ref != given:
			return
		}
		sleep(ctx, e.o.Pace.Poll) // a list may lag
	}
}

// takeEpoch compares the greatest epoch at the cloud with this process' own, and
// takes a greater one if it has none yet. The error is an *lostError, or the
// store's.
func (e *Engine) takeEpoch(ctx context.Context, greatest cloud.OwnerEpoch) error {
	if err := e.lostTo(); err != nil {
		return err
	}
	e.owner.mu.Lock()
	defer e.owner.mu.Unlock()
	if isClosed(e.owner.held) {
		if greatest.After(e.owner.epoch) {
			return e.lose(ctx, greatest)
		}
		return nil
	}
	before := e.o.Store.Ownership()
	last := cloud.OwnerEpoch{Number: before.Number, Holder: before.Holder}
	switch {
	case before.LostTo != "":
		return e.lose(ctx, cloud.ParseOwnerEpoch(before.LostTo))
	case before != (machine.Ownership{}) && greatest.After(last):
		return e.lose(ctx, greatest)
	}
	// At least the time: where no server shows an epoch, the later start is greater.
	next := cloud.OwnerEpoch{Number: max(greatest.Number+1, last.Number+1, time.Now().Unix()), Holder: strings.ToLower(rand.Text()[:12])}
	// On disk first: a process that dies before the cloud knows finds its own
	// epoch, and no greater one.
	if err := e.o.Store.SetOwnership(ctx, machine.Ownership{Number: next.Number, Holder: next.Holder}); err != nil {
		return fmt.Errorf("record the owner epoch: %w", err)
	}
	e.owner.epoch = next
	e.o.Cloud.SetEpoch(next)
	close(e.owner.held)
	e.o.Log.Info("this process owns the provider's servers", "epoch", next.String())
	return nil
}

// noticeOwner takes note of a refusal by an adapter that met a greater epoch, and
// says whether the error was one.
func (e *Engine) noticeOwner(ctx context.Context, err error) bool {
	greater, ok := cloud.NotOwner(err)
	if !ok {
		return false
	}
	e.owner.mu.Lock()
	defer e.owner.mu.Unlock()
	if greater.After(e.owner.epoch) && !e.IsLost() {
		_ = e.lose(ctx, greater) // it is the error that lostTo returns
	}
	return true
}

// lose ends all work: operations stay as they are on record. It is called with
// owner.mu held, once.
func (e *Engine) lose(ctx context.Context, to cloud.OwnerEpoch) error {
	e.owner.to = to
	close(e.owner.lost)
	err := &lostError{to.String()}
	o := e.o.Store.Ownership()
	o.LostTo = to.String()
	if err := e.o.Store.SetOwnership(context.WithoutCancel(ctx), o); err != nil {
		e.o.Log.Error("that the ownership is lost cannot be recorded; the next start has to find it out again", telemetry.KeyError, err.Error())
	}
	e.logLost(err)
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.stop != nil {
		e.stop(err)
	}
	return err
}

// logLost is repeated in each pass: somebody has to stop one of the two.
func (e *Engine) logLost(err error) {
	e.o.Log.Error("this provider no longer owns its servers", telemetry.KeyError, err.Error())
}

func isClosed(c chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
