package channel

import (
	"encoding/json"
	"errors"
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"

	"bigfleet-providers/provider/internal/telemetry"
	"bigfleet-providers/shared/command"
)

// Retry hints are spread, so that a fleet does not come back in one moment.
const (
	retryAfterMin    = 1
	retryAfterSpread = 10
)

// refuse answers with a status and a reason for the operator who reads the
// agent's log. The reason never depends on more than the sender knows anyway.
func (s *Server) refuse(w http.ResponseWriter, status int, reason string) {
	body, err := json.Marshal(struct {
		Error string `json:"error"`
	}{reason})
	if err != nil {
		s.log.Error("could not encode a refusal", telemetry.KeyError, err.Error()) // a string always encodes
		body = []byte("{}")
	}
	s.answer(w, status, body)
}

// retryLater refuses with 503 and a hint when to come back.
func (s *Server) retryLater(w http.ResponseWriter, reason string) {
	after := retryAfterMin + rand.IntN(retryAfterSpread)
	w.Header().Set("Retry-After", strconv.Itoa(after))
	s.refuse(w, http.StatusServiceUnavailable, reason)
}

// answer sends a JSON body, or none with 204. A host that does not read it in
// time is cut off.
func (s *Server) answer(w http.ResponseWriter, status int, body []byte) {
	s.extendWrite(w)
	h := w.Header()
	h.Set("Cache-Control", "no-store")
	if status == http.StatusNoContent {
		w.WriteHeader(status)
		return
	}
	h.Set("Content-Type", command.MediaType)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	_, _ = w.Write(body) // the host may have gone; it will ask again
}

// extendWrite gives the host a new span of time to read. It is called before
// every write: on HTTP/1 a deadline outlives its request.
func (s *Server) extendWrite(w http.ResponseWriter) {
	err := http.NewResponseController(w).SetWriteDeadline(time.Now().Add(s.limits.WriteTimeout))
	if err != nil && !errors.Is(err, http.ErrNotSupported) {
		s.log.Debug("could not set a write deadline", telemetry.KeyError, err.Error())
	}
}
