package provider

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	pb "bigfleet-providers/proto/bigfleet/v1alpha1"
	"bigfleet-providers/provider/internal/cloud"
	"bigfleet-providers/provider/internal/lifecycle"
	"bigfleet-providers/provider/internal/store"
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
	for _, unwanted := range []string{"--zone", "caleway", "bootstrap", "agent", "fake"} {
		if strings.Contains(strings.ToLower(out.String()), strings.ToLower(unwanted)) {
			t.Errorf("it has %q:\n%s", unwanted, &out)
		}
	}
}

// TestOfferingsOfAVendor: faults of the offerings name the vendor and its flag.
func TestOfferingsOfAVendor(t *testing.T) {
	var out, errs strings.Builder
	file := writeFile(t, `[{"commercial_type": "SMALL", "zone": "elsewhere", "count": 1, "capacity_type": "spot"}]`)
	Main(toyVendor(), "test", []string{checkCommand, "--token=sesame", "--offerings=" + file}, &out, &errs)
	for _, want := range []string{`this provider serves "town" (--town)`, "Toyland sells no spot capacity"} {
		if !strings.Contains(errs.String(), want) {
			t.Errorf("%q is not in\n%s", want, &errs)
		}
	}
}

// wrong are settings that open something else than what was asked for.
type wrong struct {
	*toy
	open func(Opening) *Backend
}

func (w wrong) Open(_ context.Context, _ *Config, o Opening) (*Backend, error) { return w.open(o), nil }

// TestFakeOrNot: whoever asked for a fake never gets the real cloud, nor the reverse,
// and nothing is done with a backend that lacks a part.
func TestFakeOrNot(t *testing.T) {
	whole := func(y *toy) *Backend { return &Backend{Cloud: y, Deleter: y, Catalog: y, Prober: y, Delivery: y} }
	for name, c := range map[string]struct {
		args   []string
		open   func(*toy) *Backend
		closes bool
		want   string
	}{
		"the real cloud for a fake": {[]string{"--use-fake-backend"}, whole, false, "a fake was asked for, and it opened the real cloud"},
		"a fake for the real cloud": {nil, whole, true, "the real cloud was asked for, and it opened a fake"},
		"parts missing":             {nil, func(y *toy) *Backend { return &Backend{Cloud: y, Catalog: y} }, false, "it has no Prober\nit has no Delivery"},
	} {
		t.Run(name, func(t *testing.T) {
			closed := false
			v, y := toyVendor(), &toy{instances: map[string]cloud.Instance{}}
			v.Fakes = true
			v.Settings = func() Settings {
				return wrong{y, func(Opening) *Backend {
					back := c.open(y)
					if c.closes {
						back.Fake = &Fake{Close: func() error { closed = true; return nil }}
					}
					return back
				}}
			}
			cfg, err := Load(v, append(c.args, "--addr=127.0.0.1:0", "--metrics-addr=", "--token=sesame"), lookupIn(nil))
			if err != nil {
				t.Fatal(err)
			}
			if err := Run(t.Context(), cfg, "test", slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("start: %v, want %q", err, c.want)
			}
			if closed != c.closes {
				t.Errorf("closed: %v", closed)
			}
			if _, err := checkLive(t.Context(), cfg, "test", io.Discard); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("check: %v, want %q", err, c.want)
			}
		})
	}
}

// TestVendorWithoutAFake has no flag for one.
func TestVendorWithoutAFake(t *testing.T) {
	if _, err := Load(toyVendor(), []string{"--use-fake-backend"}, lookupIn(nil)); err == nil || !strings.Contains(err.Error(), "unknown flag: --use-fake-backend") {
		t.Errorf("%v, want that there is no such flag", err)
	}
}

// TestHintsAreDocumented: what last_error tells to look at is in the table of its
// classes, and a vendor that delivers is told nothing of the channel.
func TestHintsAreDocumented(t *testing.T) {
	page, err := os.ReadFile("../docs/troubleshooting.md")
	if err != nil {
		t.Fatal(err)
	}
	v := toyVendor()
	if got := newConfig(v).hints(); got != (lifecycle.Hints{}) {
		t.Errorf("hints of a vendor that delivers: %+v", got)
	}
	v.Delivers = false
	h := newConfig(v).hints()
	for _, words := range []string{h.Contact, h.Deliver, h.Agent} {
		if words == "" || !bytes.Contains(page, []byte("*"+words+"*")) {
			t.Errorf("docs/troubleshooting.md lacks *%s*", words)
		}
	}
}

func TestOwnerFlags(t *testing.T) {
	for want, o := range map[string]Owner{
		"": {}, "--town": {Zone: "--town"}, "--zone and --project-id": {Zone: "--zone", Project: "--project-id"},
		"--zone, --substrate and --project-id": {"--zone", "--substrate", "--project-id"},
	} {
		if got := o.String(); got != want {
			t.Errorf("%+v: %q, want %q", o, got, want)
		}
	}
}

// TestRefusedOwnerInTheVendorsWords: whose state a file is, by the flags that there are.
func TestRefusedOwnerInTheVendorsWords(t *testing.T) {
	state := filepath.Join(t.TempDir(), "state.db")
	for _, town := range []string{"first", "second"} {
		cfg, err := Load(toyVendor(), []string{"--town=" + town, "--state=" + state}, lookupIn(nil))
		if err != nil {
			t.Fatal(err)
		}
		st, err := store.Open(store.Options{Path: state, Owner: cfg.owner()})
		switch {
		case town == "first" && err != nil:
			t.Fatal(err)
		case town == "first":
			if err := st.Close(); err != nil {
				t.Fatal(err)
			}
		case err == nil || !strings.Contains(err.Error(), `belongs to --town "first" and not "second"`):
			t.Errorf("%v", err)
		}
	}
}

// Faults of all and of the vendor are reported together.
func TestFaultsOfAVendor(t *testing.T) {
	var out, errs strings.Builder
	if code := Main(toyVendor(), "test", []string{checkCommand, "--seed-count=0", "--tls-ca=x", "--tls-reload"}, &out, &errs); code != exitUsage {
		t.Errorf("exit code %d: %s", code, &out)
	}
	for _, want := range []string{"--seed-count: 0", "--token: missing", "--tls-ca: set without", "set --tls-cert and --tls-key\n"} {
		if !strings.Contains(errs.String(), want) {
			t.Errorf("%q is not in\n%s", want, &errs)
		}
	}
	if strings.Contains(errs.String(), "bootstrap") {
		t.Errorf("there is no bootstrap channel:\n%s", &errs)
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
	if !strings.Contains(log.String(), `level=WARN msg="the gRPC port is plaintext: `) {
		t.Errorf("plaintext at a real cloud is not warned of:\n%s", &log)
	}
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
