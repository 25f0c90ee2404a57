package fakecloud

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/netip"
	"slices"
	"time"
)

// privilegedPorts are those a guest needs root for. User data may hold secrets,
// so the service gives it to calls from them only.
const privilegedPorts = 1024

// MetadataHandler serves what a guest finds at 169.254.42.42: /conf, /user_data
// and /vendor_data. Which guest asks follows from the source address, see
// MapGuest; it must see the connection itself and not that of a proxy.
func (c *Cloud) MetadataHandler() http.Handler {
	mux := http.NewServeMux()
	for pattern, call := range map[string]metadataCall{
		"GET /conf":                   {handle: (*Cloud).guestConf},
		"GET /user_data":              {privileged: true, handle: (*Cloud).guestUserDataList},
		"GET /user_data/{key}":        {privileged: true, handle: (*Cloud).guestUserData},
		"PATCH /user_data/{key}":      {privileged: true, handle: (*Cloud).guestSetUserData},
		"DELETE /user_data/{key}":     {privileged: true, handle: (*Cloud).guestDeleteUserData},
		"GET /vendor_data/cloud-init": {privileged: true, handle: (*Cloud).guestVendorData},
	} {
		call.route = pattern
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) { c.serveMetadata(call, w, r) })
	}
	return mux
}

type metadataCall struct {
	route      string
	privileged bool
	// handle runs with the lock held and returns a reply, or a value that is
	// encoded without it.
	handle func(*Cloud, *server, *http.Request, []byte) (any, *Reply)
}

func (c *Cloud) serveMetadata(call metadataCall, w http.ResponseWriter, r *http.Request) {
	id, reply := c.metadataReply(call, w, r)
	seen := Call{At: time.Now(), Method: r.Method, Path: r.URL.Path, Query: r.URL.RawQuery, Route: call.route, ID: id}
	if reply != nil {
		seen.Status = reply.Status
	}
	c.history.record(seen)
	c.log.DebugContext(r.Context(), "metadata", "method", r.Method, "path", r.URL.Path, "from", r.RemoteAddr, "status", seen.Status)
	if reply == nil {
		panic(http.ErrAbortHandler) // closes the connection: the guest has no way to the service
	}
	// A guest has few ports that it may ask from. The side that closes first keeps
	// the pair of ports busy for a minute, so that must not be the guest.
	w.Header().Set("Connection", "close")
	reply.write(w)
}

func (c *Cloud) metadataReply(call metadataCall, w http.ResponseWriter, r *http.Request) (id string, reply *Reply) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		return "", plainReply(http.StatusRequestEntityTooLarge, "request body: "+err.Error()+"\n")
	}
	from, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return "", plainReply(http.StatusMisdirectedRequest, fmt.Sprintf("source %q is no address and port\n", r.RemoteAddr))
	}
	id, value, reply := c.answerGuest(from, call, r, body)
	if value != nil {
		reply = c.inFormat(r, value)
	}
	return id, reply
}

// answerGuest answers one call, with nil for a guest that cannot call: one that
// is off, or that has no public address, for which the real cloud attaches a
// NoCloud disk instead.
func (c *Cloud) answerGuest(from netip.AddrPort, call metadataCall, r *http.Request, body []byte) (id string, value any, reply *Reply) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.guests.at(from.Addr().Unmap())
	switch {
	case s == nil:
		return "", nil, plainReply(http.StatusMisdirectedRequest, fmt.Sprintf("no server's guest is at %s: call from the metadata_source of GET /debug/servers, or map the address with POST /debug/guests\n", from.Addr()))
	case !s.calls():
		return s.common().id, nil, nil
	case c.busyMeta != 0:
		c.busyMeta -= min(max(c.busyMeta, 0), 1)
		return s.common().id, nil, &Reply{Status: http.StatusTooManyRequests}
	case call.privileged && from.Port() >= privilegedPorts:
		return s.common().id, nil, plainReply(http.StatusForbidden, "") // the rule is documented, its answer is not recorded
	}
	switch one := s.(type) {
	case *server:
		value, reply = call.handle(c, one, r, body)
	case *metalServer:
		value, reply = c.answerMetal(one, call.route, r)
	}
	return s.common().id, value, reply
}

// calls implements tenant.
func (s *server) calls() bool {
	off := s.state == StateStopped || s.state == StateStoppedInPlace || s.state == StateLocked
	return !off && len(s.addresses()) > 0
}

func plainReply(status int, text string) *Reply {
	return &Reply{Status: status, ContentType: plainText, Body: text}
}

// inFormat answers as JSON for ?format=json and as shell variables otherwise.
func (c *Cloud) inFormat(r *http.Request, v any) *Reply {
	text, err := encode(v, false)
	if err == nil && r.URL.Query().Get("format") == "json" {
		return jsonReply(http.StatusOK, string(text))
	}
	if err == nil {
		text, err = shellVariables(text)
	}
	if err != nil {
		c.log.Error("cannot encode metadata", "error", err)
		return plainReply(http.StatusInternalServerError, "")
	}
	return plainReply(http.StatusOK, string(text))
}

func (c *Cloud) guestConf(s *server, _ *http.Request, _ []byte) (any, *Reply) {
	return c.confView(s), nil
}

func (c *Cloud) guestUserDataList(s *server, _ *http.Request, _ []byte) (any, *Reply) {
	return struct {
		UserData []string `json:"user_data"`
	}{nonNil(slices.Sorted(maps.Keys(s.userData)))}, nil
}

func (c *Cloud) guestUserData(s *server, r *http.Request, _ []byte) (any, *Reply) {
	data, found := s.userData[r.PathValue("key")]
	if !found {
		return nil, plainReply(http.StatusNotFound, "")
	}
	return nil, plainReply(http.StatusOK, string(data))
}

func (c *Cloud) guestSetUserData(s *server, r *http.Request, body []byte) (any, *Reply) {
	s.userData[r.PathValue("key")] = bytes.Clone(body)
	return nil, &Reply{Status: http.StatusNoContent}
}

func (c *Cloud) guestDeleteUserData(s *server, r *http.Request, _ []byte) (any, *Reply) {
	if _, found := s.userData[r.PathValue("key")]; !found {
		return nil, plainReply(http.StatusNotFound, "")
	}
	delete(s.userData, r.PathValue("key"))
	return nil, &Reply{Status: http.StatusNoContent}
}

// guestVendorData is not set, which a guest learns as a 404.
func (c *Cloud) guestVendorData(*server, *http.Request, []byte) (any, *Reply) {
	return nil, plainReply(http.StatusNotFound, "")
}
