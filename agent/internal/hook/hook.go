// Package hook runs the host's hook: the program that joins a cluster, says
// whether the node is ready, and leaves the cluster again.
//
// # What is promised
//
// A hook of one attempt is started at most once. While the host stays up it
// outlives the agent: an agent that is restarted, upgraded or killed neither
// ends nor repeats it, and the next agent waits for it and takes its result.
// Only when that result cannot be known, because the host rebooted or somebody
// killed the hook's supervising shell, does the agent begin another attempt
// (BIGFLEET_ATTEMPT=2 and up), after whatever is left of the earlier one is
// dead. Hooks must therefore be re-runnable.
//
// # What a hook gets
//
// One argument, the verb; the BIGFLEET_* variables, PATH, HOME, LANG and the
// proxy variables, and nothing else of the agent's environment. Configure has
// the blob on its standard input and in the file BIGFLEET_BLOB_FILE. Standard
// output is discarded; the last lines of standard error explain a failure to the
// operator, less what the blob and the token hold.
//
// When a hook fails, runs out of time or is superseded, its whole process group
// is killed. What a successful hook leaves in the background lives on.
//
// # How
//
// Each run has a directory on tmpfs:
//
//	<runtime dir>/runs/<short id>-<verb>-<attempt>/
//	    command  the command's id
//	    pid      made by the supervising shell with O_EXCL: whoever makes it owns the run
//	    status   the hook's exit status, renamed into place when it ended
//	    stderr   the hook's standard error
//	    blob     the bootstrap blob, 0600, gone when the hook ended
package hook

import (
	"errors"

	"bigfleet-providers/shared/command"
)

// Verb is the hook's one argument.
type Verb string

// The verbs.
const (
	Configure Verb = "configure" // join the cluster with the blob
	Ready     Verb = "ready"     // exit 0 when the node is Ready in its cluster
	Drain     Verb = "drain"     // leave the cluster and wipe what it left
)

// Call is one run of a hook.
type Call struct {
	Verb Verb
	// Command is what the run is for. It has its blob for Configure only.
	Command command.Command
	// Attempt counts the runs of Verb for this command, from 1. Ready keeps the
	// attempt of the Configure before it.
	Attempt int
}

var (
	// ErrLost says that the result of an earlier run cannot be known. Nothing
	// of that run is alive.
	ErrLost = errors.New("the outcome of the earlier run is not known")
	// ErrStopping is the context's cause when the agent ends. A hook that can
	// be resumed is left running then; with every other cause all that it
	// started is killed.
	ErrStopping = errors.New("the agent is stopping")
)
