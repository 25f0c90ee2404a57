package operator

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"

	pb "bigfleet-providers/proto/bigfleet/v1alpha1"
)

const (
	speculative = pb.MachineState_MACHINE_STATE_SPECULATIVE
	creating    = pb.MachineState_MACHINE_STATE_CREATING
	idle        = pb.MachineState_MACHINE_STATE_IDLE
	configured  = pb.MachineState_MACHINE_STATE_CONFIGURED
	failed      = pb.MachineState_MACHINE_STATE_FAILED
)

func fleet() []*pb.Machine {
	return []*pb.Machine{
		{Id: "c", State: idle, InstanceType: "GP1-XS", PricePerHour: 0.1, CapacityType: pb.CapacityType_CAPACITY_TYPE_ON_DEMAND, Host: &pb.HostRef{Provider: "p", Ref: "fr-par-1/1"}},
		{Id: "a", State: failed, InstanceType: "DEV1-S", PricePerHour: 0.2, LastError: "Create failed \x1b[31mred\x1b[0m\nand " + strings.Repeat("long ", 40)},
		{
			Id: "b", State: configured, InstanceType: "DEV1-S", PricePerHour: 0.05, Cluster: "prod", ShardMetadata: map[string]string{"k": "v\x00"},
			Labels: map[string]string{"zone": "x", "arch": "amd64"}, Resources: &pb.Resources{Resources: map[string]string{"cpu": "2"}},
		},
	}
}

// ids returns the first column of a table.
func ids(table string) string {
	var out []string
	for line := range strings.Lines(table) {
		f := strings.Fields(line)
		if len(f) == 0 {
			break
		}
		out = append(out, f[0])
	}
	return strings.Join(out, " ")
}

func TestList(t *testing.T) {
	s := &scripted{machines: fleet(), revision: 7}
	addr := serve(t, s, nil)
	for sort, want := range map[string]string{
		"id": "ID a b c", "changed": "ID c a b", "price": "ID b c a", "state": "ID c b a", "type": "ID a b c", "cluster": "ID c a b",
	} {
		code, stdout, stderr := capacityctl("list", "--insecure", "--addr="+addr, "--sort="+sort)
		if code != exitOK || ids(stdout) != want {
			t.Errorf("--sort=%s: %q (exit code %d, %s), want %q", sort, ids(stdout), code, stderr, want)
		}
		if strings.ContainsRune(stdout, '\x1b') || !strings.Contains(stdout, "…") || !strings.Contains(stdout, "3 machines: 1 IDLE, 1 CONFIGURED, 1 FAILED\n") {
			t.Errorf("--sort=%s:\n%s", sort, stdout)
		}
	}
	code, stdout, stderr := capacityctl("list", "--insecure", "--addr="+addr, "--state=Idle,failed", "--state", "DRAINING", "-o", "json")
	var l pb.MachineList
	if err := protojson.Unmarshal([]byte(stdout), &l); code != exitOK || err != nil {
		t.Fatalf("exit code %d, %v: %s", code, err, stderr)
	}
	want := fleet()
	if diff := cmp.Diff(&pb.MachineList{Machines: []*pb.Machine{want[1], want[0]}, Revision: []byte{7}}, &l, protocmp.Transform()); diff != "" {
		t.Errorf("JSON (-want +got):\n%s", diff)
	}
	asked := s.filters[len(s.filters)-1].GetStates()
	if diff := cmp.Diff([]pb.MachineState{idle, failed, pb.MachineState_MACHINE_STATE_DRAINING}, asked); diff != "" {
		t.Errorf("states asked for (-want +got):\n%s", diff)
	}
}

func TestGet(t *testing.T) {
	addr := serve(t, &scripted{machines: fleet()}, nil)
	code, stdout, stderr := capacityctl("get", "b", "--insecure", "--addr="+addr)
	for _, want := range []string{"CONFIGURED", "prod", "cpu=2", "arch=amd64 zone=x", "1 keys"} {
		if code != exitOK || !strings.Contains(stdout, want) {
			t.Errorf("exit code %d, no %q in:\n%s%s", code, want, stdout, stderr)
		}
	}
	code, stdout, _ = capacityctl("get", "a", "--insecure", "--addr="+addr)
	if code != exitOK || !strings.Contains(stdout, strings.Repeat("long ", 39)) || strings.ContainsRune(stdout, '\x1b') {
		t.Errorf("the error is not shown whole, or commands the terminal:\n%q", stdout)
	}
	code, stdout, _ = capacityctl("get", "b", "--insecure", "--addr="+addr, "-o=json")
	var m pb.Machine
	if err := protojson.Unmarshal([]byte(stdout), &m); code != exitOK || err != nil || !proto.Equal(&m, fleet()[2]) {
		t.Errorf("exit code %d, %v: %s", code, err, stdout)
	}
	if code, _, stderr := capacityctl("get", "z", "--insecure", "--addr="+addr); code != exitFailed || !strings.Contains(stderr, "NOT_FOUND") {
		t.Errorf("exit code %d: %s", code, stderr)
	}
}

// await waits for text in what a command prints.
func await(t *testing.T, out *output, text string) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); !strings.Contains(out.String(), text); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("it never printed %q:\n%s", text, out.String())
		}
	}
}

// everything selects all machines.
func everything(*pb.Machine) bool { return true }

// watching runs a watch until the test ends.
func watching(t *testing.T, s *scripted, json bool) (out, notes *output) {
	t.Helper()
	conn := &connection{addr: serve(t, s, nil), insecure: true}
	c, err := conn.dial()
	if err != nil {
		t.Fatal(err)
	}
	out, notes = new(output), new(output)
	w := &watcher{follower: follow(c, everything), out: out, notes: notes, json: json}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.run(ctx, 5*time.Millisecond, false) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Errorf("an interrupted watch is an error: %v", err)
		}
		if err := c.close(); err != nil {
			t.Error(err)
		}
	})
	await(t, notes, "watching 3 machines")
	return out, notes
}

func TestWatch(t *testing.T) {
	s := &scripted{machines: fleet()}
	out, notes := watching(t, s, false)
	s.edit(func() {
		s.set(&pb.Machine{Id: "c", State: configured, InstanceType: "GP1-XS", PricePerHour: 0.1, Host: &pb.HostRef{Ref: "fr-par-1/1"}, Cluster: "prod"})
	})
	await(t, out, "  c  IDLE -> CONFIGURED  cluster prod\n")
	s.edit(func() { s.set(&pb.Machine{Id: "d", State: speculative, PricePerHour: 1}) })
	await(t, out, "  d  SPECULATIVE\n")
	s.edit(func() { s.machines = s.machines[1:] })
	await(t, out, "  a  gone from the list\n")

	s.edit(func() { s.fail = status.Error(codes.Unavailable, "stopping") })
	await(t, notes, "UNAVAILABLE: stopping")
	s.edit(func() {
		s.fail = nil
		s.set(&pb.Machine{Id: "d", State: creating, PricePerHour: 1})
	})
	await(t, out, "  d  SPECULATIVE -> CREATING\n")
	await(t, notes, "answers again")
	if n := strings.Count(notes.String(), "UNAVAILABLE"); n != 1 {
		t.Errorf("one outage was reported %d times", n)
	}
	if n := strings.Count(out.String(), "\n"); n != 4 {
		t.Errorf("%d lines, want 4: what is known is shown again:\n%s", n, out.String())
	}
}

func TestWatchJSON(t *testing.T) {
	s := &scripted{machines: fleet()}
	out, _ := watching(t, s, true)
	s.edit(func() { s.set(&pb.Machine{Id: "c", State: configured}) })
	await(t, out, "\n")
	s.edit(func() { s.machines = s.machines[1:] })
	await(t, out, "gone")
	lines := strings.SplitAfter(out.String(), "\n")
	var first, second change
	if err := json.Unmarshal([]byte(lines[0]), &first); err != nil {
		t.Fatal(err)
	}
	var m pb.Machine
	if err := protojson.Unmarshal(first.Machine, &m); err != nil || m.GetId() != "c" || m.GetState() != configured || first.Time.IsZero() {
		t.Errorf("%s: %v", lines[0], err)
	}
	if err := json.Unmarshal([]byte(lines[1]), &second); err != nil || second.Gone != "a" {
		t.Errorf("%s: %v", lines[1], err)
	}
}
