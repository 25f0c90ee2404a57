package operator

import (
	"strings"
	"syscall"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "bigfleet-providers/proto/bigfleet/v1alpha1"
)

// walkable is a fleet of which the cheapest free machine that is given back is
// m-2.
func walkable() []*pb.Machine {
	onDemand, bare := pb.CapacityType_CAPACITY_TYPE_ON_DEMAND, pb.CapacityType_CAPACITY_TYPE_BARE_METAL
	return []*pb.Machine{
		{Id: "m-1", State: speculative, InstanceType: "GP1-XS", CapacityType: onDemand, PricePerHour: 0.2, Zone: "fr-par-1"},
		{Id: "m-2", State: speculative, InstanceType: "DEV1-S", CapacityType: onDemand, PricePerHour: 0.01, Zone: "fr-par-1"},
		{Id: "m-3", State: speculative, InstanceType: "EM-A", CapacityType: bare},
		{Id: "m-4", State: idle, InstanceType: "DEV1-S", CapacityType: onDemand},
	}
}

// kindsOf names the calls that were made, and checks that their tokens go up.
func kindsOf(t *testing.T, s *scripted) string {
	t.Helper()
	var names []string
	last := int64(0)
	for _, call := range s.calls {
		name := string(call.ProtoReflect().Descriptor().Name())
		names = append(names, strings.ToLower(strings.TrimSuffix(name, "Request")))
		token := call.(interface{ GetSequenceNumber() int64 }).GetSequenceNumber()
		if token <= last {
			t.Errorf("%s has sequence number %d after %d", name, token, last)
		}
		last = token
	}
	return strings.Join(names, " ")
}

func TestWalk(t *testing.T) {
	blob := blobFile(t, []byte("true"))
	whole := []string{"--cluster=prod", "--blob-file=" + blob}
	for name, tt := range map[string]struct {
		args  []string
		code  int
		calls string
		wants []string
	}{
		"the cheapest":           {whole, exitOK, "create configure drain delete", []string{"walk m-2: DEV1-S, ON_DEMAND in zone fr-par-1", "0.0100 USD an hour", "m-2  delete     SPECULATIVE after", "walk m-2: done in"}},
		"of a type":              {append(whole, "--type=GP1-XS"), exitOK, "create configure drain delete", []string{"walk m-1: GP1-XS"}},
		"no cluster":             {[]string{"m-1", "--no-configure"}, exitOK, "create delete", []string{"create, delete\n"}},
		"dedicated":              {append(whole, "m-3", "--yes"), exitOK, "create configure drain", []string{"DEDICATED SERVER", "it is IDLE\n"}},
		"dedicated, unasked":     {append(whole, "--type=EM-A"), exitFailed, "", []string{"give --yes"}},
		"not free":               {append(whole, "m-4"), exitFailed, "", []string{"it is IDLE, and a walk begins with a SPECULATIVE"}},
		"none of the type":       {append(whole, "--type=X"), exitFailed, "", []string{"no SPECULATIVE machine of --type X"}},
		"nobody":                 {append(whole, "m-9"), exitFailed, "", []string{"NOT_FOUND"}},
		"a cluster, and without": {append(whole, "--no-configure"), exitUsage, "", []string{"--no-configure: contradicts"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := &scripted{machines: walkable(), move: settle}
			code, stdout, stderr := capacityctl(append([]string{"walk", "--insecure", "--addr=" + serve(t, s, nil)}, tt.args...)...)
			if got := kindsOf(t, s); code != tt.code || got != tt.calls {
				t.Errorf("exit code %d, calls %q:\n%s%s", code, got, stdout, stderr)
			}
			for _, want := range tt.wants {
				if !strings.Contains(stdout+stderr, want) {
					t.Errorf("it does not say %q:\n%s%s", want, stdout, stderr)
				}
			}
		})
	}
}

// TestWalkCleansUp breaks each step in each way: nothing may be left, or it has
// to be said.
func TestWalkCleansUp(t *testing.T) {
	refuse := func(code codes.Code) error { return status.Error(code, "because") }
	for name, tt := range map[string]struct {
		at     string // the call that is refused
		err    error
		move   func(*pb.Machine)
		calls  string
		wants  []string
		leaves pb.MachineState
	}{
		"create refused":        {"create", refuse(codes.Internal), settle, "", []string{"create m-2: INTERNAL: because", "Nothing was made"}, speculative},
		"create without answer": {"create", refuse(codes.Unavailable), settle, "", []string{"cleaned up: m-2 is SPECULATIVE"}, speculative},
		"configure refused":     {"configure", refuse(codes.Internal), settle, "create delete", []string{"cleaned up: m-2 is SPECULATIVE, nothing of it is left"}, speculative},
		"configure fenced":      {"configure", refuse(codes.FailedPrecondition), settle, "create", []string{"NOT CLEANED UP: m-2 is left to whoever else drives it"}, idle},
		"drain refused":         {"drain", refuse(codes.Internal), settle, "create configure", []string{"NOT CLEANED UP: m-2 is CONFIGURED, host fr-par-1/9, cluster prod, 0.0100 USD an hour", "capacityctl delete m-2 --wait"}, configured},
		"delete refused":        {"delete", refuse(codes.Internal), settle, "create configure drain", []string{"NOT CLEANED UP: m-2 is IDLE, host fr-par-1/9"}, idle},
		"create fails":          {"", nil, func(m *pb.Machine) { m.State, m.LastError = failed, "no stock" }, "create", []string{"no stock", "m-2 is FAILED", "another id takes its slot"}, failed},
	} {
		t.Run(name, func(t *testing.T) {
			s := &scripted{machines: walkable(), move: tt.move, refuse: map[string]error{tt.at: tt.err}}
			code, stdout, stderr := capacityctl("walk", "--insecure", "--addr="+serve(t, s, nil), "--cluster=prod", "--blob-file="+blobFile(t, nil))
			if got := kindsOf(t, s); code != exitFailed || got != tt.calls {
				t.Errorf("exit code %d, calls %q, want %q:\n%s%s", code, got, tt.calls, stdout, stderr)
			}
			for _, want := range tt.wants {
				if !strings.Contains(stderr, want) {
					t.Errorf("it does not say %q:\n%s%s", want, stdout, stderr)
				}
			}
			if m, err := s.find("m-2"); err != nil || m.GetState() != tt.leaves {
				t.Errorf("it leaves %v, %v", m, err)
			}
		})
	}
}

// TestWalkInterrupted: an interrupt during a Create waits for it and gives the
// server back.
func TestWalkInterrupted(t *testing.T) {
	s := &scripted{machines: walkable()}
	addr := serve(t, s, nil)
	var out, errs output
	ended := make(chan int, 1)
	go func() {
		ended <- Main("test", []string{"walk", "m-1", "--no-configure", "--insecure", "--addr=" + addr}, nil, &out, &errs)
	}()
	await(t, &out, "CREATING")
	if err := syscall.Kill(syscall.Getpid(), syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	await(t, &out, "cleaning up")
	s.edit(func() { s.move = settle })
	if code := <-ended; code != exitFailed || kindsOf(t, s) != "create delete" || !strings.Contains(errs.String(), "interrupted") || !strings.Contains(errs.String(), "cleaned up: m-1 is SPECULATIVE") {
		t.Errorf("exit code %d, calls %s:\n%s%s", code, kindsOf(t, s), out.String(), errs.String())
	}
}
