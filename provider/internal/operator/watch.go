package operator

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"google.golang.org/protobuf/proto"

	pb "bigfleet-providers/proto/bigfleet/v1alpha1"
)

// fullEvery is how often the watch reads the whole list: a delta does not tell
// which ids have disappeared.
const fullEvery = 30

var watchCommand = command{
	name: "watch", args: "[MACHINE...] [flags]", summary: "Show changes as they happen, until interrupted",
	details: `
Each line is one change: the time, the machine, its state and what else is new.
It asks for what has changed since the last revision; a provider that restarts
is waited for. A state that is passed between two questions is not seen: give a
shorter --interval, or read the provider's log, which has them all. The JSON is
one object a line: time and machine, or time and gone.
`,
	setup: func(f *pflag.FlagSet) runner {
		var (
			conn     connection
			out      format
			interval time.Duration
			initial  bool
		)
		f.DurationVar(&interval, "interval", time.Second, "`pause` between two questions, 100ms or more")
		f.BoolVar(&initial, "initial", false, "first show every machine as it is")
		out.declare(f)
		conn.declare(f)
		return func(ctx context.Context, s streams, args []string) error {
			var intervalErr error
			if interval < 100*time.Millisecond {
				intervalErr = fmt.Errorf("--interval: %s, want 100ms or more", interval)
			}
			if err := misused(conn.check(), out.check(), intervalErr); err != nil {
				return err
			}
			return conn.with(func(c *client) error {
				w := &watcher{client: c, out: s.out, notes: s.err, json: out == formatJSON, known: map[string]*pb.Machine{}, only: map[string]bool{}}
				for _, id := range args {
					w.only[id] = true
				}
				return w.run(ctx, interval, initial)
			})
		}
	},
}

// watcher follows the list. known is what it has shown or may leave unshown.
type watcher struct {
	client *client
	out    io.Writer
	notes  io.Writer
	json   bool
	only   map[string]bool // ids; empty for all
	known  map[string]*pb.Machine
	cursor []byte
}

func (w *watcher) run(ctx context.Context, interval time.Duration, initial bool) error {
	l, err := w.client.list(ctx, &pb.ListFilter{})
	if err != nil {
		return err
	}
	if err := w.take(l, true, initial); err != nil {
		return err
	}
	fmt.Fprintf(w.notes, "watching %d machines\n", len(w.known))
	tick := time.NewTicker(interval)
	defer tick.Stop()
	lost := false
	for n := 1; ; n++ {
		select {
		case <-ctx.Done():
			return nil // this is how a watch ends
		case <-tick.C:
		}
		full := lost || n%fullEvery == 0
		filter := &pb.ListFilter{SinceRevision: w.cursor}
		if full {
			filter.SinceRevision = nil
		}
		l, err := w.client.list(ctx, filter)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			if !lost {
				fmt.Fprintf(w.notes, "%s  %s\ntrying again\n", clock(), err)
			}
			lost = true
			continue
		case lost:
			fmt.Fprintf(w.notes, "%s  the provider answers again\n", clock())
		}
		lost = false
		if err := w.take(l, full, true); err != nil {
			return err
		}
	}
}

// take shows what is new in a list. A delta may turn out to be the full list:
// what is known already is not shown again.
func (w *watcher) take(l *pb.MachineList, full, show bool) error {
	listed := make(map[string]bool, len(l.GetMachines()))
	for _, m := range l.GetMachines() {
		id := m.GetId()
		listed[id] = true
		old := w.known[id]
		if len(w.only) > 0 && !w.only[id] || proto.Equal(old, m) {
			continue
		}
		w.known[id] = m
		if !show {
			continue
		}
		if err := w.show(old, m); err != nil {
			return err
		}
	}
	w.cursor = l.GetRevision()
	if !full {
		return nil
	}
	for id := range w.known {
		if listed[id] {
			continue
		}
		delete(w.known, id)
		if err := w.gone(id); err != nil {
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

func (w *watcher) show(old, m *pb.Machine) error {
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

func (w *watcher) gone(id string) error {
	if w.json {
		return json.NewEncoder(w.out).Encode(change{Time: time.Now().UTC(), Gone: id})
	}
	_, err := fmt.Fprintf(w.out, "%s  %s  gone from the list\n", clock(), printable(id))
	return err
}

func price(m *pb.Machine) string { return fmt.Sprintf("%.4f", m.GetPricePerHour()) }

func clock() string { return time.Now().Format("15:04:05.000") }
