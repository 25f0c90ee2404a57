package lifecycle_test

import (
	"context"
	"sync"
	"time"

	"bigfleet-providers/provider/internal/delivery"
	"bigfleet-providers/provider/internal/lifecycle"
	"bigfleet-providers/shared/command"
)

// livingHosts is a delivery to hosts that are heard from when a test says so, and
// when they are knocked at while they live.
type livingHosts struct {
	mu      sync.Mutex
	alive   bool      // it answers a knock
	last    time.Time // when it was heard from
	changed chan struct{}
	knocks  int
	sent    []command.Command
	done    chan delivery.Report // reports to come
	atLast  bool                 // a report comes as the wait for it ends
}

func newLivingHosts() *livingHosts {
	return &livingHosts{changed: make(chan struct{}), done: make(chan delivery.Report, 1)}
}

// living has the rig's hosts be such ones.
func living(h *livingHosts, poll time.Duration) func(*lifecycle.Options) {
	return func(o *lifecycle.Options) { o.Delivery, o.Pace.Poll = h, poll }
}

// call is a sign of life.
func (h *livingHosts) call() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.heard()
}

func (h *livingHosts) heard() {
	h.last = time.Now()
	close(h.changed)
	h.changed = make(chan struct{})
}

func (h *livingHosts) lives(yes bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.alive = yes
}

func (h *livingHosts) reports(ok bool, text string) {
	h.done <- delivery.Report{OK: ok, Error: text, Confirm: func(error) {}}
}

func (h *livingHosts) commands() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.sent)
}

func (h *livingHosts) Contact(ctx context.Context, _ string, after time.Time) error {
	for {
		h.mu.Lock()
		last, changed := h.last, h.changed
		h.mu.Unlock()
		if last.After(after) {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (h *livingHosts) HeardWithin(_ string, d time.Duration) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return !h.last.IsZero() && time.Since(h.last) < d
}

func (h *livingHosts) Knock(string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.knocks++
	if h.alive {
		time.AfterFunc(time.Second, h.call)
	}
}

func (h *livingHosts) Deliver(ctx context.Context, cmd command.Command) (delivery.Report, error) {
	h.mu.Lock()
	h.sent = append(h.sent, cmd)
	h.mu.Unlock()
	select {
	case r := <-h.done:
		return r, nil
	case <-ctx.Done():
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.atLast {
		return delivery.Report{OK: true, Confirm: func(error) {}}, nil
	}
	return delivery.Report{}, context.Cause(ctx)
}

func (h *livingHosts) Forget(string) {}
