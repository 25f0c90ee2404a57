package operator

import (
	"cmp"
	"fmt"
	"text/tabwriter"
	"time"

	pb "bigfleet-providers/proto/bigfleet/v1alpha1"
	"bigfleet-providers/provider/internal/operator/terminal"
)

// maxErrorColumn keeps a row on a wide line; get shows an error whole.
const maxErrorColumn = 70

// stageLabel is where the provider shows how far a slow Create is.
const stageLabel = "bigfleet.io/stage"

// machineTable shows machines as rows.
type machineTable struct {
	wide  bool
	bare  bool // without header and tally
	steps bool // with STEP and AGE
	ops   map[string]*runningOperation
	// since is when a state was seen to begin, and began when looking did: of a
	// state from before, only that it is older is known.
	since map[string]time.Time
	began time.Time
	now   time.Time
}

func (t *machineTable) table(machines []*pb.Machine) *terminal.Table {
	tab := &terminal.Table{Header: []string{"ID", "STATE"}}
	if t.steps {
		tab.Header = append(tab.Header, "STEP", "AGE")
	}
	tab.Header = append(tab.Header, "TYPE", "CAPACITY", "USD/H", "HOST", "CLUSTER")
	if t.wide {
		tab.Header = append(tab.Header, "ZONE", "INTERRUPTION", "RESOURCES", "LABELS")
		if t.steps {
			tab.Header = append(tab.Header, "OPERATION")
		}
	}
	tab.Header = append(tab.Header, "ERROR")
	for _, m := range machines {
		tab.Rows = append(tab.Rows, t.row(m))
	}
	return tab
}

func (t *machineTable) row(m *pb.Machine) []terminal.Cell {
	op := t.ops[m.GetId()]
	row := []terminal.Cell{{Text: m.GetId()}, {Text: stateName(m.GetState()), Style: stateStyle(m.GetState())}}
	add := func(texts ...string) {
		for _, text := range texts {
			row = append(row, terminal.Cell{Text: cmp.Or(text, "-")})
		}
	}
	if t.steps {
		add(stepOf(m, op), t.age(m, op))
	}
	add(m.GetInstanceType(), capacityName(m.GetCapacityType()), price(m), m.GetHost().GetRef(), m.GetCluster())
	failure := cut(m.GetLastError(), maxErrorColumn)
	if t.wide {
		failure = m.GetLastError()
		add(m.GetZone(), fmt.Sprint(m.GetInterruptionProbability()), pairs(m.GetResources().GetResources()), pairs(m.GetLabels()))
		if t.steps {
			id := ""
			if op != nil {
				id = op.OperationID
			}
			add(id)
		}
	}
	if failure == "" || failure == "-" {
		return append(row, terminal.Cell{Text: "-"})
	}
	return append(row, terminal.Cell{Text: failure, Style: terminal.Red})
}

// stepOf is how far an operation is, "" where that is not known.
func stepOf(m *pb.Machine, op *runningOperation) string {
	stage := m.GetLabels()[stageLabel]
	if op != nil {
		return cmp.Or(stage, op.Step)
	}
	return stage
}

func (t *machineTable) age(m *pb.Machine, op *runningOperation) string {
	switch at, ok := t.since[m.GetId()]; {
	case op != nil:
		return age(t.now.Sub(op.Started))
	case ok:
		return age(t.now.Sub(at))
	case t.began.IsZero():
		return ""
	default:
		return age(t.now.Sub(t.began)) + "+"
	}
}

func (t *machineTable) write(o *terminal.Output, machines []*pb.Machine) error {
	if t.bare {
		for _, line := range t.table(machines).Lines(o)[1:] {
			if _, err := fmt.Fprintln(o, line); err != nil {
				return err
			}
		}
		return nil
	}
	if err := t.table(machines).Write(o); err != nil {
		return err
	}
	_, err := fmt.Fprintf(o, "\n%s\n", tallyOf(machines))
	return err
}

// tallyOf counts machines by state.
func tallyOf(machines []*pb.Machine) string {
	count := map[pb.MachineState]int{}
	for _, m := range machines {
		count[m.GetState()]++
	}
	return tally(len(machines), func(name string) int {
		return count[pb.MachineState(pb.MachineState_value[statePrefix+name])]
	})
}

// stateStyle is a state's colour: what is under way, of use, or broken.
func stateStyle(s pb.MachineState) terminal.Style {
	switch {
	case underWay(s):
		return terminal.Yellow
	case s == pb.MachineState_MACHINE_STATE_FAILED:
		return terminal.Red
	case s == pb.MachineState_MACHINE_STATE_CONFIGURED:
		return terminal.Green
	case s == pb.MachineState_MACHINE_STATE_IDLE:
		return terminal.Cyan
	default:
		return terminal.Faint
	}
}

func underWay(s pb.MachineState) bool {
	switch s {
	case pb.MachineState_MACHINE_STATE_CREATING, pb.MachineState_MACHINE_STATE_CONFIGURING,
		pb.MachineState_MACHINE_STATE_DRAINING, pb.MachineState_MACHINE_STATE_DELETING:
		return true
	default:
		return false
	}
}

func printMachine(o *terminal.Output, m *pb.Machine, op *runningOperation, now time.Time) error {
	t := tabwriter.NewWriter(o, 0, 0, 2, ' ', 0)
	row := func(name, value string) { fmt.Fprintf(t, "%s\t%s\n", name, orDash(value)) }
	row("id", m.GetId())
	fmt.Fprintf(t, "state\t%s\n", o.Paint(stateStyle(m.GetState()), stateName(m.GetState())))
	if op != nil {
		row("operation", fmt.Sprintf("%s, %s for %s", op.OperationID, op.Kind, age(now.Sub(op.Started))))
		row("step", op.Step)
		row("deadline", deadline(op.Deadline, now))
	}
	row("host", m.GetHost().GetRef())
	row("cluster", m.GetCluster())
	row("type", m.GetInstanceType())
	row("zone", m.GetZone())
	row("capacity", capacityName(m.GetCapacityType()))
	row("usd/hour", price(m))
	if p := m.GetInterruptionProbability(); p > 0 {
		row("interruption", fmt.Sprint(p))
	}
	row("resources", pairs(m.GetResources().GetResources()))
	row("allocatable", pairs(m.GetAllocatable().GetResources()))
	row("labels", pairs(m.GetLabels()))
	row("metadata", fmt.Sprint(len(m.GetShardMetadata()), " keys; see --output=json"))
	if m.GetLastError() != "" {
		fmt.Fprintf(t, "error\t%s\n", o.Paint(terminal.Red, printable(m.GetLastError())))
	}
	return t.Flush()
}
