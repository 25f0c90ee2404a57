package provider

import (
	"encoding/json"
	"net/http"
	"slices"
	"time"

	"bigfleet-providers/provider/internal/machine"
	"bigfleet-providers/provider/internal/store"
)

// maxOperations bounds the operations that the admin socket shows at once.
const maxOperations = 1000

// shownOperation is an operation under way, as the admin socket shows it. It
// names what it shows field by field: an operation also holds a sealed blob, and
// notes of the cloud's.
type shownOperation struct {
	MachineID   string    `json:"machine_id"`
	OperationID string    `json:"operation_id"`
	Kind        string    `json:"kind"`
	Step        string    `json:"step,omitempty"`
	Started     time.Time `json:"started"`
	StepBegan   time.Time `json:"step_began,omitzero"`
	Deadline    time.Time `json:"deadline"`
}

// shownOperations are the oldest of them, and how many there are.
type shownOperations struct {
	Total      int              `json:"total"`
	Operations []shownOperation `json:"operations"`
}

// operationsHandler shows the operations under way on the admin socket, the
// oldest first.
func operationsHandler(st *store.Store) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(operationsOf(st.Records)) // the other end may be gone
	})
}

func operationsOf(records func(yield func(machine.Record) bool)) shownOperations {
	all := []shownOperation{}
	for r := range records {
		if op := r.Op; op != nil {
			all = append(all, shownOperation{r.ID, op.ID, op.Kind.String(), op.Step, op.Started, op.StepBegan, op.Deadline})
		}
	}
	slices.SortFunc(all, func(a, b shownOperation) int { return a.Started.Compare(b.Started) })
	return shownOperations{Total: len(all), Operations: all[:min(len(all), maxOperations)]}
}
