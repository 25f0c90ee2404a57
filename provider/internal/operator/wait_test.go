package operator

import (
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "bigfleet-providers/proto/bigfleet/v1alpha1"
)

func TestWait(t *testing.T) {
	const short = "--timeout=1s"
	for name, c := range map[string]struct {
		args []string
		code int
		want string
	}{
		"there already":      {[]string{"m-1", "--for", "idle"}, exitOK, "m-1  is IDLE"},
		"kubectl's spelling": {[]string{"m-1", "--for", "state=IDLE"}, exitOK, "m-1  is IDLE"},
		"under way":          {[]string{"m-1", "m-2", "--for", "IDLE"}, exitOK, "m-2  is IDLE"},
		"gone":               {[]string{"m-9", "--for", "gone"}, exitOK, "m-9  is gone"},
		"deleted":            {[]string{"m-4", "--for=delete"}, exitOK, "m-4  is SPECULATIVE"},
		"deleted and gone":   {[]string{"m-9", "--for=delete"}, exitOK, "m-9  is gone"},
		"not deleted":        {[]string{"m-1", "--for=delete", short}, exitFailed, "it is IDLE and not deleted (waited 1s"},
		"failed is not gone": {[]string{"m-3", "--for=delete", short}, exitFailed, "it is FAILED and not deleted (waited 1s"},
		"listed is not gone": {[]string{"m-4", "--for=gone", short}, exitFailed, "it is SPECULATIVE and not gone (waited 1s"},
		"failed":             {[]string{"m-3", "--for", "idle"}, exitFailed, "wait m-3: FAILED: boot (timeout): why"},
		"failed is wanted":   {[]string{"m-3", "--for", "failed"}, exitOK, "m-3  is FAILED"},
		"one of two":         {[]string{"m-1", "m-3", "--for", "idle"}, exitFailed, "m-1  is IDLE"},
		"never there":        {[]string{"m-9", "--for", "idle"}, exitFailed, "NOT_FOUND"},
		"not in time":        {[]string{"m-1", "--for", "configured", short}, exitFailed, "it is IDLE and not CONFIGURED (waited 1s"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &scripted{
				machines: []*pb.Machine{
					{Id: "m-1", State: pb.MachineState_MACHINE_STATE_IDLE},
					{Id: "m-2", State: pb.MachineState_MACHINE_STATE_CREATING},
					{Id: "m-3", State: pb.MachineState_MACHINE_STATE_FAILED, LastError: "boot (timeout): why"},
					{Id: "m-4", State: pb.MachineState_MACHINE_STATE_SPECULATIVE},
				},
				move: func(m *pb.Machine) { m.State = pb.MachineState_MACHINE_STATE_IDLE },
			}
			args := append([]string{"wait", "--insecure", "--addr", serve(t, s, nil), "--interval=100ms"}, c.args...)
			code, out, text := capacityctl(args...)
			if code != c.code || !strings.Contains(out+text, c.want) {
				t.Errorf("exit code %d, want %d and %q:\n%s%s", code, c.code, c.want, out, text)
			}
		})
	}
}

// TestWaitCommandOverARestart: no answer is no answer about the machine.
func TestWaitCommandOverARestart(t *testing.T) {
	s := &scripted{machines: []*pb.Machine{{Id: "m-1", State: pb.MachineState_MACHINE_STATE_IDLE}}, fail: status.Error(codes.Unavailable, "starting")}
	addr := serve(t, s, nil)
	var out, errs output
	done := make(chan int)
	go func() {
		done <- Main("test", []string{"wait", "m-1", "--for", "gone", "--insecure", "--addr", addr, "--interval=100ms", "--timeout=30s"}, nil, &out, &errs)
	}()
	s.edit(func() { s.machines, s.fail = nil, nil })
	if code := <-done; code != exitOK || !strings.Contains(out.String(), "m-1  is gone") {
		t.Errorf("exit code %d:\n%s%s", code, out.String(), errs.String())
	}
}

// TestDryRun calls nothing, and says what would be refused.
func TestDryRun(t *testing.T) {
	s := &scripted{machines: []*pb.Machine{
		{Id: "m-1", State: pb.MachineState_MACHINE_STATE_SPECULATIVE, InstanceType: "DEV1-S", PricePerHour: 0.0123},
		{Id: "m-2", State: pb.MachineState_MACHINE_STATE_CONFIGURED, Cluster: "prod", Host: &pb.HostRef{Ref: "z/1"}},
		{Id: "m-3", State: pb.MachineState_MACHINE_STATE_IDLE, Host: &pb.HostRef{Ref: "z/2"}, PricePerHour: 0.5},
		{Id: "m-4", State: pb.MachineState_MACHINE_STATE_IDLE, CapacityType: pb.CapacityType_CAPACITY_TYPE_BARE_METAL},
	}}
	addr := serve(t, s, nil)
	for line, c := range map[string]struct {
		code int
		want string
	}{
		"create m-1":            {exitOK, "create m-1: SPECULATIVE -> IDLE; DEV1-S: 0.0123 USD an hour"},
		"create m-3":            {exitOK, "it is IDLE; the call may be a replay"},
		"drain m-2 --grace 30s": {exitOK, "drain m-2: CONFIGURED -> IDLE, host z/1, cluster prod; its workloads get 30s"},
		"delete m-3 --yes":      {exitOK, "delete m-3: IDLE -> SPECULATIVE, host z/2; the server is given back, 0.5000 USD an hour"},
		"rm m-2 m-3":            {exitFailed, "delete m-2: it is CONFIGURED; the call would be refused: it takes a machine that is IDLE"},
		"delete m-4":            {exitFailed, "a dedicated server is not given back"},
		"delete m-9":            {exitFailed, "NOT_FOUND"},
	} {
		code, out, text := capacityctl(append(strings.Fields(line), "--dry-run", "--insecure", "--addr", addr)...)
		if code != c.code || !strings.Contains(out+text, c.want) || !strings.Contains(out, "dry run: nothing was called") {
			t.Errorf("%s: exit code %d, want %d and %q:\n%s%s", line, code, c.code, c.want, out, text)
		}
	}
	if len(s.calls) > 0 {
		t.Errorf("called: %v", s.calls)
	}
}
