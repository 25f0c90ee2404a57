package operator

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
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
	if diff := cmp.Diff(&pb.MachineList{Machines: []*pb.Machine{want[1], want[2], want[0]}, Revision: []byte{7}}, &l, protocmp.Transform()); diff != "" {
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

// watching runs a watch until the test ends.
func watching(t *testing.T, s *scripted, json bool) (w *watcher, out, notes *output) {
	t.Helper()
	conn := &connection{addr: serve(t, s, nil), insecure: true}
	c, err := conn.dial()
	if err != nil {
		t.Fatal(err)
	}
	out, notes = new(output), new(output)
	w = &watcher{client: c, out: out, notes: notes, json: json, known: map[string]*pb.Machine{}, only: map[string]bool{}}
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
	return w, out, notes
}

func TestWatch(t *testing.T) {
	s := &scripted{machines: fleet()}
	_, out, notes := watching(t, s, false)
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
	_, out, _ := watching(t, s, true)
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

// settle makes every transition end well at the second look.
func settle(m *pb.Machine) {
	switch m.GetState() {
	case creating:
		m.State, m.Host = idle, &pb.HostRef{Ref: "fr-par-1/9"}
	case pb.MachineState_MACHINE_STATE_CONFIGURING:
		m.State, m.Cluster = configured, "prod"
	case pb.MachineState_MACHINE_STATE_DRAINING:
		m.State, m.Cluster = idle, ""
	default:
		m.State, m.Host = speculative, nil
	}
}

func TestWalk(t *testing.T) {
	s := &scripted{machines: []*pb.Machine{{Id: "m", State: speculative}}, move: settle}
	addr := serve(t, s, nil)
	blob := filepath.Join(t.TempDir(), "blob")
	if err := os.WriteFile(blob, []byte("join\x00me"), 0o600); err != nil {
		t.Fatal(err)
	}
	code, stdout, stderr := capacityctl("walk", "m", "create", "configure", "drain", "delete", "--insecure", "--addr="+addr,
		"--cluster=prod", "--blob-file="+blob, "--grace=90s", "--shard=mine", "--epoch=5")
	if code != exitOK {
		t.Fatalf("exit code %d: %s", code, stderr)
	}
	want := []proto.Message{
		&pb.CreateRequest{MachineId: "m", ShardId: "mine", ShardEpoch: 5, SequenceNumber: 1},
		&pb.ConfigureRequest{MachineId: "m", ClusterId: "prod", BootstrapBlob: []byte("join\x00me"), ShardId: "mine", ShardEpoch: 5, SequenceNumber: 2},
		&pb.DrainRequest{MachineId: "m", GracePeriodSeconds: 90, ShardId: "mine", ShardEpoch: 5, SequenceNumber: 3},
		&pb.DeleteRequest{MachineId: "m", ShardId: "mine", ShardEpoch: 5, SequenceNumber: 4},
	}
	if diff := cmp.Diff(want, s.calls, protocmp.Transform()); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
	for _, line := range []string{"create     accepted, operation op-1", "create     CREATING", "host fr-par-1/9\n", "configure  CONFIGURED after ", "cluster prod\n", "delete     SPECULATIVE after "} {
		if !strings.Contains(stdout, line) {
			t.Errorf("no %q in:\n%s", line, stdout)
		}
	}
	if strings.Contains(stdout, "me") && strings.Contains(stdout, "join") {
		t.Errorf("the blob is shown:\n%s", stdout)
	}

	before := time.Now().Unix()
	if code, _, stderr := capacityctl("walk", "m", "create", "configure", "--insecure", "--addr="+addr, "--cluster=prod", "--blob-file=-"); code != exitOK {
		t.Fatalf("exit code %d: %s", code, stderr)
	}
	last := s.calls[len(s.calls)-1].(*pb.ConfigureRequest)
	if last.GetShardId() != "capacityctl" || last.GetShardEpoch() < before || string(last.GetBootstrapBlob()) != "from stdin" {
		t.Errorf("without flags: %v", last)
	}
}

func TestWalkThatFails(t *testing.T) {
	s := &scripted{machines: []*pb.Machine{{Id: "m", State: speculative}}}
	addr := serve(t, s, nil)
	walk := func(args ...string) (int, string, string) {
		s.edit(func() { s.machines[0] = &pb.Machine{Id: "m", State: speculative} })
		return capacityctl(append([]string{"walk", "m", "create", "--insecure", "--addr=" + addr}, args...)...)
	}
	s.move = func(m *pb.Machine) { m.State, m.LastError = failed, "Create failed: raise the quota" }
	code, _, stderr := walk("delete")
	if code != exitFailed || !strings.Contains(stderr, "raise the quota") || !strings.Contains(stderr, "another id takes its slot") {
		t.Errorf("exit code %d: %s", code, stderr)
	}
	if n := len(s.calls); n != 1 {
		t.Errorf("%d calls: the walk went on after a failure", n)
	}
	s.move = func(m *pb.Machine) { m.State, m.LastError, m.Cluster = failed, "the hook failed", "prod" }
	if _, _, stderr = walk(); !strings.Contains(stderr, "--failed-retention") {
		t.Errorf("of a bound machine: %s", stderr)
	}
	s.move = func(m *pb.Machine) { m.State = speculative }
	if code, _, stderr = walk(); code != exitFailed || !strings.Contains(stderr, "somebody else drives it") {
		t.Errorf("exit code %d: %s", code, stderr)
	}
	s.move = nil
	if code, _, stderr = walk("--timeout=50ms"); code != exitFailed || !strings.Contains(stderr, "stopped waiting while it is CREATING") || !strings.Contains(stderr, "goes on") {
		t.Errorf("exit code %d: %s", code, stderr)
	}
	big := filepath.Join(t.TempDir(), "big")
	if err := os.WriteFile(big, make([]byte, maxBlob+1), 0o600); err != nil {
		t.Fatal(err)
	}
	calls := len(s.calls)
	if code, _, stderr = walk("configure", "--cluster=c", "--blob-file="+big); code != exitFailed || !strings.Contains(stderr, "1048576") || len(s.calls) != calls {
		t.Errorf("a blob that is too large is found before a server is made: exit code %d, %d calls: %s", code, len(s.calls)-calls, stderr)
	}
}

// TestWalkOverARestart: the provider goes away while the machine is under way.
func TestWalkOverARestart(t *testing.T) {
	looks := 0
	s := &scripted{machines: []*pb.Machine{{Id: "m", State: speculative}}}
	s.move = func(m *pb.Machine) {
		if looks++; looks == 3 {
			settle(m)
		}
	}
	addr := serve(t, s, nil)
	var out, errs output
	ended := make(chan int, 1)
	go func() {
		ended <- Main("test", []string{"walk", "m", "create", "--insecure", "--addr=" + addr}, nil, &out, &errs)
	}()
	await(t, &out, "CREATING")
	s.edit(func() { s.fail = status.Error(codes.Unavailable, "stopping") })
	await(t, &out, "does not answer; waiting")
	s.edit(func() { s.fail = nil })
	if code := <-ended; code != exitOK || !strings.Contains(out.String(), "IDLE after") {
		t.Errorf("exit code %d:\n%s%s", code, out.String(), errs.String())
	}
}
