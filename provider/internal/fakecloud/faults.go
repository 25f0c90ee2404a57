package fakecloud

import (
	"net/http"
	"slices"
	"sync"
	"time"
)

// Outcome is how an accepted server action goes on.
type Outcome int

// The outcomes. The first GET after the action shows the transitional state
// with each of them.
const (
	OutcomeNormal   Outcome = iota
	OutcomeStuck            // the transitional state lasts for ever
	OutcomeFallBack         // a power-on ends in "stopped" again, as when stock runs out late
)

// Fault is one scripted misbehaviour of one route.
type Fault struct {
	// Route is one of the Route constants; "" matches every route.
	Route string
	// Match narrows it to some calls of the route; nil matches all. It must not
	// block.
	Match func(Request) bool
	// Skip lets that many matching calls pass first.
	Skip int
	// Times is how many calls it then hits: 0 means one, a negative number
	// every one until the fault is removed.
	Times int

	// Delay holds the call back, unscaled: before its work is done, or after it
	// with Commit. A client that gives up ends it, and without Commit nothing
	// has happened then.
	Delay time.Duration
	// Commit runs the call first, and then loses its answer: the reply below, or
	// the hang-up, is what the client sees.
	Commit bool
	// Reply is answered in place of the real answer; nil leaves it.
	Reply *Reply
	// Hangup closes the connection without an answer.
	Hangup bool
	// Outcome applies to RouteServerAction.
	Outcome Outcome
}

// Request is what Fault.Match may look at.
type Request struct {
	Route  string
	Zone   string
	ID     string // the {id} of the path: a server, volume, …
	Query  map[string][]string
	Body   []byte // as sent; it may hold user data, so do not log it
	Action string // of RouteServerAction
}

// Reply is a complete answer.
type Reply struct {
	Status      int
	ContentType string      // "" sends none
	Header      http.Header // added to the gateway's; a nil value takes one of those away
	Body        string
}

// RateLimited is the recorded 429: no body, no content type and no hint when
// to come back.
func RateLimited() *Reply {
	return &Reply{Status: http.StatusTooManyRequests, Header: http.Header{
		"X-Envoy-Ratelimited": {"true"},
		// It comes from before the gateway, which adds these to all other answers.
		"Strict-Transport-Security": nil, "Content-Security-Policy": nil,
		"X-Content-Type-Options": nil, "X-Frame-Options": nil,
	}}
}

// Unavailable is the recorded 503, JSON without a type.
func Unavailable() *Reply {
	return jsonReply(http.StatusServiceUnavailable, `{"message":"internal error"}`)
}

// BadGateway is a proxy's HTML page.
func BadGateway() *Reply {
	return &Reply{Status: http.StatusBadGateway, ContentType: "text/html", Body: "<html><body><h1>502 Bad Gateway</h1></body></html>\n"}
}

// Empty is a success without a body, which the SDK turns into nil pointers.
func Empty() *Reply { return &Reply{Status: http.StatusOK, ContentType: "application/json"} }

// OutOfStock is the refusal of a power-on.
func OutOfStock(commercialType string) *Reply {
	return jsonReply(http.StatusPreconditionFailed,
		`{"type":"out_of_stock","message":"out of stock","resource":"`+commercialType+`"}`)
}

// Forbidden is a 403 as a fresh key gets it for up to two minutes, now and then.
func Forbidden(resource, action string) *Reply {
	return jsonReply(http.StatusForbidden, `{"details":[{"action":"`+action+`","resource":"`+resource+`"}],`+
		`"message":"insufficient permissions","type":"permissions_denied"}`)
}

// Transient is the 409 of an object that is busy.
func Transient(resource, id, state string) *Reply {
	return jsonReply(http.StatusConflict, `{"current_state":"`+state+`","message":"resource is in a transient state",`+
		`"resource":"`+resource+`","resource_id":"`+id+`","type":"transient_state"}`)
}

// QuotaLegacy is the oldest of three bodies that all say quota. Each decodes
// differently in the SDK.
func QuotaLegacy() *Reply {
	return jsonReply(http.StatusForbidden, `{"type":"invalid_request_error","message":"Quota exceeded for this resource."}`)
}

// QuotaStandard lists details.
func QuotaStandard(resource string) *Reply {
	return jsonReply(http.StatusForbidden, `{"details":[{"current":10,"quota":10,"resource":"`+resource+`"}],`+
		`"message":"quota(s) exceeded for this resource","type":"quotas_exceeded"}`)
}

// QuotaFlat is what Instances answer since 2026.
func QuotaFlat(resource string) *Reply {
	return jsonReply(http.StatusForbidden, `{"type":"quotas_exceeded","message":"Quota exceeded for this resource.",`+
		`"resource":"`+resource+`","quota":0,"current":0}`)
}

func jsonReply(status int, body string) *Reply {
	return &Reply{Status: status, ContentType: "application/json", Body: body}
}

// Inject adds a fault and returns what removes it. Faults are tried in the
// order of their injection; the first that is due takes the call.
func (c *Cloud) Inject(f Fault) (remove func()) { return c.faults.add(f) }

// ClearFaults removes every fault.
func (c *Cloud) ClearFaults() { c.faults.clear() }

type switchboard struct {
	mu    sync.Mutex
	armed []*armed
}

type armed struct {
	Fault
	seen int // matching calls so far
}

func (s *switchboard) add(f Fault) func() {
	a := &armed{Fault: f}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.armed = append(s.armed, a)
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.armed = slices.DeleteFunc(s.armed, func(x *armed) bool { return x == a })
	}
}

func (s *switchboard) clear() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.armed = nil
}

// take counts the call and returns the fault that hits it, or nil. A call
// counts for every fault it matches up to the one that takes it.
func (s *switchboard) take(r Request) *Fault {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, a := range s.armed {
		if a.Route != "" && a.Route != r.Route || a.Match != nil && !a.Match(r) {
			continue
		}
		a.seen++
		if a.seen <= a.Skip {
			continue
		}
		if a.Times >= 0 && a.seen-a.Skip >= max(a.Times, 1) {
			s.armed = slices.Delete(s.armed, i, i+1)
		}
		return &a.Fault
	}
	return nil
}
