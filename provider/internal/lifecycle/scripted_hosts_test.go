package lifecycle_test

import (
	"context"
	"slices"
	"sync"
	"time"

	"bigfleet-providers/provider/internal/delivery"
	"bigfleet-providers/shared/command"
)

// scriptedHosts is a delivery to hosts that answer after a second, unless told
// otherwise.
type scriptedHosts struct {
	mu        sync.Mutex
	silent    bool // no contact, no report
	report    func(command.Command) (bool, string)
	commands  []command.Command
	confirmed []error
	knocks    int
	forgotten func(machineID string) // nil for nobody
}

func (h *scriptedHosts) Contact(ctx context.Context, _ string, _ time.Time) error {
	return h.answer(ctx)
}

func (h *scriptedHosts) answer(ctx context.Context) error {
	h.mu.Lock()
	silent := h.silent
	h.mu.Unlock()
	if silent {
		<-ctx.Done()
		return context.Cause(ctx)
	}
	select {
	case <-time.After(time.Second):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (h *scriptedHosts) Deliver(ctx context.Context, cmd command.Command) (delivery.Report, error) {
	h.mu.Lock()
	h.commands = append(h.commands, cmd)
	report := h.report
	h.mu.Unlock()
	if err := h.answer(ctx); err != nil {
		return delivery.Report{}, err
	}
	ok, text := true, ""
	if report != nil {
		ok, text = report(cmd)
	}
	return delivery.Report{OK: ok, Error: text, Confirm: func(err error) {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.confirmed = append(h.confirmed, err)
	}}, nil
}

func (h *scriptedHosts) Forget(machineID string) {
	h.mu.Lock()
	forgotten := h.forgotten
	h.mu.Unlock()
	if forgotten != nil {
		forgotten(machineID)
	}
}

func (h *scriptedHosts) HeardWithin(string, time.Duration) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return !h.silent
}

func (h *scriptedHosts) Knock(string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.knocks++
}

func (h *scriptedHosts) edit(f func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	f()
}

func (h *scriptedHosts) sent() []command.Command {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.commands)
}

func (h *scriptedHosts) outcomes() []error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.confirmed)
}
