package lifecycle

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"bigfleet-providers/provider/internal/cloud"
	"bigfleet-providers/provider/internal/machine"
	"bigfleet-providers/provider/internal/telemetry"
)

// stock remembers which types the cloud refused for want of hardware or quota.
// Such a type is not ordered again for a while, twice as long after each
// refusal in a row, since an order that is refused costs calls and leaves a
// server to remove. Other types are not affected. It is forgotten at exit: one
// refused order tells again.
type stock struct {
	least, most time.Duration

	mu      sync.Mutex
	serial  int
	refused map[product]*refusal
}

// product is what the cloud runs out of.
type product struct{ commercialType, zone string }

func productOf(o *machine.Offer) product { return product{o.InstanceType, o.Zone} }

// refusal is a row of refusals without a success in between.
type refusal struct {
	serial int
	kind   error // cloud.ErrNoCapacity or cloud.ErrQuota
	text   string
	since  time.Time // of the first
	times  int
	pause  time.Duration
	until  time.Time
}

// blockedError is the end of a Create whose type is not ordered at present.
type blockedError struct {
	kind error
	text string
}

func (e *blockedError) Error() string { return e.text }

func (e *blockedError) Unwrap() error { return e.kind }

func newStock(p Pace) *stock {
	return &stock{least: p.TypePauseMin, most: p.TypePauseMax, refused: map[product]*refusal{}}
}

// admit says whether the type may be ordered now. The serial tells refuse which
// refusals the order knew of.
func (s *stock) admit(p product) (serial int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.refused[p]
	if r == nil || !time.Now().Before(r.until) {
		return s.serial, nil
	}
	past := "was refused at " + r.since.UTC().Format(time.RFC3339)
	if r.times > 1 {
		past = fmt.Sprintf("was refused %d times since %s", r.times, r.since.UTC().Format(time.RFC3339))
	}
	return 0, &blockedError{kind: r.kind, text: fmt.Sprintf("type %s in %s %s and is not ordered again before %s; the last refusal: %s",
		p.commercialType, p.zone, past, r.until.UTC().Format(time.RFC3339), r.text)}
}

// refuse takes note of a refusal and returns until when the type is not ordered
// again. Orders that were under way together count as one refusal.
func (s *stock) refuse(p product, serial int, err error) time.Time {
	kind := cloud.ErrNoCapacity
	if errors.Is(err, cloud.ErrQuota) {
		kind = cloud.ErrQuota
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	r := s.refused[p]
	if r == nil {
		r = &refusal{since: now}
		s.refused[p] = r
	}
	r.kind, r.text = kind, err.Error()
	r.times++
	if r.serial > serial {
		return r.until
	}
	s.serial++
	r.serial = s.serial
	r.pause = min(max(2*r.pause, s.least), s.most)
	// Up to a fifth longer, so that providers of several zones or projects do not
	// come back together.
	r.until = now.Add(r.pause + rand.N(r.pause/5+1))
	return r.until
}

// accept takes note that the cloud sold one; true when that was news.
func (s *stock) accept(p product) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, news := s.refused[p]
	delete(s.refused, p)
	return news
}

// wait is how long the type is not ordered yet.
func (s *stock) wait(p product) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := s.refused[p]; r != nil {
		return max(time.Until(r.until), 0)
	}
	return 0
}

// noteRefusal tells the stock of an operation's end, if it is about that.
func (e *Engine) noteRefusal(t *task, err error) {
	if _, early := errors.AsType[*blockedError](err); early {
		return
	}
	if errors.Is(err, cloud.ErrLimit) || !errors.Is(err, cloud.ErrNoCapacity) && !errors.Is(err, cloud.ErrQuota) {
		return
	}
	cause := err
	if at, ok := errors.AsType[*stepError](err); ok {
		cause = at.last
	}
	p := productOf(t.rec.Offer)
	until := e.stock.refuse(p, t.stockSerial, cause)
	e.o.Observer.TypeBlocked(p.commercialType, classOf(cause), until)
	e.o.Log.Warn("the cloud refused a type; it is not ordered again for a while", "type", p.commercialType,
		"class", classOf(cause), "until", until, telemetry.KeyError, cause.Error())
}

// noteSale tells the stock that the cloud sold an instance.
func (e *Engine) noteSale(t *task) {
	p := productOf(t.rec.Offer)
	if !e.stock.accept(p) {
		return
	}
	e.o.Observer.TypeBlocked(p.commercialType, classOK, time.Time{})
	e.o.Log.Info("the cloud sells a type again that it refused", "type", p.commercialType)
}
