package lifecycle

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"bigfleet-providers/provider/internal/cloud"
	"bigfleet-providers/provider/internal/telemetry"
)

const (
	// lookEvery is how many polls lie between two looks at a host that is waited for
	// and was well when it was looked at last; looksAPoll bounds the looks together.
	lookEvery  = 4
	looksAPoll = 5
	// looksAtOnce bounds the hosts that one look reads together.
	looksAtOnce = 50
	// knockTime is how soon an agent polls again that Knock has sent away: it pauses
	// for up to 7.5 s where a poll came back early.
	knockTime = 8 * time.Second
	// lostLooks is how many looks in a row must find a host gone, off or locked.
	lostLooks = 2
)

// hostLostError ends the wait for a host that can do nothing any more.
type hostLostError struct {
	ref  string
	word string // the cloud's; "" when it does not know the host any more
}

func (e *hostLostError) Error() string {
	if e.word == "" {
		return fmt.Sprintf("the cloud no longer knows host %s, in %d looks in a row, and it was not heard from meanwhile", e.ref, lostLooks)
	}
	return fmt.Sprintf("the cloud said in %d looks in a row that host %s is %s, and it was not heard from meanwhile", lostLooks, e.ref, e.word)
}

// gone says that nothing of the host is left.
func (e *hostLostError) gone() bool { return e.word == "" }

// lookout looks after the hosts that operations wait for: a wait for a host that
// was stopped or removed would otherwise last until its deadline. All looks come
// from one goroutine, so that they cost a bounded share of the API's rate however
// many hosts there are.
type lookout struct {
	mu    sync.Mutex
	waits map[*hostWait]struct{}
	woken chan struct{} // room for one
}

// hostWait is one operation that waits for its host.
type hostWait struct {
	machine, ref string
	next         time.Time // of the next look
	alone        bool      // which reads this host and no other
	bad          int       // looks in a row that found it gone, off or locked
	asked        time.Time // when the host was knocked at after the last of them
	lost         context.CancelCauseFunc
}

func newLookout() *lookout {
	return &lookout{waits: map[*hostWait]struct{}{}, woken: make(chan struct{}, 1)}
}

// whileThere runs a wait for the task's host, and ends it when the host is lost.
func (e *Engine) whileThere(ctx context.Context, t *task, wait func(context.Context) error) error {
	if t.Ref == "" {
		return wait(ctx)
	}
	ctx, lost := context.WithCancelCause(ctx)
	defer lost(nil)
	w := &hostWait{machine: t.rec.ID, ref: t.Ref, next: time.Now().Add(lookEvery * e.o.Pace.Poll), lost: lost}
	e.lookout.add(w)
	defer e.lookout.remove(w)
	err := wait(ctx)
	if gone, ok := errors.AsType[*hostLostError](context.Cause(ctx)); ok && err != nil {
		return gone
	}
	return err
}

func (l *lookout) add(w *hostWait) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.waits[w] = struct{}{}
	select {
	case l.woken <- struct{}{}:
	default: // it looks already
	}
}

func (l *lookout) remove(w *hostWait) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.waits, w)
}

// due returns the waits that are to be looked at now, the longest due first: those
// that need a read of their own, and those that one read may do for; else how long
// there is nothing to do.
func (l *lookout) due(now time.Time) (alone, together []*hostWait, wait time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	wait = time.Hour
	for w := range l.waits {
		switch left := w.next.Sub(now); {
		case left > 0:
			wait = min(wait, left)
		case w.alone:
			alone = append(alone, w)
		default:
			together = append(together, w)
		}
	}
	for _, list := range [][]*hostWait{alone, together} {
		slices.SortFunc(list, func(a, b *hostWait) int { return cmp.Or(a.next.Compare(b.next), cmp.Compare(a.ref, b.ref)) })
	}
	return alone, together, wait
}

// lookOut looks after the hosts until ctx ends.
func (e *Engine) lookOut(ctx context.Context) {
	ctx = cloud.WithPriority(ctx, cloud.Work)
	for ctx.Err() == nil {
		alone, together, wait := e.lookout.due(time.Now())
		switch {
		case len(alone) > 0:
			e.lookAlone(ctx, alone[0])
		case len(together) > 0:
			e.lookTogether(ctx, together[:min(len(together), looksAtOnce)])
		default:
			timer := time.NewTimer(wait)
			select {
			case <-timer.C:
			case <-e.lookout.woken:
			case <-ctx.Done():
			}
			timer.Stop()
			continue
		}
		sleep(ctx, e.o.Pace.Poll/looksAPoll)
	}
}

// lookAlone reads one host.
func (e *Engine) lookAlone(ctx context.Context, w *hostWait) {
	in, err := e.read(ctx, w.ref)
	switch {
	case errors.Is(err, cloud.ErrNotFound):
		e.judge(w, true, "")
	case err != nil: // it tells nothing
		w.next = time.Now().Add(e.o.Pace.Poll)
	default:
		e.judge(w, in.Power == cloud.PowerStopped || in.Power == cloud.PowerLocked, cmp.Or(in.PowerWord, in.Power.String()))
	}
}

// lookTogether reads several hosts with one call, where the cloud can. What such a
// read says is believed where all is well; everything else is read once more alone.
func (e *Engine) lookTogether(ctx context.Context, waits []*hostWait) {
	many, ok := e.o.Cloud.(cloud.ManyReader)
	if !ok || len(waits) == 1 {
		e.lookAlone(ctx, waits[0])
		return
	}
	refs := make([]string, len(waits))
	for i, w := range waits {
		refs[i] = w.ref
	}
	found := map[string]cloud.Power{}
	err := e.guarded("", "look", func() error {
		within, cancel := context.WithTimeout(ctx, readTimeout)
		defer cancel()
		all, err := many.GetMany(within, refs)
		for _, in := range all {
			found[in.Ref] = in.Power
		}
		return err
	})
	now := time.Now()
	for _, w := range waits {
		switch power, there := found[w.ref]; {
		case err != nil:
			w.next = now.Add(e.o.Pace.Poll)
		case !there, power == cloud.PowerStopped, power == cloud.PowerLocked:
			w.alone, w.next = true, now
		default:
			e.judge(w, false, "")
		}
	}
}

// judge takes note of a look. A host is lost when the cloud says so twice, and the
// host itself says nothing: the cloud's word may be late or wrong, and a host that
// is heard from is there.
func (e *Engine) judge(w *hostWait, bad bool, word string) {
	now := time.Now()
	if !bad {
		w.bad, w.alone, w.next = 0, false, now.Add(lookEvery*e.o.Pace.Poll)
		return
	}
	w.alone, w.next = true, now.Add(e.o.Pace.Poll)
	if w.bad++; w.bad >= lostLooks && !e.o.Delivery.HeardWithin(w.machine, max(knockTime, now.Sub(w.asked))) {
		w.lost(&hostLostError{ref: w.ref, word: word})
		return
	}
	e.o.Log.Warn("the cloud reports an awaited host as stopped, locked or gone; asking the host itself", telemetry.KeyMachine, w.machine,
		telemetry.KeyInstance, w.ref, telemetry.KeyState, cmp.Or(word, "gone"))
	w.asked = now
	e.o.Delivery.Knock(w.machine)
}
