package host

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"bigfleet-providers/provider/internal/fakecloud"
)

// Hosts is a fakecloud.Hosts. Its methods may be called from any goroutine;
// Boot, Halt and Gone return at once.
type Hosts struct {
	log   *slog.Logger
	delay func(fakecloud.Guest) time.Duration
	// newMachine makes the machine of a server that was not seen before.
	newMachine func(serverID string) machine
	// atClose releases what the machines share.
	atClose func()
	tree    func(serverID string) string // nil when there are none

	mu      sync.Mutex // guards what follows
	servers map[string]*server
	// erasing are the machines of servers that are gone, by id: one that is
	// installed anew boots under the id of the one that is being erased.
	erasing map[string]chan struct{}
	closed  bool
	running sync.WaitGroup // one for each goroutine
}

// machine is what a server's disk and processes are. Its methods are called one
// at a time.
type machine interface {
	// up boots the machine and returns when ctx has ended and nothing of it runs
	// any more.
	up(ctx context.Context, g fakecloud.Guest)
	// erase removes the disk, after the last up.
	erase()
}

type server struct {
	machine machine
	cancel  context.CancelFunc // of the latest boot
	down    chan struct{}      // closed when the latest boot is over
}

func newHosts(log *slog.Logger, delay func(fakecloud.Guest) time.Duration) *Hosts {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	if delay == nil {
		delay = func(fakecloud.Guest) time.Duration { return 0 }
	}
	return &Hosts{log: log, delay: delay, servers: map[string]*server{}, erasing: map[string]chan struct{}{}, atClose: func() {}}
}

// Boot powers a machine on: it waits for the guest's boot time, acts on the
// user data if this is the machine's first boot, and starts the agent. A
// machine that is still going down boots after that.
func (h *Hosts) Boot(g fakecloud.Guest) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return
	}
	s := h.servers[g.ServerID]
	if s == nil {
		s = &server{machine: h.newMachine(g.ServerID), cancel: func() {}, down: make(chan struct{})}
		if erased := h.erasing[g.ServerID]; erased != nil {
			s.down = erased
		} else {
			close(s.down)
		}
		h.servers[g.ServerID] = s
	}
	s.cancel()
	ctx, cancel := context.WithCancel(context.Background())
	before, down := s.down, make(chan struct{})
	s.cancel, s.down = cancel, down
	h.running.Go(func() {
		defer close(down)
		defer cancel()
		<-before
		if wait(ctx, h.delay(g)) {
			s.machine.up(ctx, g)
		}
	})
}

// Halt powers a machine off. Its disk stays. A server that never booted, or
// that is gone, is passed by.
func (h *Hosts) Halt(serverID string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if s := h.servers[serverID]; s != nil {
		s.cancel()
	}
}

// Gone tells that a server was deleted: its machine is halted and its disk
// erased.
func (h *Hosts) Gone(serverID string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := h.servers[serverID]
	if s == nil || h.closed {
		return
	}
	delete(h.servers, serverID)
	s.cancel()
	erased := make(chan struct{})
	h.erasing[serverID] = erased
	h.running.Go(func() {
		<-s.down
		s.machine.erase()
		h.mu.Lock()
		defer h.mu.Unlock()
		if h.erasing[serverID] == erased {
			delete(h.erasing, serverID)
		}
		close(erased)
	})
}

// Close halts every machine and returns when all are down. Boot does nothing
// afterwards. It may be called more than once.
func (h *Hosts) Close() {
	h.mu.Lock()
	first := !h.closed
	h.closed = true
	for _, s := range h.servers {
		s.cancel()
	}
	h.mu.Unlock()
	h.running.Wait()
	if first {
		h.atClose()
	}
}

// Tree is the directory that stands for the server's root file system, "" when
// the hosts are in-process. It exists from the first boot until the server is
// gone.
func (h *Hosts) Tree(serverID string) string {
	if h.tree == nil {
		return ""
	}
	return h.tree(serverID)
}

// wait sleeps for d unless ctx ends first.
func wait(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}
