package operator

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"bigfleet-providers/provider/internal/operator/terminal"
)

// frame is what a redrawn view shows: its lines, from what was read last.
type frame func(now time.Time) []string

// redraw reads and draws until ctx ends. A provider that does not answer is
// waited for, with what was known last left standing.
func redraw(ctx context.Context, o *terminal.Output, pause time.Duration, read func(context.Context) error, show frame) (err error) {
	screen := terminal.NewScreen(o)
	defer func() { err = errors.Join(err, screen.Close()) }()
	tick := time.NewTicker(pause)
	defer tick.Stop()
	for first := true; ; first = false {
		failure := read(ctx)
		switch {
		case ctx.Err() != nil:
			return nil // this is how it ends
		case failure != nil && first:
			return failure
		}
		lines := show(time.Now())
		if failure != nil {
			for line := range strings.SplitSeq(failure.Error(), "\n") {
				lines = append(lines, o.Paint(terminal.Red, printable(line)))
			}
			lines = append(lines, "trying again")
		}
		if err := screen.Draw(lines); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// live shows the list as it changes.
func (l *lister) live(ctx context.Context, c *client, o *terminal.Output) error {
	f := follow(c, l.choose.match)
	t := machineTable{wide: l.out == formatWide, steps: true, since: f.since, began: time.Now()}
	read := func(ctx context.Context) error {
		_, err := f.next(ctx)
		ops, opsErr := askOperations(ctx, *l.socket)
		t.ops = ops.byMachine()
		return errors.Join(err, opsErr)
	}
	show := func(now time.Time) []string {
		t.now = now
		machines := f.sorted(l.sort)
		head := fmt.Sprintf("%s  %s", now.Format(time.TimeOnly), tallyOf(machines))
		lines := []string{head, ""}
		// Head, table's header and the line for the rest leave so many rows.
		_, rows := o.Size()
		shown := machines[:min(len(machines), max(rows-5, 1))]
		lines = append(lines, t.table(shown).Lines(o)...)
		if hidden := len(machines) - len(shown); hidden > 0 {
			lines = append(lines, fmt.Sprintf("… %d more", hidden))
		}
		return lines
	}
	return redraw(ctx, o, time.Duration(l.interval), read, show)
}
