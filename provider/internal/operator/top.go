package operator

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	pb "bigfleet-providers/proto/bigfleet/v1alpha1"
	"bigfleet-providers/provider/internal/operator/terminal"
)

// Rows of the overview, of which there could be very many.
const (
	maxOperationRows = 10
	maxFailedRows    = 5
)

func (p *program) topCommand() *cobra.Command {
	var (
		choose   selection
		out      format
		interval interval
		once     bool
		socket   *string
	)
	c := connected(&cobra.Command{
		Use: "top [flags]", Short: "Show the fleet at a glance: machines by type and state, cost, oldest operations",
		Long: `
On a terminal it is drawn again every --interval, until interrupted; elsewhere, and
with --once, it is printed once.

USD/H is what those machines cost that have or may have a server: all but the
SPECULATIVE, and FAILED ones without a host. Operations come from the admin
socket; without --socket the machines under way stand in for them, and how long
each has been so is known only for those that the view saw begin.
`,
		Example: `
capacityctl top
capacityctl top --once -o json --socket /run/bigfleet/admin/socket
`,
		Args:              cobra.ArbitraryArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(c *cobra.Command, args []string) error {
			if err := misused(wantArgs(args), p.conn.check(), out.check(formatTable, formatJSON), choose.check(), interval.check()); err != nil {
				return err
			}
			return p.conn.with(func(cl *client) error {
				v := &overview{follower: follow(cl, choose.match), socket: *socket, filtered: choose.filters()}
				o := p.stdout()
				if out != formatJSON && o.Live && !once {
					v.began = time.Now()
					return redraw(c.Context(), o, time.Duration(interval), v.read, func(now time.Time) []string { return v.lines(o, now) })
				}
				if err := v.read(c.Context()); err != nil {
					return err
				}
				if out == formatJSON {
					return writeJSON(o, v.summary(time.Now()))
				}
				_, err := fmt.Fprintln(o, strings.Join(v.lines(o, time.Now()), "\n"))
				return err
			})
		},
	})
	choose.declare(p, c)
	interval.declare(c)
	c.Flags().BoolVar(&once, "once", false, "print it once, also on a terminal")
	socket = declareSteps(c.Flags())
	out.declare(c, formatTable, formatJSON)
	return c
}

// overview is what top shows.
type overview struct {
	*follower
	socket   string
	filtered bool      // not all machines are shown
	began    time.Time // zero for one look
	ops      runningOperations
}

func (v *overview) read(ctx context.Context) error {
	if _, err := v.next(ctx); err != nil {
		return err
	}
	ops, err := askOperations(ctx, v.socket)
	if err != nil {
		return err
	}
	if v.filtered {
		ops.Operations = slices.DeleteFunc(ops.Operations, func(op runningOperation) bool { return v.known[op.MachineID] == nil })
		ops.Total = len(ops.Operations)
	}
	v.ops = ops
	return nil
}

// fleetSummary is the overview as JSON.
type fleetSummary struct {
	Time       time.Time          `json:"time"`
	Machines   int                `json:"machines"`
	States     map[string]int     `json:"states"`
	USDPerHour float64            `json:"usd_per_hour"`
	Groups     []fleetGroup       `json:"groups"`
	Operations *runningOperations `json:"operations,omitempty"` // with --socket
}

// fleetGroup is the machines of one type that are sold alike.
type fleetGroup struct {
	Type       string         `json:"type"`
	Capacity   string         `json:"capacity_type"`
	Machines   int            `json:"machines"`
	States     map[string]int `json:"states"`
	USDPerHour float64        `json:"usd_per_hour"`
}

func (v *overview) summary(now time.Time) fleetSummary {
	s := fleetSummary{Time: now.UTC(), Machines: len(v.known), States: map[string]int{}, Groups: []fleetGroup{}}
	type key struct{ typ, capacity string }
	groups := map[key]*fleetGroup{}
	for _, m := range v.known {
		k := key{m.GetInstanceType(), capacityName(m.GetCapacityType())}
		g := groups[k]
		if g == nil {
			g = &fleetGroup{Type: k.typ, Capacity: k.capacity, States: map[string]int{}}
			groups[k] = g
		}
		state := stateName(m.GetState())
		g.Machines++
		g.States[state]++
		s.States[state]++
		if billed(m) {
			g.USDPerHour += m.GetPricePerHour()
			s.USDPerHour += m.GetPricePerHour()
		}
	}
	for _, k := range slices.SortedFunc(maps.Keys(groups), func(a, b key) int {
		return cmp.Or(cmp.Compare(a.typ, b.typ), cmp.Compare(a.capacity, b.capacity))
	}) {
		s.Groups = append(s.Groups, *groups[k])
	}
	if v.socket != "" {
		s.Operations = &v.ops
	}
	return s
}

// billed says whether the machine has, or may have, a server.
func billed(m *pb.Machine) bool {
	switch m.GetState() {
	case pb.MachineState_MACHINE_STATE_SPECULATIVE:
		return false
	case pb.MachineState_MACHINE_STATE_FAILED:
		return m.GetHost().GetRef() != ""
	default:
		return true
	}
}

func (v *overview) lines(o *terminal.Output, now time.Time) []string {
	s := v.summary(now)
	out := []string{
		fmt.Sprintf("%s  %s", now.Format(time.TimeOnly), tally(s.Machines, func(state string) int { return s.States[state] })),
		o.Paint(terminal.Bold, fmt.Sprintf("%.4f", s.USDPerHour)) + " USD an hour", "",
	}
	out = append(out, s.groupTable().Lines(o)...)
	if v.socket != "" {
		out = append(out, v.operationLines(o, now)...)
	} else {
		out = append(out, v.underWayLines(o, now)...)
	}
	return append(out, v.failedLines(o)...)
}

// groupTable has a column for each state that any machine is in.
func (s *fleetSummary) groupTable() *terminal.Table {
	states := slices.DeleteFunc(stateNames(), func(name string) bool { return s.States[name] == 0 })
	t := &terminal.Table{Header: append(append([]string{"TYPE", "CAPACITY"}, states...), "USD/H")}
	for _, g := range s.Groups {
		row := []terminal.Cell{{Text: cmp.Or(g.Type, "-")}, {Text: g.Capacity}}
		for _, name := range states {
			c := terminal.Cell{Text: "-", Style: terminal.Faint}
			if n := g.States[name]; n > 0 {
				c = terminal.Cell{Text: strconv.Itoa(n), Style: stateStyle(pb.MachineState(pb.MachineState_value[statePrefix+name]))}
			}
			row = append(row, c)
		}
		t.Rows = append(t.Rows, append(row, terminal.Cell{Text: fmt.Sprintf("%.4f", g.USDPerHour)}))
	}
	return t
}

func (v *overview) operationLines(o *terminal.Output, now time.Time) []string {
	if v.ops.Total == 0 {
		return []string{"", "no operation is under way"}
	}
	t := &terminal.Table{Header: []string{"MACHINE", "KIND", "STEP", "AGE", "DEADLINE", "OPERATION"}}
	shown := v.ops.Operations[:min(len(v.ops.Operations), maxOperationRows)]
	for _, op := range shown {
		left := op.Deadline.Sub(now)
		due := terminal.Cell{Text: "in " + age(left)}
		if left <= 0 {
			due = terminal.Cell{Text: "passed", Style: terminal.Red}
		}
		t.Rows = append(t.Rows, []terminal.Cell{
			{Text: op.MachineID}, {Text: op.Kind}, {Text: cmp.Or(op.Step, "-")}, {Text: age(now.Sub(op.Started))}, due, {Text: op.OperationID},
		})
	}
	out := append([]string{"", counted("operation", "oldest operations", len(shown), v.ops.Total)}, t.Lines(o)...)
	return out
}

// underWayLines stand in for the operations, which the wire does not show.
func (v *overview) underWayLines(o *terminal.Output, now time.Time) []string {
	busy := slices.DeleteFunc(slices.Collect(maps.Values(v.known)), func(m *pb.Machine) bool { return !underWay(m.GetState()) })
	if len(busy) == 0 {
		return []string{"", "no machine is under way"}
	}
	at := func(m *pb.Machine) time.Time { return v.since[m.GetId()] } // zero: since before the view began
	slices.SortFunc(busy, func(a, b *pb.Machine) int { return cmp.Or(at(a).Compare(at(b)), orders["id"](a, b)) })
	ages := machineTable{since: v.since, began: v.began, now: now}
	t := &terminal.Table{Header: []string{"MACHINE", "STATE", "STEP", "AGE"}}
	shown := busy[:min(len(busy), maxOperationRows)]
	for _, m := range shown {
		t.Rows = append(t.Rows, []terminal.Cell{
			{Text: m.GetId()}, {Text: stateName(m.GetState()), Style: stateStyle(m.GetState())},
			{Text: cmp.Or(stepOf(m, nil), "-")}, {Text: cmp.Or(ages.age(m, nil), "-")},
		})
	}
	return append([]string{"", counted("machine under way", "machines under way", len(shown), len(busy))}, t.Lines(o)...)
}

func (v *overview) failedLines(o *terminal.Output) []string {
	failed := slices.DeleteFunc(slices.Collect(maps.Values(v.known)), func(m *pb.Machine) bool {
		return m.GetState() != pb.MachineState_MACHINE_STATE_FAILED
	})
	if len(failed) == 0 {
		return nil
	}
	// The latest says most about what is wrong now.
	slices.SortFunc(failed, func(a, b *pb.Machine) int { return v.turn[b.GetId()] - v.turn[a.GetId()] })
	t := &terminal.Table{Header: []string{"FAILED", "ERROR"}}
	shown := failed[:min(len(failed), maxFailedRows)]
	for _, m := range shown {
		t.Rows = append(t.Rows, []terminal.Cell{{Text: m.GetId()}, {Text: cut(m.GetLastError(), maxErrorColumn), Style: terminal.Red}})
	}
	return append([]string{"", counted("failed machine", "failed machines", len(shown), len(failed))}, t.Lines(o)...)
}

// counted is "1 operation", "3 operations" or "10 of 25 operations".
func counted(one, many string, shown, all int) string {
	switch {
	case all == 1:
		return "1 " + one
	case shown == all:
		return fmt.Sprintf("%d %s", all, many)
	default:
		return fmt.Sprintf("%d of %d %s", shown, all, many)
	}
}
