package operator

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"

	pb "bigfleet-providers/proto/bigfleet/v1alpha1"
)

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

func blobFile(t *testing.T, content []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "blob")
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestTransitions(t *testing.T) {
	s := &scripted{machines: []*pb.Machine{{Id: "m", State: speculative}}, move: settle}
	addr := serve(t, s, nil)
	blob := blobFile(t, []byte("join\x00me"))
	for _, tt := range []struct {
		args []string
		want proto.Message
		end  string
	}{
		{[]string{"create", "--sequence=1"}, &pb.CreateRequest{MachineId: "m", ShardId: "mine", ShardEpoch: 5, SequenceNumber: 1}, "IDLE after "},
		{
			[]string{"configure", "--sequence=2", "--cluster=prod", "--blob-file=" + blob, "--metadata=k=v", "--metadata=l="},
			&pb.ConfigureRequest{MachineId: "m", ClusterId: "prod", BootstrapBlob: []byte("join\x00me"), ShardId: "mine", ShardEpoch: 5, SequenceNumber: 2, ShardMetadata: map[string]string{"k": "v", "l": ""}},
			"CONFIGURED after ",
		},
		{[]string{"drain", "--sequence=3", "--grace=90s"}, &pb.DrainRequest{MachineId: "m", GracePeriodSeconds: 90, ShardId: "mine", ShardEpoch: 5, SequenceNumber: 3}, "IDLE after "},
		{[]string{"delete", "--sequence=4"}, &pb.DeleteRequest{MachineId: "m", ShardId: "mine", ShardEpoch: 5, SequenceNumber: 4}, "SPECULATIVE after "},
	} {
		code, stdout, stderr := capacityctl(append(tt.args, "m", "--wait", "--insecure", "--addr="+addr, "--shard=mine", "--epoch=5")...)
		if code != exitOK || !strings.Contains(stdout, "  m  ") || !strings.Contains(stdout, "accepted, operation op-1\n") || !strings.Contains(stdout, tt.end) {
			t.Fatalf("%s: exit code %d:\n%s%s", tt.args[0], code, stdout, stderr)
		}
		if strings.Contains(stdout, "join") {
			t.Errorf("the blob is shown:\n%s", stdout)
		}
		if diff := cmp.Diff(tt.want, s.calls[len(s.calls)-1], protocmp.Transform()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.args[0], diff)
		}
	}
}

// TestTransitionDefaults: a shard of nobody's, and the time; the blob from
// standard input; no waiting.
func TestTransitionDefaults(t *testing.T) {
	s := &scripted{machines: []*pb.Machine{{Id: "m", State: idle}}}
	addr := serve(t, s, nil)
	before := time.Now().UnixMicro()
	code, stdout, stderr := capacityctl("configure", "m", "--insecure", "--addr="+addr, "--cluster=prod", "--blob-file=-")
	if code != exitOK || !strings.Contains(stdout, "m  configure  accepted, operation op-1\n") {
		t.Fatalf("exit code %d: %s%s", code, stdout, stderr)
	}
	r := s.calls[0].(*pb.ConfigureRequest)
	if r.GetShardId() != "capacityctl" || r.GetShardEpoch() < before || r.GetSequenceNumber() != 1 || string(r.GetBootstrapBlob()) != "from stdin" {
		t.Errorf("without flags: %v", r)
	}
}

// TestTransitionsOfMany: what fails hides nothing else, and every end is told.
func TestTransitionsOfMany(t *testing.T) {
	s := &scripted{}
	args := []string{"create", "--wait", "nobody"}
	for i := range 40 {
		id := fmt.Sprint("m-", i)
		s.machines = append(s.machines, &pb.Machine{Id: id, State: speculative})
		args = append(args, id)
	}
	s.move = func(m *pb.Machine) {
		if m.GetId() == "m-7" {
			m.State, m.LastError = failed, "no capacity"
			return
		}
		settle(m)
	}
	args = append(args, "--insecure", "--addr="+serve(t, s, nil))
	code, stdout, stderr := capacityctl(args...)
	if code != exitFailed || strings.Count(stdout, "IDLE after") != 39 || strings.Count(stdout, "not done: ") != 2 {
		t.Errorf("exit code %d:\n%s", code, stdout)
	}
	for _, want := range []string{"create nobody: NOT_FOUND", "create m-7: FAILED after", "no capacity"} {
		if !strings.Contains(stderr, want) {
			t.Errorf("no %q in:\n%s", want, stderr)
		}
	}

	s.edit(func() { s.machines = []*pb.Machine{{Id: "m-1", State: speculative}} })
	code, stdout, stderr = capacityctl("create", "--wait", "nobody", "m-1", "-o=json", args[len(args)-2], args[len(args)-1])
	var got []struct {
		MachineID   string `json:"machine_id"`
		OperationID string `json:"operation_id"`
		Machine     struct{ State string }
		Error       string
	}
	if err := json.Unmarshal([]byte(stdout), &got); err != nil || code != exitFailed || len(got) != 2 {
		t.Fatalf("exit code %d, %v: %s%s", code, err, stdout, stderr)
	}
	if got[0].MachineID != "nobody" || !strings.Contains(got[0].Error, "NOT_FOUND") || got[1].Error != "" || got[1].OperationID != "op-1" || got[1].Machine.State != "MACHINE_STATE_IDLE" {
		t.Errorf("got %+v", got)
	}
}

func TestTransitionsThatFail(t *testing.T) {
	s := &scripted{machines: []*pb.Machine{{}}}
	addr := serve(t, s, nil)
	create := func(args ...string) (int, string, string) {
		s.edit(func() { s.machines[0] = &pb.Machine{Id: "m", State: speculative} })
		return capacityctl(append([]string{"create", "m", "--wait", "--insecure", "--addr=" + addr}, args...)...)
	}
	for name, tt := range map[string]struct {
		move  func(*pb.Machine)
		args  []string
		wants []string
	}{
		"failed":        {func(m *pb.Machine) { m.State, m.LastError = failed, "raise the quota" }, nil, []string{"raise the quota", "another id takes its slot"}},
		"failed, bound": {func(m *pb.Machine) { m.State, m.LastError, m.Cluster = failed, "the hook failed", "prod" }, nil, []string{"--failed-retention"}},
		"taken":         {func(m *pb.Machine) { m.State = speculative }, nil, []string{"somebody else drives it"}},
		"slow":          {func(*pb.Machine) {}, []string{"--timeout=50ms"}, []string{"stopped waiting while it is CREATING", "--timeout", "goes on"}},
		"escape":        {func(m *pb.Machine) { m.State, m.LastError = failed, "\x1b[2Jgone" }, nil, []string{"·[2Jgone"}},
	} {
		s.edit(func() { s.move = tt.move })
		code, _, stderr := create(tt.args...)
		for _, want := range tt.wants {
			if code != exitFailed || !strings.Contains(stderr, want) {
				t.Errorf("%s: exit code %d, no %q in: %s", name, code, want, stderr)
			}
		}
	}
	calls := len(s.calls)
	code, _, stderr := capacityctl("configure", "m", "--cluster=c", "--blob-file="+blobFile(t, make([]byte, maxBlob+1)), "--insecure", "--addr="+addr)
	if code != exitFailed || !strings.Contains(stderr, "1048576") || len(s.calls) != calls {
		t.Errorf("a blob that is too large: exit code %d, %d calls: %s", code, len(s.calls)-calls, stderr)
	}
}

// TestWaitOverARestart: the provider goes away while the machine is under way.
func TestWaitOverARestart(t *testing.T) {
	s := &scripted{machines: []*pb.Machine{{Id: "m", State: speculative}}}
	addr := serve(t, s, nil)
	var out, errs output
	ended := make(chan int, 1)
	go func() {
		ended <- Main("test", []string{"create", "m", "--wait", "--insecure", "--addr=" + addr}, nil, &out, &errs)
	}()
	await(t, &out, "CREATING")
	s.edit(func() { s.fail = status.Error(codes.Unavailable, "stopping") })
	await(t, &out, "does not answer; waiting")
	s.edit(func() { s.fail, s.move = nil, settle })
	if code := <-ended; code != exitOK || !strings.Contains(out.String(), "IDLE after") {
		t.Errorf("exit code %d:\n%s%s", code, out.String(), errs.String())
	}
}

// operationsSocket serves operations on an admin socket.
func operationsSocket(t *testing.T, ops ...runningOperation) string {
	t.Helper()
	return adminSocket(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/operations" {
			http.NotFound(w, r)
			return
		}
		if err := json.NewEncoder(w).Encode(runningOperations{Total: len(ops), Operations: ops}); err != nil {
			t.Error(err)
		}
	}))
}

// TestWaitShowsSteps: with the admin socket, steps are lines too, each once.
func TestWaitShowsSteps(t *testing.T) {
	s := &scripted{machines: []*pb.Machine{{Id: "m", State: speculative}}}
	socket := operationsSocket(t, runningOperation{MachineID: "m", Step: "first-contact", Deadline: time.Now().Add(time.Hour)})
	var out, errs output
	ended := make(chan int, 1)
	go func() {
		ended <- Main("test", []string{"create", "m", "--wait", "--insecure", "--addr=" + serve(t, s, nil), "--socket=" + socket}, nil, &out, &errs)
	}()
	await(t, &out, "m  create     step first-contact\n")
	s.edit(func() { s.move = settle })
	if code := <-ended; code != exitOK || strings.Count(out.String(), "first-contact") != 1 {
		t.Errorf("exit code %d:\n%s%s", code, out.String(), errs.String())
	}
}

func TestAge(t *testing.T) {
	got := map[time.Duration]string{}
	for _, d := range []time.Duration{-time.Second, 59 * time.Second, 61 * time.Second, 3 * time.Hour, 49 * time.Hour} {
		got[d] = age(d)
	}
	want := map[time.Duration]string{-time.Second: "0s", 59 * time.Second: "59s", 61 * time.Second: "1m01s", 3 * time.Hour: "3h00m", 49 * time.Hour: "2d01h"}
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
