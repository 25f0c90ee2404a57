package fakecloud

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
)

// maxBody bounds a request; the largest legitimate one is user data, for which
// no limit of the real API is recorded and clients keep below 128 KB.
const maxBody = 1 << 20

var (
	zoneFormat   = regexp.MustCompile(`^[a-z]{2}-[a-z]{3,7}-[0-9]{1,2}$`)
	regionFormat = regexp.MustCompile(`^[a-z]{2}-[a-z]{3,7}$`)
)

// route is one call of the API.
type route struct {
	name       string // "VERB /path", as in the Route constants
	public     bool   // needs no key
	permission permission
	spaced     bool // JSON as Instances v1 writes it
	handle     func(*Cloud, *request) (*response, error)
}

// request is what a handler sees. Handlers run with the Cloud's lock held.
type request struct {
	*http.Request
	caller  *caller
	zone    string
	region  string
	id      string // the {id} of the path
	query   url.Values
	body    []byte
	outcome Outcome
}

// response is a success; one without body has no content type.
type response struct {
	status      int
	header      http.Header
	body        any    // encoded as JSON
	text        []byte // sent as it is, when contentType is set
	contentType string
}

func ok(body any) (*response, error) { return &response{status: http.StatusOK, body: body}, nil }
func created(body any) (*response, error) {
	return &response{status: http.StatusCreated, body: body}, nil
}
func noContent() (*response, error) { return &response{status: http.StatusNoContent}, nil }

// decode reads the JSON body.
func (q *request) decode(into any) error {
	if err := json.Unmarshal(q.body, into); err != nil {
		return invalid(errorDetail{ArgumentName: "body", Reason: "format", HelpMessage: err.Error()})
	}
	return nil
}

func (c *Cloud) serveHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Server", "Scaleway API Gateway (fr-par-3;edge03)")
	h.Set("X-Request-Id", uuid.NewString())
	h.Set("Strict-Transport-Security", "max-age=63072000")
	h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	c.mux.ServeHTTP(w, r)
}

// serve answers one call of a route: fault, key, right, handler, fault again.
func (c *Cloud) serve(rt *route, w http.ResponseWriter, r *http.Request) {
	q := &request{Request: r, zone: r.PathValue("zone"), region: r.PathValue("region"), id: r.PathValue("id"), query: r.URL.Query()}
	status, number := 0, 0
	defer func() { c.record(r, rt.name, status, number) }()
	var err error
	if q.body, err = io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody)); err != nil {
		status = http.StatusRequestEntityTooLarge
		http.Error(w, "request body: "+err.Error(), status)
		return
	}

	fault, number := c.faults.take(Request{Route: rt.name, Zone: q.zone, ID: q.id, Query: q.query, Body: q.body, Action: actionOf(rt, q.body)})
	if fault == nil {
		fault = &Fault{}
	}
	q.outcome = fault.Outcome
	if !fault.Commit {
		hold(r.Context(), fault.Delay)
	}
	reply := fault.Reply
	if fault.Commit || reply == nil && !fault.silent() {
		done := c.answer(rt, q)
		if reply == nil {
			reply = done
		}
	}
	if fault.Commit {
		hold(r.Context(), fault.Delay)
	}
	if fault.silent() {
		hangUp(w, fault.Reset)
	}
	status = reply.Status
	if n := fault.HangupAfter; n > 0 && n < len(reply.Body) {
		reply.writePart(w, n)
		hangUp(w, fault.Reset)
	}
	reply.write(w)
}

// hangUp ends the connection, and with it the handler. A reset needs the
// connection itself, which HTTP/1 gives.
func hangUp(w http.ResponseWriter, reset bool) {
	if reset {
		if conn, _, err := http.NewResponseController(w).Hijack(); err == nil {
			if tcp, isTCP := conn.(*net.TCPConn); isTCP {
				_ = tcp.SetLinger(0) // failing that, the end is an orderly one
			}
			_ = conn.Close()
		}
	}
	panic(http.ErrAbortHandler) // net/http closes the connection without an answer
}

// hold waits, and ends the call when its client gives up.
func hold(ctx context.Context, d time.Duration) {
	if d <= 0 {
		return
	}
	select {
	case <-time.After(d):
	case <-ctx.Done():
		panic(http.ErrAbortHandler)
	}
}

// answer runs the call and encodes what comes out.
func (c *Cloud) answer(rt *route, q *request) *Reply {
	resp, err := c.dispatch(rt, q)
	if refusal, known := errors.AsType[*apiError](err); known {
		return c.refuse(rt, refusal)
	}
	if err != nil {
		c.log.Error("a call failed", "route", rt.name, "error", err)
		return Unavailable()
	}
	reply := &Reply{Status: resp.status, Header: resp.header, ContentType: resp.contentType, Body: string(resp.text)}
	if resp.body == nil {
		return reply
	}
	reply.ContentType = "application/json"
	return c.withBody(rt, reply, resp.body)
}

// refuse makes the answer of an error; one without a message has no body.
func (c *Cloud) refuse(rt *route, e *apiError) *Reply {
	reply := &Reply{Status: e.status, ContentType: cmp.Or(e.contentType, "application/json")}
	if e.body.Message == "" {
		return reply
	}
	return c.withBody(rt, reply, e.body)
}

func (c *Cloud) withBody(rt *route, reply *Reply, body any) *Reply {
	text, err := encode(body, rt.spaced)
	if err != nil {
		c.log.Error("cannot encode an answer", "route", rt.name, "error", err)
		return Unavailable()
	}
	reply.Body = string(text)
	return reply
}

func (c *Cloud) dispatch(rt *route, q *request) (*response, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, &apiError{status: http.StatusServiceUnavailable, body: errorBody{Message: "internal error"}}
	}
	var err error
	if q.caller, err = c.authorize(rt, q.Header.Get("X-Auth-Token")); err != nil {
		return nil, err
	}
	if q.PathValue("zone") != "" && !zoneFormat.MatchString(q.zone) {
		return nil, invalid(constraint("zone", "not a valid value"))
	}
	if q.PathValue("region") != "" && !regionFormat.MatchString(q.region) {
		return nil, invalid(constraint("region", "not a valid value"))
	}
	return rt.handle(c, q)
}

func (r *Reply) write(w http.ResponseWriter) { r.writePart(w, len(r.Body)) }

// writePart sends the headers of the whole reply and n bytes of its body.
func (r *Reply) writePart(w http.ResponseWriter, n int) {
	h := w.Header()
	maps.Copy(h, r.Header)
	// A nil entry stops net/http from guessing a type: the recorded 429 has none.
	h["Content-Type"] = nil
	if r.ContentType != "" {
		h.Set("Content-Type", r.ContentType)
	}
	if r.Status != http.StatusNoContent {
		h.Set("Content-Length", strconv.Itoa(len(r.Body)))
	}
	w.WriteHeader(r.Status)
	// A client that went away is its own problem: there is nobody to tell.
	_, _ = io.WriteString(w, r.Body[:n]) //nolint:gosec // what a script says is what it gets, and browsers are told not to sniff
	if n < len(r.Body) {
		_ = http.NewResponseController(w).Flush()
	}
}

// pagePath is the path of a Link header: what follows the zone.
func (q *request) pagePath() string {
	_, rest, _ := strings.Cut(q.URL.Path, "/zones/"+q.zone)
	return rest
}

// record notes an answered call.
func (c *Cloud) record(r *http.Request, route string, status, fault int) {
	c.history.record(Call{
		At: time.Now(), Method: r.Method, Path: r.URL.Path, Query: r.URL.RawQuery, Route: route,
		Zone: r.PathValue("zone"), ID: r.PathValue("id"), Status: status, Fault: fault,
	})
	c.log.DebugContext(r.Context(), "request", "method", r.Method, "path", r.URL.Path, "status", status)
}

func (c *Cloud) unknownRoute(w http.ResponseWriter, r *http.Request) {
	c.record(r, "", http.StatusNotFound, 0)
	http.Error(w, "404 page not found", http.StatusNotFound)
}

// metadata is the gateway's description of itself, which list calls of the SDK
// ask for.
func (c *Cloud) metadata(*request) (*response, error) {
	return ok(struct {
		Platform  string `json:"platform"`
		Partition string `json:"partition"`
		Domain    string `json:"domain"`
	}{"external", "scw", "scw.eu"})
}
