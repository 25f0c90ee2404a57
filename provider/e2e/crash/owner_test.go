package crash

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	pb "bigfleet-providers/proto/bigfleet/v1alpha1"
)

// beside is the place of another provider with the same owner tag: the same
// cloud and hosts, a state file and addresses of its own.
func (w *world) beside(t *testing.T) *world {
	t.Helper()
	b := &world{t: t, dir: t.TempDir(), cloud: w.cloud, hosts: w.hosts, env: w.env}
	addr, channel := freePort(t), freePort(t)
	for _, arg := range w.args {
		switch name, _, _ := strings.Cut(arg, "="); name {
		case "--addr":
			arg = "--addr=" + addr
		case "--state":
			arg = "--state=" + b.state()
		case "--bootstrap-addr":
			arg = "--bootstrap-addr=" + channel
		case "--bootstrap-endpoint":
			arg = "--bootstrap-endpoint=https://" + channel
		}
		b.args = append(b.args, arg)
	}
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	b.conn = conn
	b.CapacityProviderClient = pb.NewCapacityProviderClient(conn)
	if err := os.MkdirAll(filepath.Dir(b.state()), 0o750); err != nil {
		t.Fatal(err)
	}
	return b
}

// refuses wants the provider to know that it is not the owner, and to say so to
// its callers and to what watches its health.
func (f *fleet) refuses(id string) {
	f.t.Helper()
	defer func() {
		f.t.Helper()
		eventually(f.t, 20*time.Second, func() error {
			h, err := healthpb.NewHealthClient(f.conn).Check(f.t.Context(), &healthpb.HealthCheckRequest{})
			if err != nil || h.GetStatus() != healthpb.HealthCheckResponse_NOT_SERVING {
				return fmt.Errorf("health is %v, %w", h.GetStatus(), err)
			}
			return nil
		})
	}()
	eventually(f.t, 20*time.Second, func() error {
		_, err := f.call(create, id)
		if status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "another provider process owns") {
			return errors.Join(errors.New("a call to the former owner"), err)
		}
		return nil
	})
}

// names are the ids of all servers, with their tags.
func (f *fleet) names() map[string]string {
	all := map[string]string{}
	for _, s := range f.cloud.Servers() {
		all[s.ID] = strings.Join(slices.Sorted(slices.Values(s.Tags)), " ")
	}
	return all
}

// TestTwoOwners runs two providers with one owner tag, whichever way the second
// came by its state. The later start owns the servers; the other one changes
// nothing any more, also after a crash and a restart.
func TestTwoOwners(t *testing.T) {
	t.Parallel()
	for name, copied := range map[string]func(t *testing.T, a, b *fleet){
		"a new state": func(*testing.T, *fleet, *fleet) {},
		"a plain copy": func(t *testing.T, a, b *fleet) {
			t.Helper()
			data, err := os.ReadFile(a.state())
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(b.state(), data, 0o600); err != nil {
				t.Fatal(err)
			}
		},
		"a restored copy": func(t *testing.T, a, b *fleet) {
			t.Helper()
			data, err := os.ReadFile(a.state())
			if err != nil {
				t.Fatal(err)
			}
			b.restore(data)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := &fleet{world: newWorld(t, 4)}
			a.run()
			ids := a.ids()
			a.to(ids[0], create)
			a.to(ids[1], create, configure)
			a.stopLast() // a file in use may be torn
			b := &fleet{world: a.beside(t)}
			copied(t, a, b)
			a.run()
			a.to(ids[2], create)
			if name == "a plain copy" {
				// It is older than what the original's restart has made of it.
				b.run()
				b.refuses(ids[3])
				a.to(ids[3], create)
				return
			}

			b.run()
			a.refuses(ids[3])
			b.to(ids[3], create)
			for id, want := range map[string]pb.MachineState{ids[0]: idle, ids[1]: configured, ids[2]: idle, ids[3]: idle} {
				b.await(id, want)
			}
			before := b.names()
			if len(before) != 4 {
				t.Errorf("%d servers, want 4", len(before))
			}
			a.stopLast()
			a.run()
			a.refuses(ids[3])
			// The owner's own restart is none against it.
			b.stopLast()
			b.run()
			b.to(ids[3], configure)
			a.refuses(ids[0])
			if after := b.names(); !slices.Equal(slices.Sorted(maps.Keys(before)), slices.Sorted(maps.Keys(after))) {
				t.Errorf("the servers have changed: %v, before %v", after, before)
			}
			b.to(ids[0], remove)
		})
	}
}
