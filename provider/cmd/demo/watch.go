package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "bigfleet-providers/proto/bigfleet/v1alpha1"
)

// frame is how often the play looks at the machines and redraws the table.
const frame = 100 * time.Millisecond

// each makes a call on every machine and returns the operation ids.
func (p *play) each(ctx context.Context, name string, c call) (map[string]string, error) {
	operations := map[string]string{}
	defer func() { p.screen.show(p.fleet.rows()) }()
	for _, m := range p.fleet.machines {
		ack, err := func() (*pb.TransitionAck, error) {
			ctx, cancel := context.WithTimeout(ctx, callTimeout)
			defer cancel()
			return c(ctx, m.GetId(), p.shard.next())
		}()
		if err != nil {
			return nil, fmt.Errorf("%s %s: %w", name, m.GetId(), err)
		}
		op := ack.GetOperationId()
		operations[m.GetId()] = op
		m.update(ack.GetMachine(), time.Now())
		m.event = "op " + abbreviate(op)
		if op == m.op { // a retry of what is over
			m.event = "same " + abbreviate(op)
		}
		m.op = op
	}
	return operations, nil
}

// mark notes an event on the machines that a run is known of.
func (p *play) mark(runs []scriptRun, event string) {
	for _, m := range p.fleet.machines {
		for _, r := range runs {
			if r.machine == m.GetId() {
				m.event = event
			}
		}
	}
}

// reach waits until every machine is in the state.
func (p *play) reach(ctx context.Context, state pb.MachineState) error {
	err := p.until(ctx, "every machine to be "+word(state), func() (bool, error) { return p.fleet.all(state), nil })
	if err != nil && ctx.Err() != nil {
		return fmt.Errorf("%w; %s", err, p.fleet.behind(state))
	}
	return err
}

// until looks at the machines, frame by frame, until done says so, a machine
// fails, a program dies or the time is up.
func (p *play) until(ctx context.Context, what string, done func() (bool, error)) error {
	tick := time.NewTicker(frame)
	defer tick.Stop()
	for {
		if err := p.look(ctx); err != nil {
			return err
		}
		if ok, err := done(); ok || err != nil {
			p.screen.show(p.fleet.rows())
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("waited for %s", what)
		}
	}
}

// look refreshes the picture, as far as there is a provider to ask, and draws
// it.
func (p *play) look(ctx context.Context) error {
	if err := p.stage.check(); err != nil {
		return err
	}
	if p.stage.provider != nil {
		if err := p.fleet.refresh(ctx); err != nil {
			return err
		}
	}
	p.screen.show(p.fleet.rows())
	return p.fleet.failed()
}

// providerReady waits until the provider answers.
func (p *play) providerReady(ctx context.Context) error {
	for {
		if err := p.stage.check(); err != nil {
			return err
		}
		attempt, cancel := context.WithTimeout(ctx, 10*frame)
		_, err := p.shard.client.List(attempt, &pb.ListFilter{MaxResults: 1}, grpc.WaitForReady(true))
		cancel()
		switch code := status.Code(err); {
		case code == codes.OK:
			return nil
		case ctx.Err() != nil:
			return errors.New("waited for the provider to answer on " + p.stage.addr)
		case code != codes.DeadlineExceeded && code != codes.Unavailable:
			return fmt.Errorf("list: %w", err)
		}
	}
}
