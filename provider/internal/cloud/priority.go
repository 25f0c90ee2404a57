package cloud

import "context"

// Priority orders the calls that wait for a share of the API's rate. The zero
// value is the lowest, so that a call which nobody thought about delays none
// that somebody waits for.
type Priority int

// The priorities, lowest first.
const (
	Background Priority = iota // inventories, sweeps, the catalogue
	Order                      // what begins to bill
	Work                       // steps of operations in flight, which bill
	Teardown                   // giving back what bills
	Host                       // what a host that is up waits for
)

// Priorities lists them, highest first.
func Priorities() []Priority { return []Priority{Host, Teardown, Work, Order, Background} }

// String names the priority for metrics.
func (p Priority) String() string {
	switch p {
	case Host:
		return "host"
	case Order:
		return "order"
	case Teardown:
		return "teardown"
	case Work:
		return "work"
	default:
		return "background"
	}
}

type priorityKey struct{}

// WithPriority marks the calls that are made under ctx.
func WithPriority(ctx context.Context, p Priority) context.Context {
	return context.WithValue(ctx, priorityKey{}, p)
}

// PriorityOf is the priority of ctx; Background when nobody set one.
func PriorityOf(ctx context.Context) Priority {
	p, _ := ctx.Value(priorityKey{}).(Priority)
	return p
}
