package fakecloud

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
)

// armedMost bounds the faults that a script may have armed at a time.
const armedMost = 1000

var outcomes = []string{OutcomeNormal: "normal", OutcomeStuck: "stuck", OutcomeFallBack: "fall_back"}

// faultView is a fault as the control endpoint takes and lists it.
type faultView struct {
	Number       int        `json:"fault"`
	Route        string     `json:"route,omitempty"`
	Zone         string     `json:"zone,omitempty"`
	ID           string     `json:"id,omitempty"`
	Action       string     `json:"action,omitempty"`
	BodyContains string     `json:"body_contains,omitempty"`
	Matcher      bool       `json:"go_match,omitempty"` // it also has a condition in Go
	Skip         int        `json:"skip,omitempty"`
	Times        int        `json:"times"`
	Delay        string     `json:"delay,omitempty"`
	Commit       bool       `json:"commit,omitempty"`
	Reply        *replyView `json:"reply,omitempty"`
	Hangup       bool       `json:"hangup,omitempty"`
	Reset        bool       `json:"reset,omitempty"`
	HangupAfter  int        `json:"hangup_after_bytes,omitempty"`
	Outcome      string     `json:"outcome,omitempty"`
	Seen         int        `json:"seen"`
	Hits         int        `json:"hits"`
	Spent        bool       `json:"spent"`
}

type replyView struct {
	Status      int                 `json:"status"`
	ContentType string              `json:"content_type"`
	Headers     map[string][]string `json:"headers,omitempty"`
	Body        string              `json:"body"`
}

func viewFault(f FaultStatus) faultView {
	v := faultView{
		Number: f.Number, Route: f.Route, Zone: f.Zone, ID: f.ID, Action: f.Action, BodyContains: f.BodyContains,
		Matcher: f.Match != nil, Skip: f.Skip, Times: f.Times, Commit: f.Commit, Hangup: f.Hangup, Reset: f.Reset,
		HangupAfter: f.HangupAfter, Seen: f.Seen, Hits: f.Hits, Spent: f.Spent,
	}
	if f.Times == 0 {
		v.Times = 1
	}
	if f.Delay > 0 {
		v.Delay = f.Delay.String()
	}
	if f.Outcome != OutcomeNormal {
		v.Outcome = outcomes[f.Outcome]
	}
	if f.Reply != nil {
		v.Reply = &replyView{f.Reply.Status, f.Reply.ContentType, f.Reply.Header, f.Reply.Body}
	}
	return v
}

func (c *Cloud) controlFaults(*http.Request) (int, any, error) {
	views := []faultView{}
	for _, f := range c.Faults() {
		views = append(views, viewFault(f))
	}
	return http.StatusOK, map[string]any{"faults": views}, nil
}

func (c *Cloud) controlInject(r *http.Request) (int, any, error) {
	s, err := controlScript(r)
	if err != nil {
		return 0, nil, err
	}
	f := c.readFault(s)
	if err := s.err(); err != nil {
		return 0, nil, err
	}
	armed := 0
	for _, f := range c.Faults() {
		if !f.Spent {
			armed++
		}
	}
	if armed >= armedMost {
		return http.StatusConflict, nil, fmt.Errorf("%d faults are armed, which is the most: remove some first", armed)
	}
	return http.StatusCreated, viewFault(FaultStatus{Fault: f, Number: c.faults.add(f)}), nil
}

func (c *Cloud) controlClearFaults(*http.Request) (int, any, error) {
	c.ClearFaults()
	return http.StatusNoContent, nil, nil
}

func (c *Cloud) controlRemoveFault(r *http.Request) (int, any, error) {
	text := r.PathValue("number")
	number, err := strconv.Atoi(text)
	if err != nil || !c.faults.remove(number) {
		return http.StatusNotFound, nil, fmt.Errorf("there is no fault %q: GET /debug/faults lists them", text)
	}
	return http.StatusNoContent, nil, nil
}

// readFault takes what faultView shows, without the counters.
func (c *Cloud) readFault(s *script) Fault {
	f := Fault{
		Route: s.text("route"), Zone: s.text("zone"), ID: s.text("id"), Action: s.text("action"),
		BodyContains: s.text("body_contains"), Skip: s.count("skip", 0), Times: s.count("times", -1),
		HangupAfter: s.count("hangup_after_bytes", 1),
	}
	s.duration("delay", &f.Delay)
	s.read("commit", &f.Commit)
	s.read("hangup", &f.Hangup)
	s.read("reset", &f.Reset)
	if f.Route != "" && c.routes[f.Route] == nil {
		s.refuse("route", "%q is no route: GET /debug/routes lists them", f.Route)
	}
	if f.Action != "" && f.Route != "" && f.Route != RouteServerAction {
		s.refuse("action", "only calls of %q have one", RouteServerAction)
	}
	if name := s.oneOf("outcome", outcomes...); name != "" {
		f.Outcome = Outcome(max(slices.Index(outcomes, name), 0))
	}
	if s.has("reply") {
		f.Reply = s.reply()
	}
	switch {
	case f.silent() && f.Reply != nil:
		s.refuse("reply", "a call that ends in hangup or reset has none")
	case f.Hangup && f.HangupAfter > 0:
		s.refuse("hangup_after_bytes", "hangup sends nothing: give one of the two")
	case s.err() != nil: // what follows judges fields that may have been refused
	case f.Commit && f.Reply == nil && !f.silent() && f.HangupAfter == 0 && f.Delay == 0:
		s.refuse("commit", "needs a reply, a hangup or a delay in place of the real answer")
	case f.Reply == nil && !f.silent() && f.HangupAfter == 0 && f.Delay == 0 && f.Outcome == OutcomeNormal:
		s.refuse("reply", "the fault does nothing: give reply, hangup, reset, hangup_after_bytes, delay or outcome")
	}
	s.end()
	return f
}

// replyScript is a ready-made reply with what goes into it.
type replyScript struct {
	Name, Resource, Action, ID, State string
}

// reply is the name of a ready-made reply, an object with such a name and what
// goes into it, or an object with a status.
func (s *script) reply() *Reply {
	var name string
	if json.Unmarshal(s.fields["reply"], &name) == nil {
		delete(s.fields, "reply")
		return s.ready(replyScript{Name: name})
	}
	in := s.object("reply")
	if in == nil {
		return nil
	}
	defer in.end()
	if in.has("name") {
		return in.ready(replyScript{in.text("name"), in.text("resource"), in.text("action"), in.text("id"), in.text("state")})
	}
	r := &Reply{Status: in.count("status", 200), ContentType: in.text("content_type"), Header: http.Header{}}
	if r.Status == 0 || r.Status > 599 {
		in.refuse("status", "%d: want 200 to 599, or a name", r.Status)
	}
	var headers map[string]*string
	in.read("headers", &headers)
	for name, value := range headers {
		if value == nil { // takes one of the gateway's away
			r.Header[http.CanonicalHeaderKey(name)] = nil
		} else {
			r.Header.Set(name, *value)
		}
	}
	raw := in.fields["body"]
	if len(raw) > 0 && raw[0] != '"' { // JSON is sent as it is
		delete(in.fields, "body")
		r.Body = string(raw)
	} else {
		r.Body = in.text("body")
	}
	return r
}

func (s *script) ready(in replyScript) *Reply {
	r, err := readyReply(in)
	if err != nil {
		s.refuse("reply", "%w", err)
	}
	return r
}
