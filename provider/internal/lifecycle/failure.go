package lifecycle

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"
	"unicode/utf8"

	"bigfleet-providers/provider/internal/cloud"
	"bigfleet-providers/provider/internal/delivery"
	"bigfleet-providers/provider/internal/machine"
)

// Classes of failure, as last_error, logs and metrics name them.
const (
	classOK         = "ok"
	classCapacity   = "capacity"   // the cloud has none left: another type or zone may do
	classQuota      = "quota"      // an operator must raise it or free some
	classPermission = "permission" // the key lacks a permission or is wrong
	classInvalid    = "invalid"    // the request can never succeed
	classThrottled  = "throttled"
	classTimeout    = "timeout"
	classAgent      = "agent"   // the host's own report
	classMissing    = "missing" // the host is gone, off, or held by the cloud
	classInternal   = "internal"
	// classUncertain is of an order that may have been carried out.
	classUncertain = "uncertain"
	// classSkipped is of a step that failed and was not worth its transition.
	classSkipped = "skipped"
)

// maxReasonBytes bounds last_error.
const maxReasonBytes = 2048

// stepError is an operation's end at one of its steps.
type stepError struct {
	step  string
	class string
	failureRow
}

// failureRow is the tries of a step that failed, in this process.
type failureRow struct {
	tries int
	since time.Time // of the first
	last  error     // the last thing that went wrong or was waited for; nil when the step only ran out of time
}

func (r *failureRow) add(err error) {
	r.last = err
	if r.tries++; r.tries == 1 {
		r.since = time.Now()
	}
}

func (e *stepError) Error() string {
	if e.last == nil {
		return e.step + ": " + e.class
	}
	return fmt.Sprintf("%s: %s: %v", e.step, e.class, e.last)
}

func (e *stepError) Unwrap() error { return e.last }

// agentError is a host's report that a command failed.
type agentError struct{ text string }

func (e *agentError) Error() string { return e.text }

type panicError struct{ value string }

func (e *panicError) Error() string { return "panic: " + e.value }

func classOf(err error) string {
	var (
		agent *agentError
		step  *stepError
		lost  *hostLostError
	)
	switch {
	case errors.As(err, &step):
		return step.class
	case errors.As(err, &lost):
		return classMissing
	case errors.As(err, &agent):
		return classAgent
	case errors.Is(err, cloud.ErrNoCapacity):
		return classCapacity
	case errors.Is(err, cloud.ErrQuota):
		return classQuota
	case errors.Is(err, cloud.ErrDenied):
		return classPermission
	case errors.Is(err, cloud.ErrInvalid), errors.Is(err, delivery.ErrInvalid):
		return classInvalid
	case errors.Is(err, cloud.ErrUncertain):
		return classUncertain
	case errors.Is(err, cloud.ErrThrottled):
		return classThrottled
	case errors.Is(err, cloud.ErrNotFound):
		return classMissing
	default:
		return classInternal
	}
}

// hostGone says whether a failure is that nothing of the host is left.
func hostGone(err error) bool {
	if lost, ok := errors.AsType[*hostLostError](err); ok {
		return lost.gone()
	}
	return classOf(err) == classMissing
}

// deniedTries is how often a refused permission is tried: fresh keys and
// policies are refused now and then for up to two minutes on Scaleway.
const deniedTries = 6

// hopeless says whether a step that failed so often in a row is not worth
// another try.
func hopeless(err error, failures int) bool {
	var (
		agent *agentError
		bug   *panicError
		lost  *hostLostError
	)
	switch {
	case errors.As(err, &agent), errors.As(err, &bug), errors.As(err, &lost):
		return true
	case errors.Is(err, cloud.ErrNoCapacity), errors.Is(err, cloud.ErrQuota), errors.Is(err, cloud.ErrInvalid), errors.Is(err, cloud.ErrUncertain), errors.Is(err, delivery.ErrInvalid):
		return true
	case errors.Is(err, cloud.ErrNotFound):
		return failures >= 3
	case errors.Is(err, cloud.ErrDenied):
		return failures >= deniedTries
	default:
		return false
	}
}

// Hints are what an operator can look at that the engine does not know of: how hosts
// are reached, and what limits calls. Each may be "".
type Hints struct {
	Contact string // when a host is not heard of at all
	Deliver string // when a command is not carried out in time
	Agent   string // when the host reports a failure
	// CallRate is the flag that limits calls to the cloud.
	CallRate string
}

// advice says what the operator should do about a failure.
func (h Hints) advice(k machine.Kind, step, class string) string {
	switch class {
	case classCapacity:
		return "the cloud has none left of this type in this zone: offer another type or zone, or wait"
	case classQuota:
		return "raise the cloud's quota for this type or offer fewer"
	case classPermission:
		return "check the API key and its permission sets"
	case classInvalid:
		return "check the offering: its type, image and options"
	case classAgent:
		return cmp.Or(h.Agent, "see the log on the host")
	case classMissing:
		return "it was removed or stopped by somebody else, or by its own shutdown"
	case classUncertain:
		return "look for the server in the cloud's console"
	case classThrottled:
		if h.CallRate == "" {
			return "the work needs more API calls than the cloud allows: see who else uses the project's API"
		}
		return "the work needs more API calls than the cloud, or " + h.CallRate + ", allows: see who else uses the project's API"
	case classTimeout:
		switch step {
		case stepContact:
			return cmp.Or(h.Contact, "look at the server's console")
		case stepDeliver:
			return cmp.Or(h.Deliver, "see whether the host is up, and the log on it")
		}
		return fmt.Sprintf("if it was only slow, raise --%s-timeout", strings.ToLower(k.String()))
	default:
		return "see the provider's log of this machine"
	}
}

// explain words an operation's end for last_error: stage, cause, class, tries
// and since when, what is left behind, what to do.
func (e *Engine) explain(t *task, cause error) (reason, class string) {
	class = classOf(cause)
	var b strings.Builder
	stage := fmt.Sprintf("at step %q", t.op.Step)
	if t.op.Step == "" {
		stage = "before its first step"
	}
	fmt.Fprintf(&b, "%s failed %s after %s (%s)", t.op.Kind, stage, time.Since(t.op.Started).Round(time.Second), class)
	var at *stepError
	switch {
	case errors.As(cause, &at) && at.class == classTimeout:
		fmt.Fprintf(&b, ": the deadline passed")
		if at.last != nil {
			fmt.Fprintf(&b, "; last: %v", withoutPause(at.last))
		}
	case errors.As(cause, &at) && at.last != nil:
		fmt.Fprintf(&b, ": %v", at.last)
	default:
		fmt.Fprintf(&b, ": %v", cause)
	}
	if at != nil && at.tries > 1 {
		fmt.Fprintf(&b, "; %d tries failed since %s", at.tries, at.since.UTC().Format(time.RFC3339))
	}
	if wait := e.stock.wait(productOf(t.rec.Offer)); wait > 0 && at != nil && (class == classCapacity || class == classQuota) && !errors.Is(cause, cloud.ErrLimit) {
		fmt.Fprintf(&b, "; the type is not ordered again before %s", time.Now().Add(wait).UTC().Format(time.RFC3339))
	}
	switch {
	case machine.Untouched(t.op):
		b.WriteString("; nothing was ordered and nothing is left")
	case t.Ref == "" && t.op.Kind == machine.Create && e.o.Keeper != nil:
		b.WriteString("; " + e.o.Keeper.Keeps("", t.rec.Offer.InstanceType))
	case t.Ref == "" && t.op.Kind == machine.Create:
		b.WriteString("; no host is known to be left, its traces are looked for and removed")
	case t.Ref == "":
	case hostGone(cause) && e.o.Keeper != nil:
		fmt.Fprintf(&b, "; host %s is gone at the cloud, nothing is left of it", t.Ref)
	case hostGone(cause):
		fmt.Fprintf(&b, "; host %s is gone, what it left is being removed", t.Ref)
	case t.rec.Cluster != "" && e.o.FailedRetention > 0:
		fmt.Fprintf(&b, "; host %s is kept for %s, since workloads may run there", t.Ref, e.o.FailedRetention)
		if e.o.Keeper != nil {
			b.WriteString("; after that " + e.o.Keeper.Keeps(t.Ref, t.rec.Offer.InstanceType))
		}
	case e.o.Keeper != nil:
		b.WriteString("; " + e.o.Keeper.Keeps(t.Ref, t.rec.Offer.InstanceType))
	default:
		fmt.Fprintf(&b, "; host %s is being removed", t.Ref)
	}
	remedy := class
	if at != nil && class == classTimeout {
		// What kept it until the deadline, if that has a name.
		if c := classOf(at.last); c != classInternal {
			remedy = c
		}
	}
	words := cloud.Advice(cause)
	if words == "" && errors.Is(cause, cloud.ErrLimit) {
		words = "raise the limit that the cloud names, or free some of what it counts; other offerings of the type may do meanwhile"
	}
	if words == "" {
		words = e.o.Hints.advice(t.op.Kind, t.op.Step, remedy)
	}
	b.WriteString("; " + words)
	return clip(b.String(), maxReasonBytes), class
}

// withoutPause words an AgainError by what it waited for.
func withoutPause(err error) string {
	if again, ok := errors.AsType[*cloud.AgainError](err); ok {
		return "waiting: " + again.Reason
	}
	return err.Error()
}

// clip cuts s to at most n bytes of valid UTF-8.
func clip(s string, n int) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}

func sameNotes(a, b map[string]string) bool { return maps.Equal(a, b) }

func copyNotes(m map[string]string) map[string]string { return maps.Clone(m) }
