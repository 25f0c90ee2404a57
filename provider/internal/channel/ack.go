package channel

import (
	"encoding/base64"
	"errors"
	"mime"
	"net/http"
	"os"
	"time"

	"bigfleet-providers/provider/internal/telemetry"
	"bigfleet-providers/shared/command"
)

// serveAck takes a host's report on its command and answers once the outcome is
// on record.
func (s *Server) serveAck(w http.ResponseWriter, r *request) {
	if r.Method != http.MethodPost {
		s.refuseMethod(w, http.MethodPost)
		return
	}
	ack, status, err := readAck(r)
	if err != nil {
		s.metrics.acks.WithLabelValues(resultInvalid).Inc()
		s.refuse(w, status, err.Error())
		return
	}
	o, first := s.accept(r, ack)
	switch {
	case o != nil:
		if first {
			s.log.InfoContext(r.Context(), "a host reported on its command", append(logKeys(r.machine, o), telemetry.KeyOutcome, outcome(ack.OK), telemetry.KeyDuration, ack.Finished.Sub(ack.Started))...)
		}
		s.awaitRecord(w, r, o, first)
	case s.isOver(r):
		s.refuseFormer(w, r)
	case s.settled(r.machine, ack.CommandID):
		s.ackSettled(w, resultRepeated)
	default:
		s.metrics.acks.WithLabelValues(resultConflict).Inc()
		s.refuse(w, http.StatusConflict, "command_id: not this machine's command; it was replaced, has ended, or never existed")
	}
}

// readAck reads the body of a report, or says with which status to refuse it.
func readAck(r *request) (*command.Ack, int, error) {
	if err := checkQuery(r, command.ParamMachineID); err != nil {
		return nil, http.StatusBadRequest, err
	}
	if err := checkMediaType(r); err != nil {
		return nil, http.StatusUnsupportedMediaType, err
	}
	if r.ContentLength < 0 {
		return nil, http.StatusLengthRequired, errors.New("content-length: missing; the length of the body must be known from the start")
	}
	if r.ContentLength > command.MaxAckBytes {
		return nil, http.StatusRequestEntityTooLarge, command.ErrTooLarge
	}
	ack, err := command.DecodeAck(r.Body)
	var tooLarge *http.MaxBytesError
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, http.StatusRequestTimeout, errors.New("the body took too long to arrive")
	case errors.Is(err, command.ErrTooLarge), errors.As(err, &tooLarge):
		return nil, http.StatusRequestEntityTooLarge, command.ErrTooLarge
	case err != nil:
		return nil, http.StatusBadRequest, err
	}
	return ack, 0, nil
}

func checkMediaType(r *request) error {
	if r.Header.Get("Content-Encoding") != "" {
		return errors.New("content-encoding: send the body as it is")
	}
	values := r.Header.Values("Content-Type")
	if len(values) != 1 {
		return errors.New("content-type: want " + command.MediaType)
	}
	media, params, err := mime.ParseMediaType(values[0])
	if charset, has := params["charset"]; err != nil || media != command.MediaType || len(params) > 1 || (len(params) == 1 && !has) || (has && charset != "utf-8") {
		return errors.New("content-type: want " + command.MediaType)
	}
	return nil
}

// accept finds the command that the report is about, nil when it is neither
// pending nor the last one that was reported on. The first report goes to the
// waiting Deliver.
func (s *Server) accept(r *request, ack *command.Ack) (o *offer, first bool) {
	now := sighting(r)
	s.mu.Lock()
	b := s.boxOf(r)
	if b == nil { // its life ended since the request was admitted
		s.mu.Unlock()
		return nil, false
	}
	news := s.sight(b, now, r.previous)
	switch {
	case b.offered != nil && b.offered.id == ack.CommandID:
		o, first = s.settle(b, ack.OK, s.clean(r, b.offered, ack.Error), ack.Started, ack.Finished), true
	case b.reported != nil && b.reported.id == ack.CommandID:
		o = b.reported
	}
	s.mu.Unlock()
	s.tell(r, now, news)
	return o, first
}

// clean cuts the secrets of the machine out of the host's words.
func (s *Server) clean(r *request, o *offer, words string) string {
	secrets := s.tokens(r)
	if len(o.blob) <= command.MaxErrorBytes { // a longer one cannot be in there
		secrets = append(secrets, string(o.blob), base64.StdEncoding.EncodeToString(o.blob))
	}
	return redact(words, secrets...)
}

// awaitRecord answers when the outcome is on record, or asks to repeat the
// report when it is not in time.
func (s *Server) awaitRecord(w http.ResponseWriter, r *request, o *offer, first bool) {
	timer := time.NewTimer(s.limits.ConfirmTimeout)
	defer timer.Stop()
	select {
	case <-o.recorded:
	case <-timer.C:
		s.ackUnconfirmed(w)
		return
	case <-r.Context().Done():
		// Should the host be there after all, silence would be a 200.
		s.ackUnconfirmed(w)
		return
	}
	switch {
	case o.err != nil:
		if first {
			s.log.ErrorContext(r.Context(), "a host's report could not be recorded; the host repeats it", append(logKeys(r.machine, o), telemetry.KeyError, o.err.Error())...)
		}
		s.ackUnconfirmed(w)
	case first:
		s.ackSettled(w, resultSettled)
	default:
		s.ackSettled(w, resultRepeated)
	}
}

func (s *Server) ackSettled(w http.ResponseWriter, result string) {
	s.metrics.acks.WithLabelValues(result).Inc()
	s.answer(w, http.StatusOK, []byte("{}"))
}

func (s *Server) ackUnconfirmed(w http.ResponseWriter) {
	s.metrics.acks.WithLabelValues(resultUnconfirmed).Inc()
	s.retryLater(w, "the outcome could not be recorded yet; send the same report again")
}

func outcome(ok bool) string {
	if ok {
		return outcomeOK
	}
	return outcomeFailed
}
