package operator

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"time"
)

// operationsTimeout bounds a question about operations; it is asked again and
// again.
const operationsTimeout = 5 * time.Second

// maxOperationsAnswer bounds what is read of the answer, which the provider
// bounds by their number.
const maxOperationsAnswer = 8 << 20

// runningOperation is what the provider says on its admin socket about an
// operation under way: what the wire does not carry.
type runningOperation struct {
	MachineID   string    `json:"machine_id"`
	OperationID string    `json:"operation_id"`
	Kind        string    `json:"kind"`
	Step        string    `json:"step,omitempty"`
	Started     time.Time `json:"started"`
	StepBegan   time.Time `json:"step_began,omitzero"`
	Deadline    time.Time `json:"deadline"`
}

// runningOperations are the oldest of the operations under way, and how many
// there are.
type runningOperations struct {
	Total      int                `json:"total"`
	Operations []runningOperation `json:"operations"`
}

// of returns the operation of a machine, nil if none is known.
func (o runningOperations) of(machine string) *runningOperation {
	for i := range o.Operations {
		if o.Operations[i].MachineID == machine {
			return &o.Operations[i]
		}
	}
	return nil
}

// byMachine makes look-ups cheap.
func (o runningOperations) byMachine() map[string]*runningOperation {
	out := make(map[string]*runningOperation, len(o.Operations))
	for i := range o.Operations {
		out[o.Operations[i].MachineID] = &o.Operations[i]
	}
	return out
}

// askOperations asks on the admin socket; without one nothing is known.
func askOperations(ctx context.Context, socket string) (ops runningOperations, err error) {
	if socket == "" {
		return ops, nil
	}
	ctx, cancel := context.WithTimeout(ctx, operationsTimeout)
	defer cancel()
	err = overSocket(ctx, socket, http.MethodGet, "/operations", func(body io.Reader) error {
		return json.NewDecoder(io.LimitReader(body, maxOperationsAnswer)).Decode(&ops)
	})
	return ops, err
}

// age is how long ago, as people say it: two units at most.
func age(d time.Duration) string {
	d = max(d, 0)
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%dm%02ds", int(d.Minutes()), int(d.Seconds())%60)
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh%02dm", int(d.Hours()), int(d.Minutes())%60)
	default:
		return fmt.Sprintf("%dd%02dh", int(d.Hours())/24, int(d.Hours())%24)
	}
}
