package hosttest

import (
	"context"
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	pb "bigfleet-providers/proto/bigfleet/v1alpha1"
	"bigfleet-providers/provider/internal/fakecloud/nspawn"
)

// CreateTime bounds a Create: a boot, and an installation that may have to wait.
const CreateTime = 3 * time.Minute

// Machine is a machine of a provider, and the guest behind it.
type Machine struct {
	ID      string
	Cluster string // the id that Configure gives
	Grace   int64  // of Drain, in seconds

	provider *Provider
	server   string
}

// Call is what a shard asks for.
type Call string

// The calls.
const (
	Create    Call = "Create"
	Configure Call = "Configure"
	Drain     Call = "Drain"
	Delete    Call = "Delete"
)

// Machine picks a machine that nothing was done with.
func (p *Provider) Machine(t *testing.T) *Machine { return p.Machines(t, 1)[0] }

// Machines picks several.
func (p *Provider) Machines(t *testing.T, n int) []*Machine {
	t.Helper()
	l, err := p.List(t.Context(), &pb.ListFilter{States: []pb.MachineState{pb.MachineState_MACHINE_STATE_SPECULATIVE}})
	if err != nil || len(l.GetMachines()) < n {
		t.Fatalf("%d machines are SPECULATIVE, want %d: %v", len(l.GetMachines()), n, err)
	}
	var out []*Machine
	for _, m := range l.GetMachines()[:n] {
		out = append(out, &Machine{ID: m.GetId(), Cluster: "c1", Grace: 5, provider: p})
	}
	return out
}

// Ask sends a call and returns the operation's id. The blob is Configure's.
func (m *Machine) Ask(t *testing.T, call Call, blob string) string {
	t.Helper()
	p := m.provider
	p.sequence++
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	var ack *pb.TransitionAck
	var err error
	switch call {
	case Create:
		ack, err = p.Create(ctx, &pb.CreateRequest{MachineId: m.ID, ShardId: "s", ShardEpoch: 1, SequenceNumber: p.sequence})
	case Configure:
		ack, err = p.Configure(ctx, &pb.ConfigureRequest{MachineId: m.ID, ClusterId: m.Cluster, BootstrapBlob: []byte(blob), ShardId: "s", ShardEpoch: 1, SequenceNumber: p.sequence})
	case Drain:
		ack, err = p.Drain(ctx, &pb.DrainRequest{MachineId: m.ID, GracePeriodSeconds: m.Grace, ShardId: "s", ShardEpoch: 1, SequenceNumber: p.sequence})
	case Delete:
		ack, err = p.Delete(ctx, &pb.DeleteRequest{MachineId: m.ID, ShardId: "s", ShardEpoch: 1, SequenceNumber: p.sequence})
	default:
		t.Fatalf("no call is named %q", call)
	}
	if err != nil {
		t.Fatalf("%s: %v", call, err)
	}
	return ack.GetOperationId()
}

// Do sends a call and waits for its end.
func (m *Machine) Do(t *testing.T, call Call, blob string) {
	t.Helper()
	end := map[Call]pb.MachineState{
		Create: pb.MachineState_MACHINE_STATE_IDLE, Configure: pb.MachineState_MACHINE_STATE_CONFIGURED,
		Drain: pb.MachineState_MACHINE_STATE_IDLE, Delete: pb.MachineState_MACHINE_STATE_SPECULATIVE,
	}[call]
	m.Ask(t, call, blob)
	m.Await(t, end, CreateTime)
}

// Get is the machine as the provider shows it.
func (m *Machine) Get(t *testing.T) *pb.Machine {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	got, err := m.provider.Get(ctx, &pb.MachineRef{Id: m.ID})
	if err != nil {
		t.Fatalf("Get: %v", err)
	}
	return got
}

// Await waits until the machine is in the state.
func (m *Machine) Await(t *testing.T, want pb.MachineState, within time.Duration) *pb.Machine {
	t.Helper()
	var got *pb.Machine
	Await(t, within, fmt.Sprintf("%s is %s", m.ID, want), func() bool {
		m.provider.world.check(t)
		got = m.Get(t)
		if got.GetState() != want && got.GetState() == pb.MachineState_MACHINE_STATE_FAILED {
			t.Fatalf("%s is FAILED: %s", m.ID, got.GetLastError())
		}
		return got.GetState() == want
	})
	return got
}

// Server is the id of the machine's server; it waits for the order.
func (m *Machine) Server(t *testing.T) string {
	t.Helper()
	if m.server != "" {
		return m.server
	}
	Await(t, startTime, "a server for "+m.ID, func() bool {
		for _, s := range m.provider.world.Cloud.Servers() {
			for _, tag := range s.Tags {
				if strings.HasSuffix(tag, "="+m.ID) {
					m.server = s.ID
				}
			}
		}
		return m.server != ""
	})
	return m.server
}

// UserData is what the cloud gave the machine's server at its first boot.
func (m *Machine) UserData(t *testing.T) []byte {
	t.Helper()
	server := m.Server(t)
	for _, s := range m.provider.world.Cloud.Servers() {
		if s.ID == server {
			return s.FirstBoot
		}
	}
	t.Fatalf("server %s is gone", server)
	return nil
}

// Guest is the machine's guest; it waits until it boots.
func (m *Machine) Guest(t *testing.T) *Guest {
	t.Helper()
	return m.provider.world.Guest(t, m.Server(t))
}

// Guest is the guest of a server; it waits until it boots.
func (w *World) Guest(t *testing.T, server string) *Guest {
	t.Helper()
	var g *nspawn.Guest
	Await(t, startTime, "the guest of server "+server+" boots", func() bool {
		w.check(t)
		g = w.Hosts.Guest(server)
		if g == nil {
			return false
		}
		_, err := g.Leader()
		return err == nil
	})
	return &Guest{g}
}

// Guest is a booted system, with what tests do in one.
type Guest struct{ *nspawn.Guest }

// Run runs a script in the guest, which has to succeed, and returns what it
// printed, without the last newline.
func (g *Guest) Run(t *testing.T, script string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	out, err := g.Shell(ctx, script)
	if err != nil {
		t.Fatalf("%s\n%v", script, err)
	}
	return strings.TrimRight(out, "\n")
}

// Holds tells whether a script succeeds in the guest now.
func (g *Guest) Holds(t *testing.T, script string) bool {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	_, err := g.Shell(ctx, script)
	return err == nil
}

// AwaitTrue waits until a script succeeds in the guest.
func (g *Guest) AwaitTrue(t *testing.T, within time.Duration, script string) {
	t.Helper()
	Await(t, within, "in the guest: "+script, func() bool { return g.Holds(t, script) })
}

// AwaitBooted waits until cloud-init is done and returns its status.
func (g *Guest) AwaitBooted(t *testing.T) string {
	t.Helper()
	g.AwaitTrue(t, 2*time.Minute, "cloud-init status | grep -qE 'done|error|disabled'")
	return g.Run(t, "cloud-init status --long || true")
}

// Journal is the agent's log in the guest.
func (g *Guest) Journal(t *testing.T) string {
	t.Helper()
	return g.Run(t, "journalctl --no-pager --output=short-precise --unit=bigfleet-agent.service")
}

// Start runs a script in the guest in the background, until the test ends.
func (g *Guest) Start(t *testing.T, script string) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	cmd, err := g.Command(ctx, "/bin/sh", "-c", script)
	if err != nil {
		t.Fatal(err)
	}
	start(t, cmd, cancel)
}

func start(t *testing.T, cmd *exec.Cmd, cancel context.CancelFunc) {
	t.Helper()
	if err := cmd.Start(); err != nil {
		cancel()
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = cmd.Wait() // it is killed, as a rule
	}()
	t.Cleanup(func() { cancel(); <-done })
}

// Reboot has the guest boot again and waits until it does.
func (g *Guest) Reboot(t *testing.T) {
	t.Helper()
	before, err := g.Leader()
	if err != nil {
		t.Fatal(err)
	}
	g.Run(t, "systemctl --no-block reboot")
	g.awaitOther(t, before)
}

// Cut cuts the guest's power, as far as its processes can tell, and waits until
// it boots again.
func (g *Guest) Cut(t *testing.T) {
	t.Helper()
	before, err := g.Leader()
	if err != nil {
		t.Fatal(err)
	}
	// reboot(2) without a shutdown. Nothing is left to answer.
	_ = g.Holds(t, "systemctl reboot --force --force")
	g.awaitOther(t, before)
}

// awaitOther waits until the guest has another PID 1.
func (g *Guest) awaitOther(t *testing.T, before int) {
	t.Helper()
	Await(t, 2*time.Minute, "the guest boots again", func() bool {
		now, err := g.Leader()
		return err == nil && now != before
	})
}
