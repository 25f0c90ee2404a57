package operator

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	pb "bigfleet-providers/proto/bigfleet/v1alpha1"
)

var listCommand = command{
	name: "list", args: "[flags]", summary: "Show the machines",
	details: "\nThe JSON is a MachineList, as the provider sent it.\n",
	setup: func(f *pflag.FlagSet) runner {
		var (
			conn   connection
			out    format
			states []string
			sort   string
		)
		f.StringSliceVar(&states, "state", nil, "only machines in this `state`; repeat it or separate several by commas")
		f.StringVar(&sort, "sort", "id", "`order`: "+strings.Join(orderNames(), ", ")+"; changed is the order of the last change")
		out.declare(f)
		conn.declare(f)
		return func(ctx context.Context, s streams, args []string) error {
			wanted, stateErr := parseStates(states)
			order := orders[sort]
			var sortErr error
			if order == nil {
				sortErr = fmt.Errorf("--sort: %q is unknown, want one of %s", sort, strings.Join(orderNames(), ", "))
			}
			if err := misused(wantArgs(args), conn.check(), out.check(), stateErr, sortErr); err != nil {
				return err
			}
			return conn.with(func(c *client) error {
				l, err := c.list(ctx, &pb.ListFilter{States: wanted})
				if err != nil {
					return err
				}
				slices.SortStableFunc(l.Machines, order)
				if out == formatJSON {
					return printJSON(s.out, l)
				}
				return printMachines(s.out, l.GetMachines())
			})
		}
	},
}

var getCommand = command{
	name: "get", args: "MACHINE [flags]", summary: "Show one machine",
	details: "\nThe JSON is a Machine, as the provider sent it.\n",
	setup: func(f *pflag.FlagSet) runner {
		var (
			conn connection
			out  format
		)
		out.declare(f)
		conn.declare(f)
		return func(ctx context.Context, s streams, args []string) error {
			if err := misused(wantArgs(args, "a machine's id"), conn.check(), out.check()); err != nil {
				return err
			}
			return conn.with(func(c *client) error {
				m, err := c.get(ctx, args[0])
				switch {
				case err != nil:
					return conn.explain("get "+args[0], err)
				case out == formatJSON:
					return printJSON(s.out, m)
				default:
					return printMachine(s.out, m)
				}
			})
		}
	},
}

// with runs a function with a client and closes it.
func (c *connection) with(f func(*client) error) error {
	cl, err := c.dial()
	if err != nil {
		return err
	}
	return errors.Join(f(cl), cl.close())
}

// get reads a machine; the error is the call's own.
func (c *client) get(ctx context.Context, id string) (*pb.Machine, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return c.Get(ctx, &pb.MachineRef{Id: id})
}

func (c *client) list(ctx context.Context, filter *pb.ListFilter) (*pb.MachineList, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	l, err := c.List(ctx, filter)
	return l, c.how.explain("list", err)
}
