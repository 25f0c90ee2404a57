// Package channel is the provider's side of the bootstrap channel: the HTTPS
// endpoints over which the agent on each host fetches its machine's command and
// reports the outcome. It is how a cluster's join material reaches a host of a
// cloud that has no call into its guests.
//
// Each machine has a mailbox with at most one command. Deliver puts a command
// there and wakes the host's parked poll at once; the command stays until the
// host reported on it, a newer one replaced it, or Deliver's context ended. A
// report goes to the waiting Deliver, and the host's request is answered only
// when the receiver confirmed that the outcome is durable; until then the host
// repeats it. Nothing here is written to disk: after a restart the lifecycle
// delivers again under the same command id, and the host's journal keeps it
// from acting twice.
//
// A bootstrap blob lives in the mailbox and in the answer that carries it, and
// nowhere else. It is dropped when the report comes in, so that a token stolen
// later cannot read it again.
package channel

import (
	"errors"
	"io/fs"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"bigfleet-providers/provider/internal/delivery"
	"bigfleet-providers/shared/command"
	"bigfleet-providers/shared/token"
)

var _ delivery.Delivery = (*Server)(nil)

// Options configure a Server.
type Options struct {
	// Secret is the key of every machine's token. Required.
	Secret token.Secret
	// Previous is the secret before, whose tokens are still accepted during a
	// rollout. A host that its machine's token is tied to is given its token of
	// Secret. The zero Secret accepts none.
	Previous token.Secret
	// Locks tie tokens to hosts; nil ties none.
	Locks Locks
	// Life returns the machine's present life, and whether the id is one of our
	// machines at all. Required. Called on every request, also on ones that nobody
	// authorised yet, and under the server's lock: it must be cheap.
	Life func(machineID string) (life Life, known bool)
	// Settled says whether the outcome of the command is on record already, so
	// that a host that never saw our answer may stop repeating its report.
	// Required.
	Settled func(machineID, commandID string) bool
	// Packages holds the agent packages for the first boot; nil serves none. A
	// directory belongs in an os.Root, so that a link cannot lead out of it.
	Packages fs.FS
	// Log is required.
	Log *slog.Logger
	// Metrics is where the metrics are registered; nil keeps them to ourselves.
	Metrics prometheus.Registerer
	// Limits may be zero.
	Limits Limits
}

// Limits bound what hosts can ask of us. A zero field takes its default.
type Limits struct {
	// RequestsPerSecond and RequestBurst bound the requests of one machine. A
	// delivered command brings allowance for the requests that it causes, so
	// that the limit is met by floods only. Defaults 5 and 10.
	RequestsPerSecond float64
	RequestBurst      int
	// ConfirmTimeout is how long a report may wait for the receiver's
	// confirmation before the host is told to repeat it. Default 20 s.
	ConfirmTimeout time.Duration
	// BodyTimeout is how long a host may take to send a body. Default 10 s.
	BodyTimeout time.Duration
	// WriteTimeout is how long a host may take to read an answer, or 32 KiB of
	// a package. Default 30 s.
	WriteTimeout time.Duration
	// Connections bounds the open connections of Serve; more wait to be
	// accepted. Default 20,000.
	Connections int
	// Unproven bounds those of them that have not carried an authorised request
	// yet. When all places are taken, the oldest is cut off after UnprovenTime.
	// Defaults 1,024 and 3 s.
	Unproven     int
	UnprovenTime time.Duration
	// ShutdownTimeout is how long Serve waits for requests in flight when it
	// is told to stop. Default 10 s.
	ShutdownTimeout time.Duration
}

func (l *Limits) setDefaults() {
	setDefault(&l.RequestsPerSecond, 5)
	setDefault(&l.RequestBurst, 10)
	setDefault(&l.ConfirmTimeout, 20*time.Second)
	setDefault(&l.BodyTimeout, 10*time.Second)
	setDefault(&l.WriteTimeout, 30*time.Second)
	setDefault(&l.Connections, 20_000)
	setDefault(&l.Unproven, 1_024)
	setDefault(&l.UnprovenTime, 3*time.Second)
	setDefault(&l.ShutdownTimeout, 10*time.Second)
}

func setDefault[T float64 | int | time.Duration](field *T, def T) {
	if *field <= 0 {
		*field = def
	}
}

// Server serves the bootstrap channel and implements delivery.Delivery. All
// methods may be called from many goroutines.
type Server struct {
	secret   token.Secret
	previous token.Secret // zero when there is none
	locks    Locks
	life     func(string) (Life, bool)
	settled  func(string, string) bool
	packages fs.FS
	log      *slog.Logger
	limits   Limits
	metrics  *metrics
	refusals thinner // anybody who reaches the port can cause them
	leftOver thinner // of those the ones for machines without a host

	released    chan struct{} // closed by Release
	releaseOnce sync.Once
	held        sync.WaitGroup // goroutines of hold

	mu        sync.Mutex // guards what follows and all that is in it; never held over I/O
	holding   map[*heldConn]struct{}
	mailboxes map[string]*mailbox
	roster    roster
}

// New returns a server of the channel, or every fault of the options.
func New(o Options) (*Server, error) {
	var errs []error
	if len(o.Secret.Bytes()) < token.MinSecretBytes {
		errs = append(errs, errors.New("channel: Secret is not set; make it with token.NewSecret"))
	}
	if o.Life == nil {
		errs = append(errs, errors.New("channel: Life is not set"))
	}
	if o.Settled == nil {
		errs = append(errs, errors.New("channel: Settled is not set"))
	}
	if o.Log == nil {
		errs = append(errs, errors.New("channel: Log is not set"))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	o.Limits.setDefaults()
	if o.Locks == nil {
		o.Locks = noLocks{}
	}
	s := &Server{
		secret:    o.Secret,
		previous:  o.Previous,
		locks:     o.Locks,
		life:      o.Life,
		settled:   o.Settled,
		packages:  o.Packages,
		log:       o.Log,
		limits:    o.Limits,
		metrics:   newMetrics(o.Metrics),
		released:  make(chan struct{}),
		holding:   map[*heldConn]struct{}{},
		mailboxes: map[string]*mailbox{},
		roster:    roster{versions: map[string]int{}},
	}
	if o.Metrics != nil {
		o.Metrics.MustRegister(agents{s})
	}
	return s, nil
}

// Release answers every parked poll with 503 and Retry-After, and later polls
// too, so that a shutdown does not wait for them. Reports are still taken, as
// the lifecycle may still record them. It may be called more than once.
func (s *Server) Release() {
	s.releaseOnce.Do(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		close(s.released)
		for _, b := range s.mailboxes {
			if b.parked != nil && b.parked.interrupt != nil {
				b.parked.interrupt()
			}
		}
	})
}

// Handler returns the endpoints. They expect to be served over TLS, which
// Serve sees to.
func (s *Server) Handler() http.Handler {
	return s.recoverPanics(s.authorise(s.route))
}

// route is reached by authorised requests only.
func (s *Server) route(w http.ResponseWriter, r *request) {
	if !isPackagePath(r.URL.Path) && !s.screen(w, r) {
		return
	}
	switch {
	case r.URL.Path == command.PathCommand:
		if r.previous && r.locked {
			// Only to a host that proved to be the machine's by more than a token of
			// a secret that may be known to others.
			w.Header().Set(command.HeaderToken, s.renewed(r))
		}
		s.serveCommand(w, r)
	case r.URL.Path == command.PathAck:
		s.serveAck(w, r)
	case isPackagePath(r.URL.Path):
		s.servePackage(w, r)
	default:
		s.refuse(w, http.StatusNotFound, "no such path; the channel has "+command.PathCommand+", "+command.PathAck+" and "+command.PathPackages+"/FILE")
	}
}
