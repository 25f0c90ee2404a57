package agent

import (
	"context"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"time"

	"bigfleet-providers/agent/internal/hook"
	"bigfleet-providers/agent/internal/journal"
	"bigfleet-providers/agent/internal/poll"
	"bigfleet-providers/shared/command"
)

// Verb is what a hook is asked to do.
type Verb = hook.Verb

// The verbs of a hook.
const (
	Configure = hook.Configure
	Ready     = hook.Ready
	Drain     = hook.Drain
)

// Call is one run of a hook: verb, command and attempt.
type Call = hook.Call

// Hook carries commands out. Run returns nil when the verb succeeded; the text
// of its error is sent to the provider and must hold no secret. When ctx ends
// it stops what it started and returns soon.
//
// An agent calls Run for one command at a time.
type Hook interface {
	Run(ctx context.Context, call Call) error
}

// HookFunc is a Hook in the same process.
type HookFunc func(ctx context.Context, call Call) error

// Run calls f.
func (f HookFunc) Run(ctx context.Context, call Call) error { return f(ctx, call) }

// Resumer is implemented by a Hook whose work outlives the agent. Resume waits
// for a run that an earlier agent in the same boot of the host began, and
// returns its result, or ErrLost. When ctx ends with the cause ErrStopping,
// both Run and Resume leave the work running and return that cause.
//
// Attempts returns the last attempt of the call's verb and command that the hook
// knows to have been begun, 0 for none. It is asked about commands that the
// journal does not know.
type Resumer interface {
	Resume(ctx context.Context, call Call) error
	Attempts(call Call) (int, error)
}

// Errors between an agent and its hook.
var (
	ErrLost       = hook.ErrLost
	ErrKilled     = hook.ErrKilled
	ErrNotStarted = hook.ErrNotStarted
	ErrStopping   = hook.ErrStopping
	ErrDeadline   = hook.ErrDeadline
)

// Record is what a journal holds about one command.
type Record = journal.Record

// Journal remembers commands across restarts. All methods may be called from
// many goroutines; records are copies. A journal keeps at least the last
// command and never a blob.
type Journal interface {
	// Get returns the record of a command.
	Get(commandID string) (Record, bool)
	// Records returns all records, oldest first.
	Records() []Record
	// Put adds or replaces a record by its command id. When it returns nil the
	// record will be there after a crash; when it fails nothing has changed.
	Put(Record) error
}

// NewMemoryJournal returns a journal that lives as long as the process. Agents
// that are meant to be restarts of one another share one.
func NewMemoryJournal() Journal { return &journal.Memory{} }

// NewHTTPClient returns a client that trusts the certificates in caPEM and
// nothing else, speaks TLS 1.3 only and honours HTTPS_PROXY. Agents of one
// provider may share it.
func NewHTTPClient(caPEM string) (*http.Client, error) { return poll.NewHTTPClient(caPEM) }

// Notifier tells a service manager how the agent is doing.
type Notifier interface {
	Ready()             // up; called before the first contact
	Status(text string) // one line on what it does
	Watchdog()          // the main loop turns
	Stopping()          // going down
}

// Options are what a caller may choose besides the configuration. The zero
// value is right for a host.
type Options struct {
	Log        *slog.Logger // nil: slog.Default
	HTTPClient *http.Client // nil: NewHTTPClient of the configuration
	Hook       Hook         // nil: the host's hook, in processes of its own
	Journal    Journal      // nil: a file in the state directory
	Notifier   Notifier     // nil: none
	StatusFile string       // where the Status is kept as JSON; "": nowhere

	// Program is the path of bigfleet-agent, which supervises hooks that run as
	// transient units and which hooks call; "": hooks run as processes only.
	Program string

	Version string // shown to the provider
	// BootID tells this boot of this host from another; empty: the kernel's.
	// An agent with the same id may resume what its predecessor began.
	BootID string

	// HostID is what the host proves itself by; empty: the one in the state
	// directory, or none with a Journal of one's own. A secret.
	HostID string

	// Wait is how long a poll is parked at the provider; 0: 50 s.
	Wait time.Duration
	// Watchdog is the service manager's limit for a turn of the main loop, 0:
	// none. Waits are kept so short that a turn takes less than half of it, which
	// works from a minute up.
	Watchdog time.Duration
	// BackoffMin and BackoffMax bound the pause after a failure, which grows and is
	// jittered; 0: 1 s and 60 s. After contact was lost the first is any time up to
	// ten times BackoffMin, so that a fleet does not come back at once.
	BackoffMin, BackoffMax time.Duration
	// ReadyPause is the pause between two readiness checks; 0: 3 s.
	ReadyPause time.Duration
	// BusyPause is the pause between polls while a hook runs, with a provider
	// that answers such a poll at once; 0: 5 s.
	BusyPause time.Duration
}

func (o *Options) setDefaults() {
	if o.Log == nil {
		o.Log = slog.Default()
	}
	if o.Notifier == nil {
		o.Notifier = silent{}
	}
	if o.Version == "" {
		o.Version = "unknown"
	}
	if o.BootID == "" {
		// Without one (no /proc) no run is ever resumed, which is safe.
		if id, err := os.ReadFile("/proc/sys/kernel/random/boot_id"); err == nil {
			o.BootID = strings.TrimSpace(string(id))
		}
	}
	for _, d := range []struct {
		value *time.Duration
		other time.Duration
	}{
		{&o.Wait, 50 * time.Second},
		{&o.BackoffMin, time.Second},
		{&o.BackoffMax, time.Minute},
		{&o.ReadyPause, 3 * time.Second},
		{&o.BusyPause, 5 * time.Second},
	} {
		if *d.value <= 0 {
			*d.value = d.other
		}
	}
	o.Wait = min(o.Wait, command.MaxWait)
	o.BackoffMax = max(o.BackoffMax, o.BackoffMin)
	if o.Watchdog > 0 {
		o.Wait = min(o.Wait, max(time.Second, o.Watchdog/2-poll.Slack))
	}
}

type silent struct{}

func (silent) Ready()        {}
func (silent) Status(string) {}
func (silent) Watchdog()     {}
func (silent) Stopping()     {}
