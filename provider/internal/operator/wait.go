package operator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "bigfleet-providers/proto/bigfleet/v1alpha1"
)

const (
	// forGone is what --for calls a machine that is listed no more.
	forGone = "gone"
	// forDelete is kubectl's word for the end of a delete. A deleted machine stays
	// in the list, as a SPECULATIVE one.
	forDelete = "delete"
)

// waiter is one run of wait.
type waiter struct {
	program  *program
	target   string // --for
	timeout  time.Duration
	interval interval

	state pb.MachineState // of target, once judged; unspecified for forGone
	gone  bool            // a machine that is listed no more is there too
}

func (p *program) waitCommand() *cobra.Command {
	w := &waiter{program: p}
	c := connected(&cobra.Command{
		Use: "wait MACHINE... --for STATE [flags]", Short: "Wait until machines are in a state, or gone from the list",
		Long: `
It waits until each machine is in the state, and prints a line when one is. A
machine that is FAILED ends the waiting for it, as no other state follows, unless
FAILED, gone or delete is waited for. A provider that does not answer is waited
for. The exit code is 1 when a machine did not get there, or --timeout is over.

A deleted machine stays in the list, as SPECULATIVE: --for delete waits for that.
Only a FAILED machine that was cleaned up, or a slot that the provider no longer
offers, is gone.
`,
		Example: `
capacityctl wait m-1 m-2 --for idle --timeout 10m
capacityctl wait m-3 --for delete
capacityctl wait m-7 --for gone
`,
		ValidArgsFunction: p.machineIDs(0),
		RunE: func(c *cobra.Command, args []string) error {
			if err := w.check(args); err != nil {
				return err
			}
			return p.conn.with(func(cl *client) error { return w.run(c.Context(), cl, args) })
		},
	})
	f := c.Flags()
	f.StringVar(&w.target, "for", "", "`state` to wait for, gone, or delete: SPECULATIVE or gone; kubectl's spelling state=IDLE is taken too")
	f.DurationVar(&w.timeout, "timeout", defaultTimeout, "how long to wait for all of them")
	w.interval.declare(c)
	completes(c, "for", targets())
	return c
}

// targets are the values of --for.
func targets() []string { return append(stateNames(), forGone, forDelete) }

func (w *waiter) check(args []string) error {
	errs := []error{wantMachines(args), w.program.conn.check(), checkTimeout(w.timeout), w.interval.check()}
	switch target := strings.TrimPrefix(strings.ToLower(w.target), "state="); {
	case w.target == "":
		errs = append(errs, fmt.Errorf("--for: missing; want %s", either(targets())))
	case target == forGone:
		w.gone = true
	case target == forDelete:
		w.state, w.gone = pb.MachineState_MACHINE_STATE_SPECULATIVE, true
	default:
		states, err := parseStates([]string{target})
		if err != nil {
			errs = append(errs, fmt.Errorf("--for: %q is unknown, want %s", w.target, either(targets())))
			break
		}
		w.state = states[0]
	}
	return misused(errs...)
}

// run asks for all machines that are not there yet, again and again.
func (w *waiter) run(ctx context.Context, c *client, ids []string) error {
	wait, cancel := context.WithTimeout(ctx, w.timeout)
	defer cancel()
	tick := time.NewTicker(max(time.Duration(w.interval), time.Duration(len(ids))*perMachine))
	defer tick.Stop()
	looks := make([]look, len(ids))
	for {
		var group errgroup.Group
		group.SetLimit(maxCalls)
		for i, id := range ids {
			if !looks[i].done {
				group.Go(func() error {
					looks[i] = w.look(wait, c, id, looks[i].seen)
					return nil
				})
			}
		}
		if err := group.Wait(); err != nil {
			return err
		}
		if !slices.ContainsFunc(looks, func(l look) bool { return !l.done }) {
			break
		}
		select {
		case <-tick.C:
			continue
		case <-wait.Done():
		}
		why := "interrupted"
		if ctx.Err() == nil {
			why = fmt.Sprintf("waited %s, see --timeout", w.timeout)
		}
		for i, id := range ids {
			if !looks[i].done {
				looks[i].err = fmt.Errorf("wait %s: it is %s and not %s (%s)", printable(id), cmp.Or(looks[i].seen, "unknown"), w.aim(), why)
			}
		}
		break
	}
	var errs []error
	for _, l := range looks {
		errs = append(errs, l.err)
	}
	return errors.Join(errs...)
}

// aim is the target in the words of a message.
func (w *waiter) aim() string {
	switch {
	case w.state == pb.MachineState_MACHINE_STATE_UNSPECIFIED:
		return forGone
	case w.gone:
		return "deleted"
	default:
		return stateName(w.state)
	}
}

// look is what one question about a machine told.
type look struct {
	done bool
	seen string // its state, "" before there was an answer
	err  error
}

func (w *waiter) look(ctx context.Context, c *client, id, before string) look {
	m, err := c.get(ctx, id)
	switch code := status.Code(err); {
	case err == nil:
		l := look{seen: stateName(m.GetState())}
		switch {
		case m.GetState() == w.state:
			l.done = true
			_, l.err = fmt.Fprintf(w.program.out, "%s  %s  is %s\n", clock(), printable(id), l.seen)
		case m.GetState() == pb.MachineState_MACHINE_STATE_FAILED && !w.gone:
			l.done, l.err = true, fmt.Errorf("wait %s: FAILED: %s", printable(id), printable(m.GetLastError()))
		}
		return l
	case code == codes.NotFound && w.gone:
		_, err := fmt.Fprintf(w.program.out, "%s  %s  is gone\n", clock(), printable(id))
		return look{done: true, err: err}
	case code == codes.Unavailable || code == codes.DeadlineExceeded || code == codes.Canceled || ctx.Err() != nil:
		return look{seen: before}
	default:
		return look{done: true, err: c.how.explain("get "+printable(id), err)}
	}
}
