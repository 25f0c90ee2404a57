package provider

import (
	"bytes"
	"context"
	"log/slog"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	pb "bigfleet-providers/proto/bigfleet/v1alpha1"
)

// TestHelpOfAVendor: a program has its vendor's flags and those of all, and none
// of another's.
func TestHelpOfAVendor(t *testing.T) {
	var out, errs strings.Builder
	if code := Main(toyVendor(), "test", []string{"--help"}, &out, &errs); code != exitOK || errs.Len() > 0 {
		t.Fatalf("exit code %d: %s", code, &errs)
	}
	for _, want := range []string{
		"provider for Toyland:", "\n  toy check-config ", "\nToyland:\n", "--town town", "(env TOY_TOKEN)", `(default "toy")`,
		"half SMALL and half LARGE", "belongs to the --provider, --town that", "after Toyland", "--addr", "--create-timeout",
	} {
		if !strings.Contains(strings.Join(strings.Fields(out.String()), " "), strings.Join(strings.Fields(want), " ")) {
			t.Errorf("it lacks %q:\n%s", want, &out)
		}
	}
	for _, unwanted := range []string{"--zone", "caleway", "--bootstrap", "Bootstrap channel", "Fake backend:"} {
		if strings.Contains(out.String(), unwanted) {
			t.Errorf("it has %q:\n%s", unwanted, &out)
		}
	}
}

// Faults of all and of the vendor are reported together.
func TestFaultsOfAVendor(t *testing.T) {
	var out, errs strings.Builder
	if code := Main(toyVendor(), "test", []string{checkCommand, "--seed-count=0", "--tls-ca=x"}, &out, &errs); code != exitUsage {
		t.Errorf("exit code %d: %s", code, &out)
	}
	for _, want := range []string{"--seed-count: 0", "--token: missing", "--tls-ca: set without"} {
		if !strings.Contains(errs.String(), want) {
			t.Errorf("%q is not in\n%s", want, &errs)
		}
	}
	t.Setenv("TOY_TOKEN", "sesame")
	if code := Main(toyVendor(), "test", []string{checkCommand, "--live"}, &out, &errs); code != exitOK ||
		!strings.Contains(out.String(), "provider toy, zone town, gRPC on") || !strings.Contains(out.String(), "ok    town town: it sells all 2 types") {
		t.Errorf("exit code %d: %s%s", code, &out, &errs)
	}
}

// lockedBuffer is a log that is read while it is written.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// TestVendorThatDelivers takes a machine through its life at a cloud without the
// bootstrap channel.
func TestVendorThatDelivers(t *testing.T) {
	v := toyVendor()
	toyland := v.Settings().(*toy)
	v.Settings = func() Settings { return toyland }
	cfg, err := Load(v, []string{
		"--addr=127.0.0.1:0", "--metrics-addr=127.0.0.1:0", "--state=" + filepath.Join(t.TempDir(), "state.db"),
		"--base-user-data=" + writeFile(t, "#cloud-config\n"),
	}, lookupIn(map[string]string{"TOY_TOKEN": "sesame"}))
	if err != nil {
		t.Fatal(err)
	}
	if err := cfg.Validate(); err != nil {
		t.Fatal(err)
	}
	var log lockedBuffer
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- Run(ctx, cfg, "test", slog.New(slog.NewTextHandler(&log, nil))) }()
	defer func() {
		stop()
		if err := <-ended; err != nil {
			t.Errorf("%v\n%s", err, &log)
		}
	}()
	eventually := func(what string, done func() bool) {
		t.Helper()
		for deadline := time.Now().Add(20 * time.Second); !done(); time.Sleep(10 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("%s: not yet\n%s", what, &log)
			}
		}
	}
	var addr string
	eventually("serving", func() bool {
		m := regexp.MustCompile(`msg=serving .*grpc=(\S+) .*endpoint=off`).FindStringSubmatch(log.String())
		if m != nil {
			addr = m[1]
		}
		return m != nil
	})
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	shard := pb.NewCapacityProviderClient(conn)
	var m *pb.Machine
	reaches := func(state pb.MachineState) {
		t.Helper()
		eventually(state.String(), func() bool {
			if m, err = shard.Get(ctx, &pb.MachineRef{Id: m.GetId()}); err != nil {
				t.Fatal(err)
			}
			return m.GetState() == state
		})
	}
	list, err := shard.List(ctx, &pb.ListFilter{}, grpc.WaitForReady(true))
	if err != nil || len(list.GetMachines()) != 16 {
		t.Fatalf("%d machines, %v", len(list.GetMachines()), err)
	}
	m = list.GetMachines()[0]
	accepted := func(_ *pb.TransitionAck, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	id := m.GetId()
	// Until the inventory was read calls are refused.
	eventually("ready", func() bool { return strings.Contains(log.String(), "ready: calls are accepted") })
	accepted(shard.Create(ctx, &pb.CreateRequest{MachineId: id, ShardId: "s", ShardEpoch: 1, SequenceNumber: 1}))
	reaches(pb.MachineState_MACHINE_STATE_IDLE)
	accepted(shard.Configure(ctx, &pb.ConfigureRequest{MachineId: id, ClusterId: "c", BootstrapBlob: []byte("join"), ShardId: "s", ShardEpoch: 1, SequenceNumber: 2}))
	reaches(pb.MachineState_MACHINE_STATE_CONFIGURED)
	accepted(shard.Drain(ctx, &pb.DrainRequest{MachineId: id, ShardId: "s", ShardEpoch: 1, SequenceNumber: 3}))
	reaches(pb.MachineState_MACHINE_STATE_IDLE)
	accepted(shard.Delete(ctx, &pb.DeleteRequest{MachineId: id, ShardId: "s", ShardEpoch: 1, SequenceNumber: 4}))
	reaches(pb.MachineState_MACHINE_STATE_SPECULATIVE)
	toyland.mu.Lock()
	defer toyland.mu.Unlock()
	if len(toyland.instances) > 0 || len(toyland.delivered) != 2 || string(toyland.delivered[0].Blob) != "join" {
		t.Errorf("instances %v, delivered %+v", toyland.instances, toyland.delivered)
	}
}
