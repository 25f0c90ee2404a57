package operator

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	pb "bigfleet-providers/proto/bigfleet/v1alpha1"
	"bigfleet-providers/provider/internal/operator/terminal"
)

// lister is one run of list.
type lister struct {
	program   *program
	choose    selection
	out       format
	sort      string
	watch     bool
	noHeaders bool
	interval  interval
	socket    *string
}

var listFormats = []format{formatTable, formatWide, formatJSON, formatName}

func (p *program) listCommand() *cobra.Command {
	l := &lister{program: p}
	c := connected(&cobra.Command{
		Use: "list [flags]", Aliases: []string{"ls"}, Short: "Show the machines, once or as they change",
		Long: `
With --watch on a terminal the table is drawn again in place, machines under way
first; elsewhere each change is a line, as watch prints them. AGE is how long a
machine has been in its state; "+" marks one that was in it before the watch
began. STEP comes from the admin socket, or is the stage that a dedicated server
shows.

The JSON is a MachineList, as the provider sent it; with --watch an object a line.
`,
		Example: `
capacityctl list --state idle,configured --sort price
capacityctl list --type DEV1-S --label kubernetes.io/arch=amd64 -o wide
capacityctl list --state IDLE -o name | xargs -r capacityctl delete --wait
capacityctl list --watch --socket /run/bigfleet/admin/socket
`,
		Args:              cobra.ArbitraryArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(c *cobra.Command, args []string) error {
			if err := l.check(args); err != nil {
				return err
			}
			return p.conn.with(func(cl *client) error { return l.run(c.Context(), cl) })
		},
	})
	l.choose.declare(p, c)
	f := c.Flags()
	f.StringVar(&l.sort, "sort", "id", "`order`: "+either(orderNames())+"; changed is the order of the last change")
	f.BoolVarP(&l.watch, "watch", "w", false, "follow the machines until interrupted")
	f.BoolVar(&l.noHeaders, "no-headers", false, "print the rows of the table and nothing else")
	l.interval.declare(c)
	l.socket = declareSteps(f)
	l.out.declare(c, listFormats...)
	completes(c, "sort", orderNames())
	return c
}

func (l *lister) check(args []string) error {
	var errs []error
	if orders[l.sort] == nil {
		errs = append(errs, fmt.Errorf("--sort: %q is unknown, want one of %s", l.sort, strings.Join(orderNames(), ", ")))
	}
	if l.watch && l.out == formatName {
		errs = append(errs, errors.New("--watch: has no names alone; use --output table, wide or json"))
	}
	if l.noHeaders && (l.watch || l.out != formatTable && l.out != formatWide) {
		errs = append(errs, errors.New("--no-headers: of use with --output table or wide, without --watch"))
	}
	return misused(append(errs, wantArgs(args), l.program.conn.check(), l.out.check(listFormats...), l.choose.check(), l.interval.check())...)
}

func (l *lister) run(ctx context.Context, c *client) error {
	out := l.program.stdout()
	switch {
	case l.watch && out.Live && l.out != formatJSON:
		return l.live(ctx, c, out)
	case l.watch:
		w := &watcher{follower: follow(c, l.choose.match), out: out, notes: l.program.err, json: l.out == formatJSON}
		return w.run(ctx, time.Duration(l.interval), true)
	}
	list, err := c.list(ctx, &pb.ListFilter{States: l.choose.wanted})
	if err != nil {
		return err
	}
	list.Machines = slices.DeleteFunc(list.Machines, func(m *pb.Machine) bool { return !l.choose.match(m) })
	slices.SortStableFunc(list.Machines, orders[l.sort])
	ops, err := askOperations(ctx, *l.socket)
	if err != nil {
		return err
	}
	return l.program.page(func(o *terminal.Output) error {
		switch l.out {
		case formatJSON:
			return printJSON(o, list)
		case formatName:
			for _, m := range list.GetMachines() {
				fmt.Fprintln(o, printable(m.GetId()))
			}
			return nil
		default:
			t := machineTable{wide: l.out == formatWide, bare: l.noHeaders, steps: *l.socket != "", ops: ops.byMachine(), now: time.Now()}
			return t.write(o, list.GetMachines())
		}
	})
}

func (p *program) getCommand() *cobra.Command {
	var out format
	var socket *string
	c := connected(&cobra.Command{
		Use: "get MACHINE... [flags]", Aliases: []string{"describe", "show"}, Short: "Show machines in full, with their last error",
		Long: `
The JSON is a Machine, as the provider sent it; of several ids a MachineList. An
id that is not found does not hide the others, and makes the exit code 1.
`,
		Example: `
capacityctl get m-1
capacityctl get m-1 m-2 -o json
`,
		ValidArgsFunction: p.machineIDs(0),
		RunE: func(c *cobra.Command, args []string) error {
			if err := misused(wantMachines(args), p.conn.check(), out.check(formatTable, formatJSON)); err != nil {
				return err
			}
			return p.conn.with(func(cl *client) error {
				return p.page(func(o *terminal.Output) error { return p.get(c.Context(), cl, o, args, out, *socket) })
			})
		},
	})
	socket = declareSteps(c.Flags())
	out.declare(c, formatTable, formatJSON)
	return c
}

// wantMachines checks that ids of machines were given.
func wantMachines(args []string) error {
	if len(args) == 0 {
		return errors.New("it takes ids of machines, and got none; capacityctl list shows them")
	}
	return nil
}

func (p *program) get(ctx context.Context, c *client, out *terminal.Output, ids []string, as format, socket string) error {
	ops, err := askOperations(ctx, socket)
	errs := []error{err}
	var found []*pb.Machine
	for _, id := range ids {
		m, err := c.get(ctx, id)
		if err != nil {
			errs = append(errs, p.conn.explain("get "+printable(id), err))
			continue
		}
		found = append(found, m)
	}
	switch {
	case as == formatJSON && len(ids) == 1 && len(found) == 1:
		errs = append(errs, printJSON(out, found[0]))
	case as == formatJSON && len(found) > 0:
		errs = append(errs, printJSON(out, &pb.MachineList{Machines: found}))
	case as == formatTable:
		for i, m := range found {
			if i > 0 {
				fmt.Fprintln(out)
			}
			errs = append(errs, printMachine(out, m, ops.of(m.GetId()), time.Now()))
		}
	}
	return errors.Join(errs...)
}
