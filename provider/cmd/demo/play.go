package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "bigfleet-providers/proto/bigfleet/v1alpha1"
)

// epoch of the shard; the one before it belongs to a leader that was replaced.
const epoch = 7

const cluster = "prod-1"

// metadata must come back byte for byte; a NUL is what careless code loses.
var metadata = map[string]string{"pool": "general", "opaque": "a\x00b\n"}

// play is the script. All of it runs on one goroutine.
type play struct {
	stage  *stage
	screen *screen
	want   int // machines

	shard  *shard
	fleet  *fleet
	script *joinScript
	// configured are the operation ids of the Configure calls, by machine.
	configured map[string]string
}

// part is a part of the play.
type part struct {
	title, claim string
	act          func(context.Context) (proof string, err error)
}

// run plays every part; the first that fails ends the play.
func (p *play) run(ctx context.Context) error {
	parts := []part{
		{"Start", "A caller without a certificate of the right authority does not get in.", p.start},
		{"Create", "A slot becomes a server whose agent has called home; only then is it IDLE.", p.create},
		{"Fencing", "A leader that was replaced, or one who borrows a name, changes nothing.", p.fence},
		{"Configure", "The join script reaches each host over the bootstrap channel and runs there.", p.configure},
		{"kill -9", "The provider dies in the middle; the hosts finish without it, and report later.", p.kill},
		{"Restart", "Nothing is lost or done twice. Each host comes back in its own time, mostly within 20 s.", p.restart},
		{"Drain", "A host leaves its cluster and is IDLE again; it keeps its server.", p.drain},
		{"Delete", "A server and its volumes are given back; the slot is free again.", p.delete},
		{"Audit", "Provider, cloud and machines agree that nothing is left.", p.audit},
	}
	if p.stage.metal {
		parts = append(parts[:len(parts)-2],
			part{"Delete", "A physical server is given back by people only; nothing is touched.", p.keep},
			part{"Audit", "One order a machine, over the kill; every server is in the pool.", p.auditMetal})
	}
	for i, part := range parts {
		p.screen.heading(i+1, part.title, part.claim)
		if ctx.Err() != nil { // nobody watches, or told to stop between two parts
			return context.Cause(ctx)
		}
		proof, err := part.act(ctx)
		if err != nil {
			if ctx.Err() != nil {
				err = errors.Join(context.Cause(ctx), err)
			}
			return fmt.Errorf("%s: %w", part.title, err)
		}
		p.screen.proved(proof)
	}
	return nil
}

// leave closes what run opened.
func (p *play) leave() error {
	if p.shard == nil {
		return nil
	}
	return p.shard.close()
}

func (p *play) start(ctx context.Context) (string, error) {
	var err error
	if p.script, err = newJoinScript(p.stage.dir); err != nil {
		return "", err
	}
	if p.shard, err = dial(p.stage.addr, p.stage.certs.shard, shardID, epoch); err != nil {
		return "", err
	}
	if err := p.stage.startCloud(); err != nil {
		return "", err
	}
	if err := p.cloudReady(ctx); err != nil {
		return "", err
	}
	if err := p.stage.startProvider(p.want); err != nil {
		return "", err
	}
	if err := p.providerReady(ctx); err != nil {
		return "", err
	}

	stranger, err := dial(p.stage.addr, p.stage.certs.stranger, shardID, epoch)
	if err != nil {
		return "", err
	}
	_, err = stranger.client.List(ctx, &pb.ListFilter{})
	if code := status.Code(err); code != codes.Unavailable {
		return "", errors.Join(fmt.Errorf("a client without a certificate was answered with %s, not cut off", code), stranger.close())
	}
	if err := stranger.close(); err != nil {
		return "", err
	}
	if p.fleet, err = discover(ctx, p.shard, p.want); err != nil {
		return "", err
	}
	p.screen.show(p.fleet.rows())
	return number(p.want, "slot") + " offered over mutual TLS; no answer without a client certificate", nil
}

func (p *play) create(ctx context.Context) (string, error) {
	if _, err := p.each(ctx, "create", p.shard.create); err != nil {
		return "", err
	}
	if err := p.reach(ctx, pb.MachineState_MACHINE_STATE_IDLE); err != nil {
		return "", err
	}
	count, err := p.count(ctx)
	if err != nil {
		return "", err
	}
	hosts, err := p.stage.hosts()
	if err != nil {
		return "", err
	}
	if len(count.servers) != p.want || len(hosts) < p.want {
		return "", fmt.Errorf("%d machines are IDLE, and there are %d servers at the cloud and %d processes that stand for them", p.want, len(count.servers), len(hosts))
	}
	if p.stage.metal {
		return fmt.Sprintf("%s; %s at the cloud, installed; an agent on each", number(p.want, "machine"), number(len(count.servers), "dedicated server")), nil
	}
	return fmt.Sprintf("%s; %s and %s at the cloud; an agent on each",
		number(p.want, "machine"), number(len(count.servers), "server"), number(len(count.volumes), "volume")), nil
}

// fence makes calls that must be refused and looks whether anything changed.
func (p *play) fence(ctx context.Context) (string, error) {
	victim := p.fleet.machines[0]
	refused := []struct {
		who   string
		token token
		want  codes.Code
	}{
		{"by the leader of the epoch before", token{shardID, epoch - 1, 1 << 40}, codes.FailedPrecondition},
		{"that a newer call overtook", token{shardID, epoch, 1}, codes.FailedPrecondition},
		{"in the name of another shard", token{"other-shard", epoch, 1}, codes.PermissionDenied},
	}
	// What would do harm. Where nothing can be deleted, that is another binding.
	name, harm := "Delete", call(p.shard.delete)
	if p.stage.metal {
		name, harm = "Configure", p.shard.configure("another-cluster", nil, nil)
	}
	for _, r := range refused {
		_, err := harm(ctx, victim.GetId(), r.token)
		if got := status.Code(err); got != r.want {
			return "", fmt.Errorf("a %s of %s %s was answered with %s, want %s", name, victim.GetId(), r.who, got, r.want)
		}
		victim.event = "refused"
		p.screen.say("a %s %s: %s", name, r.who, r.want)
		if err := p.look(ctx); err != nil {
			return "", err
		}
	}
	if !p.fleet.all(pb.MachineState_MACHINE_STATE_IDLE) {
		return "", errors.New("a refused call changed a machine: " + p.fleet.behind(pb.MachineState_MACHINE_STATE_IDLE))
	}
	return fmt.Sprintf("%d bad calls refused, every machine still IDLE", len(refused)), nil
}

func (p *play) configure(ctx context.Context) (string, error) {
	var err error
	p.configured, err = p.each(ctx, "configure", p.shard.configure(cluster, p.script.blob(), metadata))
	if err != nil {
		return "", err
	}
	err = p.until(ctx, "every host to run its join script", func() (bool, error) {
		runs, err := p.script.begun()
		p.mark(runs, "script runs")
		return len(runs) >= p.want, err
	})
	if err != nil {
		return "", err
	}
	if !p.fleet.all(pb.MachineState_MACHINE_STATE_CONFIGURING) {
		return "", errors.New("the scripts are not over, and yet: " + p.fleet.behind(pb.MachineState_MACHINE_STATE_CONFIGURING))
	}
	return "every host is in its join script, every machine is CONFIGURING", nil
}

func (p *play) kill(ctx context.Context) (string, error) {
	pid := p.stage.provider.cmd.Process.Pid
	p.stage.killProvider()
	for _, m := range p.fleet.machines {
		m.event = "no provider"
	}
	if err := p.script.release(); err != nil {
		return "", err
	}
	err := p.until(ctx, "every host to finish its join script", func() (bool, error) {
		runs, err := p.script.ended()
		p.mark(runs, "script done")
		return len(runs) >= p.want, err
	})
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("provider (pid %d) killed; %s finished without it", pid, number(p.want, "host")), nil
}

func (p *play) restart(ctx context.Context) (string, error) {
	if err := p.stage.startProvider(p.want); err != nil {
		return "", err
	}
	if err := p.providerReady(ctx); err != nil {
		return "", err
	}
	if err := p.reach(ctx, pb.MachineState_MACHINE_STATE_CONFIGURED); err != nil {
		return "", err
	}
	again, err := p.each(ctx, "configure again", p.shard.configure(cluster, p.script.blob(), metadata))
	if err != nil {
		return "", err
	}
	if !maps.Equal(again, p.configured) {
		return "", fmt.Errorf("a retry must give the operation ids from before the kill: had %v, got %v", p.configured, again)
	}
	if err := p.script.ranOnce(p.configured); err != nil {
		return "", err
	}
	for _, m := range p.fleet.machines {
		if m.GetCluster() != cluster || !maps.Equal(m.GetShardMetadata(), metadata) {
			return "", fmt.Errorf("%s came back bound to %q with metadata %q, want %q and %q", m.GetId(), m.GetCluster(), m.GetShardMetadata(), cluster, metadata)
		}
	}
	return "CONFIGURED under the old operation ids; each join script ran once", nil
}

func (p *play) drain(ctx context.Context) (string, error) {
	hosts := map[string]string{}
	for _, m := range p.fleet.machines {
		hosts[m.GetId()] = m.GetHost().GetRef()
	}
	if _, err := p.each(ctx, "drain", p.shard.drain(time.Second)); err != nil {
		return "", err
	}
	if err := p.reach(ctx, pb.MachineState_MACHINE_STATE_IDLE); err != nil {
		return "", err
	}
	for _, m := range p.fleet.machines {
		if m.GetCluster() != "" || m.GetHost().GetRef() != hosts[m.GetId()] {
			return "", fmt.Errorf("%s is IDLE, bound to %q on host %s; want no cluster and host %s", m.GetId(), m.GetCluster(), m.GetHost().GetRef(), hosts[m.GetId()])
		}
	}
	return "no machine is bound, each kept its host", nil
}

func (p *play) delete(ctx context.Context) (string, error) {
	if _, err := p.each(ctx, "delete", p.shard.delete); err != nil {
		return "", err
	}
	if err := p.reach(ctx, pb.MachineState_MACHINE_STATE_SPECULATIVE); err != nil {
		return "", err
	}
	return "free again: " + number(p.want, "slot"), nil
}
