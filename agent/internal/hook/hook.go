// Package hook runs the host's hook: the program that joins a cluster, says
// whether the node is ready, and leaves the cluster again.
//
// # What is promised
//
// A hook of one attempt is started at most once. While the host stays up it
// outlives the agent: an agent that is restarted, upgraded or killed neither
// ends nor repeats it, and the next agent waits for it and takes its result.
// Only when that result cannot be known, because the host rebooted or somebody
// killed the hook's supervisor, does the agent begin another attempt
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
// What a hook leaves that fails, runs out of time or is superseded is asked to
// end and killed up to 5 s later. With a deadline it is asked so early that it is
// killed at the deadline. As a transient unit a hook has a control group, which
// nothing leaves. As a process it has a process group; of a hook that did not
// end by itself also what left that (setsid) is killed, if it has the agent's
// user and the run's mark in its environment, BIGFLEET_RUN: a process that
// cleaned its environment, or changed its user, escapes.
//
// What a successful hook leaves in the background lives on, and may print for
// ever.
//
// # How
//
// Each run has a directory on tmpfs:
//
//	<runtime dir>/runs/<short id>-<verb>-<attempt>/
//	    status           the hook's exit status, renamed into place when it ended
//	    status.reserved  room for it until then
//	    outcome          what is reported of the output
//	    blob             the bootstrap blob, 0600, gone when the hook ended
//	    blob.d           what the hook made of it, if it did; goes with it
//	  of a unit:
//	    unit             its name
//	    job              what to run: whoever removes it owns the run
//	  of processes:
//	    pid              made by the supervising shell with O_EXCL: whoever makes it owns the run
//	    stderr.new, stderr, stderr.old
//	                     the end of what the hook printed, in pieces of 256 KiB at most
//	    drained          nobody holds the hook's standard error any more
//
// The main process of a unit is the agent's program, as Supervise. It takes the
// secrets out of what the hook prints and passes that on to the journal for as
// long as anybody prints. The status is in a file all the same: the service
// manager forgets a unit that failed, and does not know when a hook ended whose
// daemons hold its output.
//
// Processes have two shells that are no part of the agent: the supervisor runs
// the hook and ends with it; the keeper reads its standard error from a pipe
// until nobody holds that, and so bounds what a run can write here.
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
	// ErrKilled says that a run that this agent began has no result. Nothing of
	// it is alive, and another attempt may be made.
	ErrKilled = errors.New("its supervisor was killed, or could not write the result")
	// ErrNotStarted says that a run could not be begun: nothing of it ran. What was
	// in its way may pass, such as a full tmpfs.
	ErrNotStarted = errors.New("the hook could not be started")
	// ErrStopping is the context's cause when the agent ends. A hook that can
	// be resumed is left running then; with every other cause all that it
	// started is killed.
	ErrStopping = errors.New("the agent is stopping")
	// ErrDeadline says that the time of the command is over. A hook that needs
	// time to be ended is told a few seconds before.
	ErrDeadline = errors.New("the command's deadline passed")
)
