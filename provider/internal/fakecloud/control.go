package fakecloud

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// serveControl adds the control endpoint: what the Go methods of Cloud do, for
// programs in other processes. It asks for no key.
func (c *Cloud) serveControl() {
	for pattern, handle := range map[string]func(*http.Request) (status int, body any, err error){
		"GET /debug/servers":            func(*http.Request) (int, any, error) { return http.StatusOK, c.Servers(), nil },
		"GET /debug/volumes":            func(*http.Request) (int, any, error) { return http.StatusOK, c.Volumes(), nil },
		"GET /debug/leaks":              func(*http.Request) (int, any, error) { return http.StatusOK, c.Leaks(), nil },
		"GET /debug/metal":              func(*http.Request) (int, any, error) { return http.StatusOK, c.Metal(), nil },
		"GET /debug/routes":             c.controlRoutes,
		"GET /debug/calls":              c.controlCalls,
		"GET /debug/faults":             c.controlFaults,
		"POST /debug/faults":            c.controlInject,
		"DELETE /debug/faults":          c.controlClearFaults,
		"DELETE /debug/faults/{number}": c.controlRemoveFault,
		"GET /debug/switches":           c.controlShowSwitches,
		"POST /debug/switches":          c.controlSetSwitches,
		"POST /debug/guests":            c.controlMapGuest,
		"POST /debug/reset":             c.controlReset,
	} {
		c.mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			status, body, err := handle(r)
			if err != nil {
				status, body = cmp.Or(status, http.StatusBadRequest), controlErrors(err)
			}
			controlReply(w, status, body)
		})
	}
}

func controlReply(w http.ResponseWriter, status int, body any) {
	if status == http.StatusNoContent {
		(&Reply{Status: status}).write(w)
		return
	}
	text, err := encode(body, false)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	(&Reply{Status: status, ContentType: "application/json", Body: string(text) + "\n"}).write(w)
}

// controlErrors lists every mistake of a request.
func controlErrors(err error) any {
	faults := []string{}
	if joined, many := err.(interface{ Unwrap() []error }); many {
		for _, e := range joined.Unwrap() {
			faults = append(faults, e.Error())
		}
	} else {
		faults = append(faults, err.Error())
	}
	return struct {
		Errors []string `json:"errors"`
	}{faults}
}

func controlScript(r *http.Request) (*script, error) {
	body, err := io.ReadAll(io.LimitReader(r.Body, maxBody))
	if err != nil {
		return nil, fmt.Errorf("body: %w", err)
	}
	return readScript(body)
}

func (c *Cloud) controlRoutes(*http.Request) (int, any, error) {
	names := []string{}
	for _, rt := range routeTable() {
		names = append(names, rt.name)
	}
	return http.StatusOK, map[string]any{"routes": names}, nil
}

// callFilter is what GET /debug/calls takes; each field that is "" lets all pass.
var callFilter = map[string]func(Call) string{
	"route":  func(c Call) string { return c.Route },
	"method": func(c Call) string { return c.Method },
	"path":   func(c Call) string { return c.Path },
	"zone":   func(c Call) string { return c.Zone },
	"id":     func(c Call) string { return c.ID },
	"status": func(c Call) string { return strconv.Itoa(c.Status) },
	"fault":  func(c Call) string { return strconv.Itoa(c.Fault) },
}

// callPage is the recorded calls after a cursor.
type callPage struct {
	Calls  []Call `json:"calls"`
	Next   int    `json:"next"`   // the cursor of the next page: ?after=
	Missed int    `json:"missed"` // calls after the cursor that are no longer kept
}

func (c *Cloud) controlCalls(r *http.Request) (int, any, error) {
	query := r.URL.Query()
	after, limit, err := callWindow(query)
	if err != nil {
		return 0, nil, err
	}
	page := callPage{Calls: []Call{}, Next: after}
	for i, call := range c.Calls() {
		if i == 0 {
			page.Missed = max(call.Number-1-after, 0)
		}
		if call.Number <= after {
			continue
		}
		if len(page.Calls) == limit {
			break
		}
		page.Next = call.Number
		if callPasses(call, query) {
			page.Calls = append(page.Calls, call)
		}
	}
	return http.StatusOK, page, nil
}

func callWindow(query url.Values) (after, limit int, err error) {
	var faults []error
	limit = callsKept
	for name := range query {
		_, filters := callFilter[name]
		value := query.Get(name)
		n, atoiErr := strconv.Atoi(value)
		switch {
		case name == "after" && atoiErr == nil && n >= 0:
			after = n
		case name == "limit" && atoiErr == nil && n > 0:
			limit = n
		case name == "after" || name == "limit":
			faults = append(faults, fmt.Errorf("%s: %q: want a whole number, limit at least 1", name, value))
		case !filters:
			faults = append(faults, fmt.Errorf("%s: unknown parameter: there are after, limit, route, method, path, zone, id, status, fault", name))
		}
	}
	slices.SortFunc(faults, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return after, limit, errors.Join(faults...)
}

func callPasses(call Call, query url.Values) bool {
	for name, field := range callFilter {
		if want := query.Get(name); want != "" && want != field(call) {
			return false
		}
	}
	return true
}

// controlMapGuest says which server a source address of the metadata service is.
func (c *Cloud) controlMapGuest(r *http.Request) (int, any, error) {
	s, err := controlScript(r)
	if err != nil {
		return 0, nil, err
	}
	address, server := s.text("address"), s.text("server")
	s.end()
	if err := s.err(); err != nil {
		return 0, nil, err
	}
	if err := c.MapGuest(address, server); err != nil {
		return 0, nil, err
	}
	return http.StatusNoContent, nil, nil
}

func (c *Cloud) controlReset(*http.Request) (int, any, error) {
	c.Reset()
	return http.StatusNoContent, nil, nil
}
