package channel

import (
	"errors"
	"net/http"
	"net/url"
	"runtime/debug"
	"strings"
	"time"

	"bigfleet-providers/provider/internal/telemetry"
	"bigfleet-providers/shared/command"
)

// maxTokenBytes bounds a presented token: 32 bytes of HMAC in base64 need 44.
const maxTokenBytes = 128

// request is a request whose sender proved to be the machine's host.
type request struct {
	*http.Request
	machine string
	life    string // that its token is of
	query   url.Values
	host    identity
	// locked says that the machine's token is tied to this host, previous that
	// the token is of the secret before, plain that it is the same in all lives.
	locked, previous, plain bool
	// queryErr is the query's fault, which is told to authorised senders only.
	queryErr error
}

// authorise lets next see only what a host of one of our machines sent. An
// unknown machine, a wrong token and a malformed request cost the same work and
// get the same answer, so that ids cannot be found by trying.
func (s *Server) authorise(next func(http.ResponseWriter, *request)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, hr *http.Request) {
		w.Header().Set("Cache-Control", "no-store")
		s.limitBody(w, hr)
		query, queryErr := url.ParseQuery(hr.URL.RawQuery)
		r := &request{Request: hr, machine: query.Get(command.ParamMachineID), query: query, queryErr: queryErr, host: identify(hr)}

		presented, formed := bearer(hr.Header)
		if len(r.machine) == 0 || len(r.machine) > command.MaxIDBytes {
			// Verified all the same, for the sake of equal work; no machine has
			// an empty id.
			r.machine, formed = "", false
		}
		life, known := s.life(r.machine)
		if verified := s.verify(r, life, presented); !known || !verified || !formed {
			s.unauthorised(w, hr, r.machine, formed, known, life)
			return
		}
		if s.isStranger(r) {
			s.refuseStranger(w, r) //nolint:contextcheck // it is in the request
			return
		}
		switch s.admit(r) {
		case over:
			s.refuseFormer(w, r)
			return
		case tooMany:
			s.throttle(w)
			return
		case passes:
		}
		prove(hr.Context())
		next(w, r)
	})
}

func (s *Server) throttle(w http.ResponseWriter) {
	s.metrics.throttled.Inc()
	w.Header().Set("Retry-After", "1")
	s.refuse(w, http.StatusTooManyRequests, "this machine sends more requests than its share; is its agent in a loop, or was its host cloned?")
}

// bearer takes the token out of the Authorization header.
func bearer(h http.Header) (presented string, formed bool) {
	values := h.Values("Authorization")
	if len(values) != 1 {
		return "", false
	}
	scheme, presented, found := strings.Cut(values[0], " ")
	if !found || !strings.EqualFold(scheme, "Bearer") || len(presented) > maxTokenBytes {
		return "", false
	}
	return presented, true
}

func (s *Server) unauthorised(w http.ResponseWriter, r *http.Request, machineID string, formed, known bool, life Life) {
	reason := reasonBadToken
	switch {
	case !formed:
		reason = reasonMalformed
	case !known:
		reason = reasonUnknown
	case life.ID == "":
		reason = reasonNoHost
	}
	s.metrics.authFailures.WithLabelValues(reason).Inc()
	if reason == reasonNoHost {
		// That of a machine that was just deleted, mostly: it ends soon.
		if n, ok := s.leftOver.due(); ok {
			s.log.InfoContext(r.Context(), "refused a request of a host whose machine has none: it was deleted, or its Create has not begun", refusal(r, reason, machineID, n)...)
		}
	} else if n, ok := s.refusals.due(); ok {
		s.log.WarnContext(r.Context(), "refused a request on the bootstrap channel; with bad_token check that the bootstrap secret is the one the machine was created under, and that the host is not one of an earlier life of the machine", refusal(r, reason, machineID, n)...)
	}
	w.Header().Set("WWW-Authenticate", "Bearer")
	w.Header().Set("Connection", "close") // its place is for those who have a token
	s.refuse(w, http.StatusUnauthorized, "the bearer token is not that of a machine of this provider under the given "+command.ParamMachineID)
}

// refusal are the attributes of a line that stands for n refusals.
func refusal(r *http.Request, reason, machineID string, n int) []any {
	return []any{telemetry.KeyReason, reason, telemetry.KeyMachine, machineID, telemetry.KeyRemote, r.RemoteAddr, telemetry.KeyCount, n}
}

// recoverPanics keeps a fault in one request from being logged by net/http with
// whatever the panic holds, and counts it.
func (s *Server) recoverPanics(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer s.endPanic(r)
		next.ServeHTTP(w, r)
	})
}

func (s *Server) endPanic(r *http.Request) {
	v := recover()
	if v == nil {
		return
	}
	if err, ok := v.(error); !ok || !errors.Is(err, http.ErrAbortHandler) {
		s.metrics.panics.Inc()
		// The value may quote a request; the stack holds addresses only.
		s.log.ErrorContext(r.Context(), "a request on the bootstrap channel met a fault in the provider",
			telemetry.KeyPath, r.URL.Path, telemetry.KeyStack, string(debug.Stack()))
	}
	panic(http.ErrAbortHandler)
}

// limitBody starts the clock on a request's body. A request without one may
// stay for as long as its poll is parked.
func (s *Server) limitBody(w http.ResponseWriter, r *http.Request) {
	if r.ContentLength == 0 {
		return
	}
	if r.ContentLength < 0 || r.ContentLength > command.MaxAckBytes {
		// No agent sends that. Where one request ends and another begins is not
		// left to what follows.
		w.Header().Set("Connection", "close")
	}
	err := http.NewResponseController(w).SetReadDeadline(time.Now().Add(s.limits.BodyTimeout))
	if err != nil && !errors.Is(err, http.ErrNotSupported) {
		s.log.DebugContext(r.Context(), "could not set a read deadline", telemetry.KeyError, err.Error())
	}
	r.Body = http.MaxBytesReader(w, r.Body, command.MaxAckBytes)
}
