package channel

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"slices"
	"strings"
	"time"

	"golang.org/x/time/rate"

	"bigfleet-providers/provider/internal/telemetry"
	"bigfleet-providers/shared/command"
)

// Locks remember which host may use a machine's token. They outlive the process:
// else whoever holds a stolen token would only have to be the first after a
// restart.
type Locks interface {
	// LockedTo returns the digest of the host that the machine's token is tied
	// to, "" when it is tied to none. It is called on every request and must be
	// cheap.
	LockedTo(machineID string) string
	// Lock ties the token to the host unless it is tied already, and returns whom
	// it is tied to then: "" when the machine has no server yet, or is not in the
	// life any more. It is durable when it returns without an error.
	Lock(ctx context.Context, machineID, life, digest string) (holder string, err error)
}

// noLocks tie nothing.
type noLocks struct{}

func (noLocks) LockedTo(string) string                                       { return "" }
func (noLocks) Lock(context.Context, string, string, string) (string, error) { return "", nil }

// maxHostBytes bounds what a host states as its id.
const maxHostBytes = 128

// shownDigest is how much of a digest people are shown.
const shownDigest = 12

// digest condenses what a host states as its id, which nobody else may learn:
// who knows it and the token is the host. "" stays "".
func digest(hostID string) string {
	if hostID == "" {
		return ""
	}
	sum := sha256.Sum256([]byte(hostID))
	return hex.EncodeToString(sum[:16])
}

// identity is who a request's host says it is.
type identity struct {
	host string // the digest of its id; "" when the agent states none
	boot string // differs between two starts; "" when the agent does not say
}

func identify(r *http.Request) identity {
	return identity{host: digest(bounded(r.Header, command.HeaderHost, maxHostBytes)), boot: bounded(r.Header, command.HeaderBoot, maxBootBytes)}
}

// stranger is a second host that used a machine's token, as it was seen last.
type stranger struct {
	host, remote, version string
	first, last           time.Time
	count                 int
	limiter               *rate.Limiter // its own: it must not use up the machine's
	log                   thinner
}

// isStranger says whether the token is tied to another host than the request's.
// A package is not asked about: it holds no secret, and is fetched before there
// is an agent with an id.
func (s *Server) isStranger(r *request) bool {
	locked := s.locks.LockedTo(r.machine)
	return locked != "" && locked != r.host.host && !isPackagePath(r.URL.Path)
}

// screen ties the machine's token to the request's host if it is tied to none,
// and says whether the request comes from the machine's host. If not, it is
// answered.
func (s *Server) screen(w http.ResponseWriter, r *request) bool {
	switch locked := s.locks.LockedTo(r.machine); {
	case locked == r.host.host:
		r.locked = locked != ""
	case locked != "":
		s.refuseStranger(w, r)
		return false
	default:
		holder, err := s.locks.Lock(r.Context(), r.machine, r.life, r.host.host)
		if err != nil {
			if r.Context().Err() == nil { // else the host hung up
				s.log.ErrorContext(r.Context(), "a machine's token could not be tied to its host; the host tries again", telemetry.KeyMachine, r.machine, telemetry.KeyError, err.Error())
			}
			s.retryLater(w, "it could not be recorded which host this is; try again")
			return false
		}
		if holder != "" && holder != r.host.host { // another was faster
			s.refuseStranger(w, r)
			return false
		}
		r.locked = holder != ""
		if r.locked {
			s.log.InfoContext(r.Context(), "a machine's token is tied to its host", telemetry.KeyMachine, r.machine, telemetry.KeyHost, shorten(holder), telemetry.KeyRemote, r.RemoteAddr)
		}
	}
	return s.screenBoot(w, r)
}

func (s *Server) screenBoot(w http.ResponseWriter, r *request) bool {
	s.mu.Lock()
	verdict := admitted
	if b := s.boxOf(r); b != nil { // else its life ended since; next finds that too
		before := b.boots.current.id
		verdict = b.boots.judge(r.host.boot, time.Now(), b.parked != nil)
		if verdict == unproven || before != b.boots.current.id {
			// The host on the other end shows whether it is there by polling again.
			// One that was just found to be a second host waits no longer.
			b.wakeParked(nil)
		}
	}
	s.mu.Unlock()
	switch verdict {
	case admitted:
	case foreign:
		s.refuseStranger(w, r)
	case unproven:
		w.Header().Set("Retry-After", proofSeconds)
		s.refuse(w, http.StatusServiceUnavailable, "another boot of this host was connected a moment ago; come back when it is known to be over")
	}
	return verdict == admitted
}

// proofSeconds is proofTime as a Retry-After.
const proofSeconds = "10"

// refuseStranger answers a second host that uses a machine's token.
func (s *Server) refuseStranger(w http.ResponseWriter, r *request) {
	s.metrics.clones.Inc()
	version := bounded(r.Header, command.HeaderVersion, maxVersionBytes)
	now := time.Now()
	s.mu.Lock()
	b := s.boxOf(r)
	if b == nil {
		s.mu.Unlock()
		s.refuseFormer(w, r)
		return
	}
	if b.stranger == nil {
		b.stranger = &stranger{first: now, limiter: rate.NewLimiter(rate.Limit(s.limits.RequestsPerSecond), s.limits.RequestBurst)}
		s.metrics.contested.Inc()
	}
	st := b.stranger
	st.host, st.remote, st.version, st.last = r.host.host, r.RemoteAddr, version, now
	st.count++
	allowed := st.limiter.Allow()
	count, _ := st.log.due()
	s.mu.Unlock()
	if count > 0 {
		s.log.WarnContext(r.Context(), "refused a second host that uses a machine's token: a cloned image, a stolen token, or the host lost its state directory; see capacityctl host list",
			telemetry.KeyMachine, r.machine, telemetry.KeyHost, shorten(r.host.host), telemetry.KeyBoot, r.host.boot, telemetry.KeyRemote, r.RemoteAddr, telemetry.KeyVersion, version, telemetry.KeyCount, count)
	}
	if !allowed {
		s.throttle(w)
		return
	}
	s.refuse(w, http.StatusForbidden, "this machine's token is tied to another host; if this is the machine's host all the same (its state directory was lost, its system was installed anew), have it unlocked: capacityctl host unlock MACHINE")
}

func shorten(digest string) string { return digest[:min(len(digest), shownDigest)] }

// HostView is what is known of a machine's host in the life of this process.
type HostView struct {
	MachineID string    `json:"machine_id"`
	LastSeen  time.Time `json:"last_seen,omitzero"`
	Version   string    `json:"version,omitempty"`
	// LockedTo is the beginning of the digest of the host's id; "" while the
	// machine's token is tied to no host.
	LockedTo string `json:"locked_to,omitempty"`
	// PreviousSecret says that the host still uses a token of the previous
	// bootstrap secret.
	PreviousSecret bool `json:"previous_secret"`
	// Stranger is the second host that used the token last; nil if none did.
	Stranger *StrangerView `json:"stranger,omitempty"`
}

// StrangerView is a second host that used a machine's token.
type StrangerView struct {
	Host    string    `json:"host,omitempty"` // as HostView.LockedTo; "" when it stated no id
	Remote  string    `json:"remote"`
	Version string    `json:"version,omitempty"`
	First   time.Time `json:"first"`
	Last    time.Time `json:"last"`
	Count   int       `json:"count"` // its requests
}

// Hosts returns what is known of every host that was heard from, by machine id.
func (s *Server) Hosts() []HostView {
	s.mu.Lock()
	views := make([]HostView, 0, len(s.mailboxes))
	for id, b := range s.mailboxes {
		if b.sighting.At.IsZero() && b.stranger == nil {
			continue
		}
		v := HostView{MachineID: id, LastSeen: b.sighting.At, Version: b.sighting.Version, PreviousSecret: b.previous}
		if st := b.stranger; st != nil {
			v.Stranger = &StrangerView{Host: shorten(st.host), Remote: st.remote, Version: st.version, First: st.first, Last: st.last, Count: st.count}
		}
		views = append(views, v)
	}
	s.mu.Unlock()
	for i := range views {
		views[i].LockedTo = shorten(s.locks.LockedTo(views[i].MachineID))
	}
	slices.SortFunc(views, func(a, b HostView) int { return strings.Compare(a.MachineID, b.MachineID) })
	return views
}

// Unlocked forgets what second hosts did with the machine's token, after it was
// untied: the next host that comes is the machine's.
func (s *Server) Unlocked(machineID string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.present(machineID)
	if b == nil {
		return
	}
	b.boots = boots{}
	b.wakeParked(nil) // it may be of the host that is not to be trusted any more
	s.dropStranger(b)
}

// dropStranger is called with s.mu held.
func (s *Server) dropStranger(b *mailbox) {
	if b.stranger != nil {
		b.stranger = nil
		s.metrics.contested.Dec()
	}
}

// noteSecret keeps which bootstrap secret the machine's token is of. It is
// called with s.mu held.
func (s *Server) noteSecret(b *mailbox, previous bool) {
	switch {
	case previous && !b.previous:
		s.metrics.previous.Inc()
	case !previous && b.previous:
		s.metrics.previous.Dec()
	}
	b.previous = previous
}
