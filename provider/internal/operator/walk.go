package operator

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "bigfleet-providers/proto/bigfleet/v1alpha1"
	"bigfleet-providers/provider/internal/operator/terminal"
)

// walker is one run of walk.
type walker struct {
	program     *program
	client      *client
	order       order
	blob        string // --blob-file
	typ         string
	noConfigure bool
	yes         bool
	timeout     time.Duration
	socket      *string
}

func (p *program) walkCommand() *cobra.Command {
	w := &walker{program: p}
	c := connected(&cobra.Command{
		Use: "walk [MACHINE] [flags]", Short: "Try a whole cycle on one free machine: create, configure, drain, delete",
		Long: `
A smoke test of provider, cloud, agent and hook. It takes the SPECULATIVE machine
that is named, or one of the cheapest, of --type if that is given; a dedicated server
only when it is named, by id or type. It says what that costs, and on a terminal asks
first, unless --yes is given. Each step is waited for.

If a step fails, or you interrupt, it cleans up: it waits for what is under way,
drains and deletes, and says what is left if that does not work. A FAILED machine
is left to the provider, which removes what is left in the cloud.
` + fencing,
		Example: `
capacityctl walk --type DEV1-S --cluster prod --blob-file join.sh
capacityctl walk m-1 --no-configure --yes
printf '#!/bin/sh\ntrue\n' | capacityctl walk --cluster trial --blob-file -
`,
		ValidArgsFunction: p.machineIDs(1, pb.MachineState_MACHINE_STATE_SPECULATIVE),
		RunE: func(c *cobra.Command, args []string) error {
			w.order.defaultEpoch(c)
			if err := w.check(args); err != nil {
				return err
			}
			if err := w.order.readBlob(w.blob, p.in); err != nil {
				return err
			}
			return p.conn.with(func(cl *client) error {
				w.client = cl
				return w.run(c.Context(), args)
			})
		},
	})
	f := c.Flags()
	f.StringVar(&w.typ, "type", "", "take a machine of this instance `type`")
	w.order.declareConfigure(p, c, &w.blob)
	f.BoolVar(&w.noConfigure, "no-configure", false, "create and delete only: no cluster is touched")
	f.DurationVar(&w.order.grace, "grace", 0, "drain: `time` that workloads get to leave, in whole seconds")
	f.BoolVarP(&w.yes, "yes", "y", false, "do not ask")
	w.order.declareFence(c)
	f.DurationVar(&w.timeout, "timeout", defaultTimeout, "how long to wait for each step; a dedicated server's Create may take more")
	w.socket = declareSteps(f)
	p.completesWith(c, "type", (*pb.Machine).GetInstanceType)
	return c
}

// maxSteps is how many calls a walk sends at most, those to clean up included.
const maxSteps = 8

func (w *walker) check(args []string) error {
	errs := []error{w.program.conn.check(), w.order.checkFence(), w.order.checkGrace(), checkTimeout(w.timeout)}
	switch {
	case len(args) > 1:
		errs = append(errs, fmt.Errorf("it takes one machine, and got %d arguments; for single steps see capacityctl create, configure, drain and delete", len(args)))
	case len(args) == 1 && w.typ != "":
		errs = append(errs, errors.New("--type: of no use beside a machine's id"))
	}
	if w.order.sequence > math.MaxInt64-maxSteps {
		errs = append(errs, fmt.Errorf("--sequence: %d leaves no numbers for the calls of a walk; give a lower one, or a higher --epoch", w.order.sequence))
	}
	switch {
	case !w.noConfigure && (w.order.cluster == "" || w.blob == ""):
		errs = append(errs, w.order.checkConfigure(w.blob), errors.New("or give --no-configure, to create and delete only"))
	case w.noConfigure && (w.order.cluster != "" || w.blob != ""):
		errs = append(errs, errors.New("--no-configure: contradicts --cluster and --blob-file"))
	}
	return misused(errs...)
}

func (w *walker) run(ctx context.Context, args []string) error {
	m, err := w.pick(ctx, args)
	if err != nil {
		return err
	}
	plan := w.plan(m)
	o := w.program.stdout()
	fmt.Fprintf(o, "%s\n", w.announce(m, plan))
	if err := w.confirm(ctx, m); err != nil {
		return err
	}
	began := time.Now()
	made := false // a server may have been made
	for _, k := range plan {
		accepted, err := w.step(ctx, o, k, m.GetId())
		made = made || accepted || mayHaveBegun(err)
		if err != nil {
			if !made {
				return fmt.Errorf("%w\nNothing was made", err)
			}
			return w.cleanUp(context.WithoutCancel(ctx), o, m.GetId(), err)
		}
		w.order.sequence++
	}
	last := plan[len(plan)-1]
	_, err = fmt.Fprintf(o, "walk %s: %s in %s; it is %s\n", printable(m.GetId()), o.Paint(terminal.Green, "done"),
		time.Since(began).Round(10*time.Millisecond), stateName(last.end))
	return err
}

// mayHaveBegun says whether a call without an answer may have been accepted all
// the same.
func mayHaveBegun(err error) bool {
	switch codeOf(err) {
	case codes.Unavailable, codes.DeadlineExceeded, codes.Canceled:
		return true
	default:
		return false
	}
}

// pick finds the machine to walk.
func (w *walker) pick(ctx context.Context, args []string) (*pb.Machine, error) {
	if len(args) == 1 {
		m, err := w.client.get(ctx, args[0])
		if err != nil {
			return nil, w.program.conn.explain("get "+printable(args[0]), err)
		}
		if m.GetState() != pb.MachineState_MACHINE_STATE_SPECULATIVE {
			return nil, fmt.Errorf("walk %s: it is %s, and a walk begins with a SPECULATIVE machine: name another, or none", printable(args[0]), stateName(m.GetState()))
		}
		return m, nil
	}
	l, err := w.client.list(ctx, &pb.ListFilter{States: []pb.MachineState{pb.MachineState_MACHINE_STATE_SPECULATIVE}})
	if err != nil {
		return nil, err
	}
	free := slices.DeleteFunc(l.Machines, func(m *pb.Machine) bool {
		// A dedicated server is ordered for good: never by chance.
		return w.typ == "" && dedicated(m) || w.typ != "" && m.GetInstanceType() != w.typ
	})
	if len(free) == 0 {
		if w.typ != "" {
			return nil, fmt.Errorf("walk: no SPECULATIVE machine of --type %s; capacityctl list --state SPECULATIVE shows what is free", printable(w.typ))
		}
		return nil, errors.New("walk: no SPECULATIVE machine is free that can be given back; capacityctl list shows what there is. A dedicated server is taken only when it is named")
	}
	cheapest := slices.MinFunc(free, orders["price"])
	free = slices.DeleteFunc(free, func(m *pb.Machine) bool { return orders["price"](m, cheapest) > 0 })
	// Any of them: two walks at the same time should not take the same machine.
	return free[rand.IntN(len(free))], nil
}

// dedicated says whether the machine's server, once ordered, is not given back.
func dedicated(m *pb.Machine) bool {
	return m.GetCapacityType() == pb.CapacityType_CAPACITY_TYPE_BARE_METAL
}

func (w *walker) plan(m *pb.Machine) []kind {
	return slices.DeleteFunc(slices.Clone(kinds), func(k kind) bool {
		return w.noConfigure && (k.name == "configure" || k.name == "drain") || dedicated(m) && k.name == "delete"
	})
}

// announce says what will be done, and what it costs.
func (w *walker) announce(m *pb.Machine, plan []kind) string {
	var names []string
	for _, k := range plan {
		names = append(names, k.name)
	}
	text := fmt.Sprintf("walk %s: %s, %s in zone %s: %s", printable(m.GetId()), orDash(m.GetInstanceType()), capacityName(m.GetCapacityType()), orDash(m.GetZone()), strings.Join(names, ", "))
	if dedicated(m) {
		return text + "\nIt orders a DEDICATED SERVER, which costs what its offer says (the list has no price), and is not given back at the end: it stays IDLE."
	}
	return text + fmt.Sprintf("\nIt makes a real server: %s USD an hour, from create until delete.", price(m))
}

// errDeclined ends a walk that was not wanted.
var errDeclined = errors.New("walk: not confirmed; nothing was made")

// confirm asks on a terminal. Elsewhere there is nobody to ask: a server that is
// given back is made, a dedicated one is not.
func (w *walker) confirm(ctx context.Context, m *pb.Machine) error {
	if w.yes {
		return nil
	}
	in, done, err := w.program.askedAt()
	switch {
	case err != nil && dedicated(m):
		return errors.New("walk: a dedicated server is not ordered unasked; give --yes")
	case err != nil:
		return nil
	}
	defer done()
	if confirmed, err := w.program.confirmed(ctx, in); !confirmed {
		return errors.Join(errDeclined, err)
	}
	return nil
}

// step makes one transition; accepted says that the provider has begun it.
func (w *walker) step(ctx context.Context, o *terminal.Output, k kind, id string) (accepted bool, err error) {
	d := &driver{client: w.client, socket: *w.socket, wait: true, timeout: w.timeout, show: newProgress(o, 1)}
	outcomes, err := d.each(ctx, k, &w.order, []string{id})
	return outcomes[0].OperationID != "", errors.Join(outcomes[0].err, err)
}

// cleanUp takes the machine back to where it came from, and says how far it got.
// why is what went wrong. ctx does not end with the first signal; a second one
// ends the program.
func (w *walker) cleanUp(ctx context.Context, o *terminal.Output, id string, why error) error {
	if errors.Is(why, errTaken) || codeOf(why) == codes.FailedPrecondition {
		return errors.Join(why, fmt.Errorf("NOT CLEANED UP: %s is left to whoever else drives it", printable(id)))
	}
	fmt.Fprintf(o, "%s\n%s; a second interrupt leaves it as it is\n", printable(firstLine(why)), o.Paint(terminal.Yellow, "cleaning up"))
	left := func(m *pb.Machine, err error) error {
		state := "in an unknown state"
		if m != nil {
			state = stateName(m.GetState()) + where(m) + ", " + price(m) + " USD an hour"
		}
		if err != nil && err.Error() == why.Error() {
			err = nil // it failed as before
		}
		return errors.Join(why, fmt.Errorf("NOT CLEANED UP: %s is %s\nLook with capacityctl get %s, then drain it if it is CONFIGURED, and delete it: capacityctl delete %s --wait", printable(id), state, printable(id), printable(id)), err)
	}
	for {
		m, err := w.client.get(ctx, id)
		switch {
		case status.Code(err) == codes.NotFound:
			return errors.Join(why, fmt.Errorf("%s is listed no more: it failed, and what it had in the cloud was removed", printable(id)))
		case err != nil:
			return left(nil, w.program.conn.explain("get "+printable(id), err))
		}
		var next kind
		switch state := m.GetState(); {
		case state == pb.MachineState_MACHINE_STATE_SPECULATIVE:
			return errors.Join(why, fmt.Errorf("cleaned up: %s is SPECULATIVE, nothing of it is left", printable(id)))
		case state == pb.MachineState_MACHINE_STATE_FAILED:
			return errors.Join(why, fmt.Errorf("%s is FAILED, and left to the provider", printable(id)))
		case state == pb.MachineState_MACHINE_STATE_IDLE && dedicated(m):
			return errors.Join(why, fmt.Errorf("%s is IDLE%s: a dedicated server is not given back; the next Create takes it", printable(id), where(m)))
		case underWay(state):
			if err := w.await(ctx, o, m); err != nil {
				return left(m, err)
			}
			continue
		case state == pb.MachineState_MACHINE_STATE_CONFIGURED:
			next = kinds[2]
		default:
			next = kinds[3]
		}
		w.order.sequence++
		if _, err := w.step(ctx, o, next, id); err != nil {
			return left(m, err)
		}
	}
}

// await waits for a transition that somebody has begun before.
func (w *walker) await(ctx context.Context, o *terminal.Output, m *pb.Machine) error {
	k := kinds[slices.IndexFunc(kinds, func(k kind) bool { return during(k) == m.GetState() })]
	d := &driver{client: w.client, socket: *w.socket, wait: true, timeout: w.timeout, show: newProgress(o, 1)}
	d.show.begin(m.GetId(), k)
	stop := d.background(ctx)
	m, err := d.settle(ctx, k, m.GetId(), m, settlePause)
	d.show.end(m.GetId(), k, m, "", err)
	stop()
	return errors.Join(err, d.show.close())
}

// during is the state of a machine while a transition is under way.
func during(k kind) pb.MachineState {
	switch k.name {
	case "create":
		return pb.MachineState_MACHINE_STATE_CREATING
	case "configure":
		return pb.MachineState_MACHINE_STATE_CONFIGURING
	case "drain":
		return pb.MachineState_MACHINE_STATE_DRAINING
	default:
		return pb.MachineState_MACHINE_STATE_DELETING
	}
}
