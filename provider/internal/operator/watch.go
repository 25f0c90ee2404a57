package operator

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	pb "bigfleet-providers/proto/bigfleet/v1alpha1"
)

func (p *program) watchCommand() *cobra.Command {
	var (
		out      format
		interval interval
		initial  bool
	)
	c := connected(&cobra.Command{
		Use: "watch [MACHINE...] [flags]", Short: "Print changes as they happen, a line each, until interrupted",
		Long: `
Each line is one change: the time, the machine, its state and what else is new.
It asks for what has changed since the last revision; a provider that restarts
is waited for. A state that is passed between two questions is not seen: give a
shorter --interval, or read the provider's log, which has them all. The JSON is
one object a line: time and machine, or time and gone.

For a table that follows the machines see list --watch.
`,
		Example: `
capacityctl watch
capacityctl watch m-1 m-2 -o json | jq -c 'select(.machine.state == "MACHINE_STATE_FAILED")'
`,
		ValidArgsFunction: p.machineIDs(0),
		RunE: func(c *cobra.Command, args []string) error {
			if err := misused(p.conn.check(), out.check(formatTable, formatJSON), interval.check()); err != nil {
				return err
			}
			return p.conn.with(func(cl *client) error {
				f := follow(cl, func(m *pb.Machine) bool { return among(args, m.GetId()) })
				w := &watcher{follower: f, out: p.out, notes: p.err, json: out == formatJSON}
				return w.run(c.Context(), time.Duration(interval), initial)
			})
		},
	})
	interval.declare(c)
	c.Flags().BoolVar(&initial, "initial", false, "first show every machine as it is")
	out.declare(c, formatTable, formatJSON)
	return c
}

// interval is the pause between two questions: --interval.
type interval time.Duration

const shortestInterval = 100 * time.Millisecond

func (i *interval) declare(c *cobra.Command) {
	c.Flags().DurationVar((*time.Duration)(i), "interval", time.Second, "`pause` between two questions, 100ms or more")
}

func (i interval) check() error {
	if time.Duration(i) < shortestInterval {
		return fmt.Errorf("--interval: %s, want %s or more", time.Duration(i), shortestInterval)
	}
	return nil
}

// watcher prints what a follower sees.
type watcher struct {
	*follower
	out   io.Writer
	notes io.Writer
	json  bool
}

func (w *watcher) run(ctx context.Context, pause time.Duration, initial bool) error {
	events, err := w.next(ctx)
	if err != nil {
		return err
	}
	if initial {
		slices.SortFunc(events, func(a, b event) int { return cmp.Compare(a.id, b.id) })
		if err := w.showAll(events); err != nil {
			return err
		}
	}
	fmt.Fprintf(w.notes, "watching %d machines\n", len(w.known))
	tick := time.NewTicker(pause)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil // this is how a watch ends
		case <-tick.C:
		}
		wasLost := w.lost
		events, err := w.next(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			if !wasLost {
				fmt.Fprintf(w.notes, "%s  %s\ntrying again\n", clock(), err)
			}
			continue
		case wasLost:
			fmt.Fprintf(w.notes, "%s  the provider answers again\n", clock())
		}
		if err := w.showAll(events); err != nil {
			return err
		}
	}
}

func (w *watcher) showAll(events []event) error {
	for _, e := range events {
		show := w.show
		if e.machine == nil {
			show = w.gone
		}
		if err := show(e); err != nil {
			return err
		}
	}
	return nil
}

// change is one line of the JSON.
type change struct {
	Time    time.Time       `json:"time"`
	Machine json.RawMessage `json:"machine,omitempty"`
	Gone    string          `json:"gone,omitempty"` // an id that is listed no more
}

func (w *watcher) show(e event) error {
	old, m := e.old, e.machine
	if w.json {
		data, err := compactJSON(m)
		if err != nil {
			return err
		}
		return json.NewEncoder(w.out).Encode(change{Time: time.Now().UTC(), Machine: data})
	}
	state := stateName(m.GetState())
	if old == nil {
		old = &pb.Machine{State: m.GetState(), PricePerHour: m.GetPricePerHour()} // of a new one these are no news
	}
	if old.GetState() != m.GetState() {
		state = stateName(old.GetState()) + " -> " + state
	}
	line := []string{clock(), printable(m.GetId()), state}
	for _, field := range []struct{ name, was, is string }{
		{"stage", old.GetLabels()[stageLabel], m.GetLabels()[stageLabel]},
		{"host", old.GetHost().GetRef(), m.GetHost().GetRef()},
		{"cluster", old.GetCluster(), m.GetCluster()},
		{"usd/hour", price(old), price(m)},
		{"error", old.GetLastError(), m.GetLastError()},
	} {
		if field.is != field.was {
			line = append(line, field.name+" "+orDash(field.is))
		}
	}
	_, err := fmt.Fprintln(w.out, strings.Join(line, "  "))
	return err
}

func (w *watcher) gone(e event) error {
	if w.json {
		return json.NewEncoder(w.out).Encode(change{Time: time.Now().UTC(), Gone: e.id})
	}
	_, err := fmt.Fprintf(w.out, "%s  %s  gone from the list\n", clock(), printable(e.id))
	return err
}

func price(m *pb.Machine) string { return fmt.Sprintf("%.4f", m.GetPricePerHour()) }

func clock() string { return time.Now().Format("15:04:05.000") }
