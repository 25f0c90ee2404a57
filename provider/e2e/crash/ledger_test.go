package crash

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"bigfleet-providers/agent"
	"bigfleet-providers/provider/internal/fakecloud"
)

// ledger stands for the hooks of all hosts and writes down what they did.
type ledger struct {
	mu     sync.Mutex
	done   map[string]string // what a command did, by its id; only what succeeded
	faults []error
	hold   atomic.Bool // hooks that are under way do not end
}

func newLedger() *ledger { return &ledger{done: map[string]string{}} }

// deed words what a command asks for.
func deed(verb agent.Verb, cluster, blob string) string {
	return fmt.Sprintf("%s %q with %q", verb, cluster, blob)
}

func (l *ledger) run(ctx context.Context, _ fakecloud.Guest, call agent.Call) error {
	if call.Verb == agent.Ready {
		return nil
	}
	// Long enough that a kill may find it at work.
	select {
	case <-time.After(10*time.Millisecond + rand.N(40*time.Millisecond)):
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	for l.hold.Load() {
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	cmd := call.Command
	l.mu.Lock()
	defer l.mu.Unlock()
	if before, twice := l.done[cmd.CommandID]; twice {
		l.faults = append(l.faults, fmt.Errorf("command %s was carried out again: %s", cmd.CommandID, before))
	}
	l.done[cmd.CommandID] = deed(call.Verb, cmd.ClusterID, string(cmd.Blob))
	return nil
}

// check compares what the hosts did for an operation with what was asked for.
func (l *ledger) check(operation string, verb agent.Verb, cluster, blob string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if got, want := l.done[operation], deed(verb, cluster, blob); got != want {
		return fmt.Errorf("operation %s: the host did %s, asked for was %s", operation, got, want)
	}
	return nil
}

// complaints returns what the hosts noticed.
func (l *ledger) complaints() []error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.faults
}
