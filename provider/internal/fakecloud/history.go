package fakecloud

import (
	"sync"
	"time"
)

// callsKept bounds the record of calls.
const callsKept = 4096

// Call is one answered request. It holds no body and no key.
type Call struct {
	At     time.Time
	Method string
	Path   string
	Query  string
	Route  string // a Route constant, "" when no route matched
	Status int    // 0 when the connection was closed without an answer
}

type history struct {
	mu     sync.Mutex
	ring   []Call
	next   int // where the ring is written next once it is full
	counts map[string]int
	total  int
}

func (h *history) record(c Call) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.counts == nil {
		h.counts = map[string]int{}
	}
	h.counts[c.Route]++
	h.total++
	if len(h.ring) < callsKept {
		h.ring = append(h.ring, c)
		return
	}
	h.ring[h.next] = c
	h.next = (h.next + 1) % callsKept
}

// Calls returns the last 4096 calls, oldest first.
func (c *Cloud) Calls() []Call {
	h := &c.history
	h.mu.Lock()
	defer h.mu.Unlock()
	return append(append([]Call(nil), h.ring[h.next:]...), h.ring[:h.next]...)
}

// Requests counts the calls of a route since New, and of all routes together
// for "".
func (c *Cloud) Requests(route string) int {
	h := &c.history
	h.mu.Lock()
	defer h.mu.Unlock()
	if route == "" {
		return h.total
	}
	return h.counts[route]
}
