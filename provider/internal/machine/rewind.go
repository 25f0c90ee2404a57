package machine

import "time"

// Rewind makes a record of an older copy of the state fit for the present.
//
// What the copy shows as under way has ended since, and how is known to the
// cloud alone. To resume it would be to fail it at once, its deadline long past,
// and to tear down a server that is in use by now. So the machine goes back to
// SPECULATIVE, and the first inventory gives it the server that carries its tag,
// if there is one. What the copy shows as left over is not touched before hold
// has passed, so that an operator can look. Marks stay as they are.
//
// It reports false when the record may stay as it is.
func Rewind(cur Record, now time.Time, hold time.Duration) (Record, bool) {
	next := cur.Clone()
	switch least := now.Add(hold); {
	case cur.State.Transitional():
		next.State, next.Since = Speculative, now
		next.Host, next.Cluster, next.Metadata = "", "", nil
		next.History, next.Op, next.Bound = History{}, nil, true
		return next, true
	case cur.Leftover != nil && cur.Leftover.After.Before(least):
		next.Leftover.After = least
		return next, true
	default:
		return cur, false
	}
}
