package main

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "bigfleet-providers/proto/bigfleet/v1alpha1"
)

// keep has every machine deleted, which a substrate of physical servers knows
// nothing of.
func (p *play) keep(ctx context.Context) (string, error) {
	for _, m := range p.fleet.machines {
		_, err := p.shard.delete(ctx, m.GetId(), p.shard.next())
		if got := status.Code(err); got != codes.Unimplemented {
			return "", fmt.Errorf("a Delete of %s was answered with %s, want %s", m.GetId(), got, codes.Unimplemented)
		}
		m.event = "kept"
	}
	if err := p.look(ctx); err != nil {
		return "", err
	}
	if !p.fleet.all(pb.MachineState_MACHINE_STATE_IDLE) {
		return "", errors.New("a Delete changed a machine: " + p.fleet.behind(pb.MachineState_MACHINE_STATE_IDLE))
	}
	return "every Delete is UNIMPLEMENTED, every machine is IDLE", nil
}

// auditMetal counts orders: there must be as many servers as machines.
func (p *play) auditMetal(ctx context.Context) (string, error) {
	count, err := p.count(ctx)
	if err != nil {
		return "", err
	}
	known := map[string]bool{}
	for _, m := range p.fleet.machines {
		known[hostID(m.GetHost())] = true
	}
	var errs []error
	for _, s := range count.servers {
		if !known[s.ID] {
			errs = append(errs, fmt.Errorf("server %s (%s) in %s was ordered, and no machine has it", s.Name, s.ID, s.Zone))
		}
	}
	if len(count.servers) != p.want {
		errs = append(errs, fmt.Errorf("%d servers were ordered for %d machines", len(count.servers), p.want))
	}
	if err := errors.Join(append(errs, p.takeLeave())...); err != nil {
		return "", err
	}
	return fmt.Sprintf("%s for %s; they bill until somebody gives them back", number(len(count.servers), "order"), number(p.want, "machine")), nil
}
