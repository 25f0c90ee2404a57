package operator

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "bigfleet-providers/proto/bigfleet/v1alpha1"
)

const (
	// settlePause is between two looks at a machine that is under way; many at a
	// time take turns, perMachine each.
	settlePause = 250 * time.Millisecond
	perMachine  = 10 * time.Millisecond
	// maxCalls is how many machines are called for at a time.
	maxCalls = 16
	// stepsPause is between two questions for the steps of operations.
	stepsPause = time.Second
)

// errTaken says that a machine went where nobody here sent it.
var errTaken = errors.New("somebody else drives it too")

// driver makes transitions and waits for their ends.
type driver struct {
	client  *client
	socket  string // of the provider, for steps; may be ""
	wait    bool
	timeout time.Duration
	show    progress
}

// each makes the transition of every machine, and returns an outcome for each in
// their order. The error is of showing them.
func (d *driver) each(ctx context.Context, k kind, o *order, ids []string) (outcomes []outcome, err error) {
	outcomes = make([]outcome, len(ids))
	stop := d.background(ctx)
	var accept, settle errgroup.Group
	accept.SetLimit(maxCalls)
	pause := max(settlePause, time.Duration(len(ids))*perMachine)
	for i, id := range ids {
		out := &outcomes[i]
		out.MachineID = id
		d.show.begin(id, k) // here, for the order in which they were named
		accept.Go(func() error {
			began := time.Now()
			ack, err := d.call(ctx, k, o, id)
			if err != nil {
				d.finish(out, k, nil, err)
				return nil
			}
			out.OperationID = ack.GetOperationId()
			if !d.wait {
				d.finish(out, k, ack.GetMachine(), nil)
				return nil
			}
			settle.Go(func() error {
				m, err := d.settle(ctx, k, id, ack.GetMachine(), pause)
				if err == nil {
					err = judge(k, m, time.Since(began))
				}
				d.finish(out, k, m, err)
				return nil
			})
			return nil
		})
	}
	err = errors.Join(accept.Wait(), settle.Wait())
	stop()
	return outcomes, errors.Join(err, d.show.close())
}

// background draws and asks for steps until stop is called, which waits for both.
func (d *driver) background(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() { d.show.run(ctx) })
	if d.socket != "" && d.wait {
		running.Go(func() { d.steps(ctx) })
	}
	return func() {
		cancel()
		running.Wait()
	}
}

// steps asks how far the operations are. That it cannot be told is said once:
// the transitions go on.
func (d *driver) steps(ctx context.Context) {
	tick := time.NewTicker(stepsPause)
	defer tick.Stop()
	said := false
	for {
		ops, err := askOperations(ctx, d.socket)
		switch {
		case ctx.Err() != nil:
			return
		case err == nil:
			for _, op := range ops.Operations {
				d.show.step(op)
			}
			said = false
		case !said:
			d.show.note("steps are not known: " + err.Error())
			said = true
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func (d *driver) finish(out *outcome, k kind, m *pb.Machine, err error) {
	out.err = err
	if err != nil {
		out.Error = err.Error()
	}
	if m != nil {
		data, jsonErr := compactJSON(m)
		out.Machine, out.err = data, errors.Join(out.err, jsonErr)
	}
	d.show.end(out.MachineID, k, m, out.OperationID, err)
}

func (d *driver) call(ctx context.Context, k kind, o *order, id string) (*pb.TransitionAck, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	ack, err := k.call(ctx, d.client, id, o)
	if err != nil {
		return nil, d.client.how.explain(k.name+" "+printable(id), err)
	}
	if d.wait {
		d.show.accepted(id, k, ack.GetOperationId())
	}
	return ack, nil
}

// judge says whether a machine that has settled is where it should be.
func judge(k kind, m *pb.Machine, took time.Duration) error {
	took = took.Round(10 * time.Millisecond)
	switch m.GetState() {
	case k.end:
		return nil
	case pb.MachineState_MACHINE_STATE_FAILED:
		return fmt.Errorf("%s %s: FAILED after %s: %s\n%s", k.name, printable(m.GetId()), took, printable(m.GetLastError()), failedAdvice(m))
	default:
		return fmt.Errorf("%s %s: the machine is %s and not %s: %w", k.name, printable(m.GetId()), stateName(m.GetState()), stateName(k.end), errTaken)
	}
}

// settle waits until the machine is in a state at rest. A provider that
// restarts meanwhile is waited for: the operation goes on. The machine is
// returned as it was seen last, also with an error.
func (d *driver) settle(ctx context.Context, k kind, id string, m *pb.Machine, pause time.Duration) (*pb.Machine, error) {
	wait, cancel := context.WithTimeout(ctx, d.timeout)
	defer cancel()
	tick := time.NewTicker(pause)
	defer tick.Stop()
	lost := false
	for {
		d.show.seen(id, k, m)
		if !lost && !underWay(m.GetState()) {
			return m, nil
		}
		select {
		case <-tick.C:
		case <-wait.Done():
			why := fmt.Sprintf("waited %s, see --timeout", d.timeout)
			if ctx.Err() != nil {
				why = "interrupted"
			}
			return m, fmt.Errorf("%s %s: stopped waiting while it is %s (%s); the operation goes on: capacityctl get %s shows it, and the same call again waits for it",
				k.name, printable(id), stateName(m.GetState()), why, printable(id))
		}
		next, err := d.client.get(wait, id)
		switch code := status.Code(err); {
		case err == nil:
			m, lost = next, false
		case wait.Err() != nil: // said above
		case code == codes.Unavailable || code == codes.DeadlineExceeded:
			if !lost {
				d.show.note("the provider does not answer; waiting for it")
			}
			lost = true
		default:
			return m, d.client.how.explain("get "+printable(id), err)
		}
	}
}
