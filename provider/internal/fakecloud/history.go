package fakecloud

import (
	"sync"
	"time"
)

// callsKept bounds the record of calls.
const callsKept = 4096

// Call is one answered request. It holds no body and no key.
type Call struct {
	Number int       `json:"number"` // from 1, in the order of the answers
	At     time.Time `json:"at"`
	Method string    `json:"method"`
	Path   string    `json:"path"`
	Query  string    `json:"query,omitempty"`
	Route  string    `json:"route"` // a Route constant, "" when no route matched
	Zone   string    `json:"zone,omitempty"`
	ID     string    `json:"id,omitempty"`    // the {id} of the path
	Status int       `json:"status"`          // 0 when the connection was closed without an answer
	Fault  int       `json:"fault,omitempty"` // the fault that took it
}

type history struct {
	mu     sync.Mutex
	ring   []Call
	next   int // where the ring is written next once it is full
	counts map[string]int
	total  int
	before int // calls that forget dropped
}

func (h *history) record(c Call) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.counts == nil {
		h.counts = map[string]int{}
	}
	h.counts[c.Route]++
	h.total++
	c.Number = h.total
	if len(h.ring) < callsKept {
		h.ring = append(h.ring, c)
		return
	}
	h.ring[h.next] = c
	h.next = (h.next + 1) % callsKept
}

// forget drops the calls. Their numbers go on, so that a cursor stays good.
func (h *history) forget() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ring, h.next, h.counts, h.before = nil, 0, nil, h.total
}

// Calls returns the last 4096 calls, oldest first.
func (c *Cloud) Calls() []Call {
	h := &c.history
	h.mu.Lock()
	defer h.mu.Unlock()
	return append(append([]Call(nil), h.ring[h.next:]...), h.ring[:h.next]...)
}

// Requests counts the calls of a route since New or Reset, and of all
// routes together for "".
func (c *Cloud) Requests(route string) int {
	h := &c.history
	h.mu.Lock()
	defer h.mu.Unlock()
	if route == "" {
		return h.total - h.before
	}
	return h.counts[route]
}
