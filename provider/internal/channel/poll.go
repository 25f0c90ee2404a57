package channel

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"bigfleet-providers/provider/internal/telemetry"
	"bigfleet-providers/shared/command"
)

// Limits of what an agent says about itself.
const (
	maxVersionBytes = 64
	maxKinds        = 16
	maxKindBytes    = 32
	maxBootBytes    = 128
)

// waitSpread is the part of a long poll's wait that is taken off at random, so
// that polls that began together do not end together.
const waitSpread = 0.2

// serveCommand answers a poll with the machine's command, at once or when it
// comes.
func (s *Server) serveCommand(w http.ResponseWriter, r *request) {
	if r.Method != http.MethodGet {
		s.refuseMethod(w, http.MethodGet)
		return
	}
	wait, err := s.checkPoll(r)
	if err != nil {
		s.metrics.polls.WithLabelValues(resultInvalid).Inc()
		s.refuse(w, http.StatusBadRequest, err.Error())
		return
	}
	if s.isReleased() {
		s.pollReleased(w)
		return
	}
	h, parked := s.take(r, wait > 0)
	if parked == nil {
		reason := resultEmpty
		if r.Context().Err() != nil {
			reason = resultHangup
		}
		s.finishPoll(w, r, h, reason)
		return
	}
	if s.hold(w, r, parked, wait) {
		return
	}
	s.metrics.parked.Inc()
	defer s.metrics.parked.Dec()
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case h, woken := <-parked.wake:
		if !woken {
			s.finishPoll(w, r, nil, resultTakenOver)
			return
		}
		s.finishPoll(w, r, &h, "")
	case <-timer.C:
		h, _ := s.unpark(r.machine, parked, false)
		s.finishPoll(w, r, h, resultEmpty)
	case <-s.released:
		if h, _ := s.unpark(r.machine, parked, false); h != nil {
			s.finishPoll(w, r, h, "")
			return
		}
		s.pollReleased(w)
	case <-r.Context().Done():
		s.unpark(r.machine, parked, true)
		s.metrics.polls.WithLabelValues(resultHangup).Inc()
		s.retryLater(w, "the connection ended") // silence would be a 200
	}
}

// take records the sighting and returns the pending command, or parks the poll
// when there is none.
func (s *Server) take(r *request, park bool) (h *handed, p *parkedPoll) {
	now := sighting(r)
	s.mu.Lock()
	b := s.boxOf(r)
	if b == nil { // its life ended since the request was admitted
		s.mu.Unlock()
		return nil, nil
	}
	news := s.sight(b, now, r.previous)
	have := r.Header.Get(command.HeaderHave)
	if r.Context().Err() != nil || have != "" && b.reported != nil && b.reported.id == have {
		// The host gave this poll up, to report, and it was overtaken by what the
		// host sent since. The poll that is parked is the one that it waits on.
		s.mu.Unlock()
		s.tell(r, now, news)
		return nil, nil
	}
	if b.offered != nil && !knows(now, b.offered.kind) {
		s.refuseUnknownKind(b)
	}
	// A host that works on the command already waits for another one: it must not
	// be handed the blob again and again.
	fresh := b.offered != nil && b.offered.id != have
	denied := fresh && !b.offered.mayTake(r.host)
	switch {
	case fresh && !denied:
		handing := s.hand(b.offered, r.host)
		h = &handing
	case park:
		b.wakeParked(nil) // most likely a connection that died without our notice
		p = &parkedPoll{host: r.host, wake: make(chan handed, 1)}
		b.parked = p
	}
	s.mu.Unlock()
	s.tell(r, now, news)
	if denied {
		s.log.WarnContext(r.Context(), "a command is kept from a host that is not the one which took it first; it ends at its deadline, or with a new one",
			telemetry.KeyMachine, r.machine, telemetry.KeyHost, shorten(r.host.host), telemetry.KeyRemote, r.RemoteAddr)
	}
	return h, p
}

// unpark ends the parking of a poll, whose host may have hung up. It returns the
// command that reached it meanwhile, if any, and whether it was still parked.
func (s *Server) unpark(machineID string, p *parkedPoll, gone bool) (h *handed, parked bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if b := s.mailboxes[machineID]; b != nil && b.parked == p {
		b.parked, b.hungUp = nil, gone
		return nil, true
	}
	if h, woken := <-p.wake; woken { // whoever took it out has sent or closed already
		return &h, false
	}
	return nil, false
}

// finishPoll answers with the command, or without one for the given reason; a host
// whose machine's life ended while it waited is refused.
func (s *Server) finishPoll(w http.ResponseWriter, r *request, h *handed, reason string) {
	if h == nil && s.isOver(r) {
		s.refuseFormer(w, r)
		return
	}
	if h == nil {
		s.metrics.polls.WithLabelValues(reason).Inc()
		s.answer(w, http.StatusNoContent, nil)
		return
	}
	s.metrics.polls.WithLabelValues(resultCommand).Inc()
	s.answer(w, http.StatusOK, h.body)
	if h.first {
		s.log.InfoContext(r.Context(), "gave a host its command", logKeys(r.machine, h.offer)...)
	}
}

func (s *Server) pollReleased(w http.ResponseWriter) {
	s.metrics.polls.WithLabelValues(resultReleased).Inc()
	s.retryLater(w, "the provider is stopping; poll again")
}

func (s *Server) isReleased() bool {
	select {
	case <-s.released:
		return true
	default:
		return false
	}
}

// tell logs what is worth knowing about a sighting.
func (s *Server) tell(r *request, now Sighting, n news) {
	if n.first {
		s.log.DebugContext(r.Context(), "heard from a host for the first time in the life of this process",
			telemetry.KeyMachine, r.machine, telemetry.KeyVersion, now.Version, telemetry.KeyRemote, r.RemoteAddr)
	}
	if n.renewed {
		s.log.InfoContext(r.Context(), "a host uses a token of the present bootstrap secret now", telemetry.KeyMachine, r.machine)
	}
}

// sighting reads what the agent says about itself. Nothing is refused for it,
// but nothing over its limit is kept.
func sighting(r *request) Sighting {
	now := Sighting{At: time.Now(), Version: bounded(r.Header, command.HeaderVersion, maxVersionBytes), Boot: bounded(r.Header, command.HeaderBoot, maxBootBytes)}
	for kind := range strings.SplitSeq(bounded(r.Header, command.HeaderKinds, maxKinds*maxKindBytes), ",") {
		if kind = strings.TrimSpace(kind); kind != "" && len(now.Kinds) < maxKinds {
			now.Kinds = append(now.Kinds, kind)
		}
	}
	return now
}

func bounded(h http.Header, header string, limit int) string {
	v := h.Get(header)
	if len(v) > limit {
		return ""
	}
	return v
}

// checkPoll judges the request and returns how long it may be parked, already
// cut and spread.
func (s *Server) checkPoll(r *request) (time.Duration, error) {
	if err := checkQuery(r, command.ParamMachineID, command.ParamWait); err != nil {
		return 0, err
	}
	if r.ContentLength != 0 {
		return 0, errors.New("a poll has no body")
	}
	if !r.query.Has(command.ParamWait) {
		return 0, nil
	}
	seconds, err := strconv.ParseUint(r.query.Get(command.ParamWait), 10, 31)
	if err != nil {
		return 0, fmt.Errorf("%s: want whole seconds, at most %d of which are granted", command.ParamWait, int(command.MaxWait.Seconds()))
	}
	wait := min(time.Duration(seconds)*time.Second, command.MaxWait)
	return wait - time.Duration(float64(wait)*waitSpread*rand.Float64()), nil
}

// checkQuery refuses a query that could not be read, parameters beside the
// given ones, and repeated ones.
func checkQuery(r *request, params ...string) error {
	if r.queryErr != nil {
		return errors.New("the query is malformed")
	}
	for name, values := range r.query {
		if !slices.Contains(params, name) {
			return fmt.Errorf("the query has a parameter that is not one of %s", strings.Join(params, ", "))
		}
		if len(values) != 1 {
			return fmt.Errorf("%s: given %d times, want once", name, len(values))
		}
	}
	return nil
}

func (s *Server) refuseMethod(w http.ResponseWriter, allowed string) {
	w.Header().Set("Allow", allowed)
	s.refuse(w, http.StatusMethodNotAllowed, "use "+allowed)
}
