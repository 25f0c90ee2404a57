package machine

import "fmt"

// Code says what a caller may do about a refused call.
type Code int

// The codes.
const (
	InvalidArgument Code = iota + 1 // the request can never be accepted
	Stale                           // a newer fencing token was seen; the caller was superseded
	NotFound                        // no machine has this id
	Busy                            // another transition is under way; the same call may be accepted later
	Misplaced                       // the machine's state does not allow the call
	Unsupported                     // the substrate cannot do it
	Exhausted                       // too many calls at once; nothing was decided, try again after a pause
	Unavailable                     // the decision could not be made durable; nothing changed
)

// Error is a refused call.
type Error struct {
	Code Code
	Text string
}

func (e *Error) Error() string { return e.Text }

func refuse(code Code, format string, args ...any) *Error {
	return &Error{Code: code, Text: fmt.Sprintf(format, args...)}
}
