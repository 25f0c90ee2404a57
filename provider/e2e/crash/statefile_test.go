package crash

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "bigfleet-providers/proto/bigfleet/v1alpha1"
	"bigfleet-providers/provider/internal/fakecloud"
	"bigfleet-providers/provider/internal/store"
)

// wantReason wants exactly one line of level ERROR, with all the texts in it.
func wantReason(t *testing.T, log string, wants ...string) {
	t.Helper()
	var reasons []string
	for line := range strings.Lines(log) {
		if strings.Contains(line, `msg="the provider stopped"`) {
			reasons = append(reasons, line)
		}
		if strings.HasPrefix(line, "goroutine ") || strings.HasPrefix(line, "panic") {
			t.Errorf("it says %q", line)
		}
	}
	if len(reasons) != 1 {
		t.Fatalf("%d reasons, want 1:\n%s", len(reasons), log)
	}
	for _, want := range wants {
		if !strings.Contains(reasons[0], want) {
			t.Errorf("the reason does not say %q: %s", want, reasons[0])
		}
	}
}

// TestStateFileOverLiveServers damages or takes away the state file of a fleet
// whose servers live on. No server is touched, whatever became of the file.
func TestStateFileOverLiveServers(t *testing.T) {
	t.Parallel()
	f := &fleet{world: newWorld(t, 6)}
	p := f.run()
	f.populate()
	p.kill()
	before := f.servers()
	content, err := os.ReadFile(f.state())
	if err != nil {
		t.Fatal(err)
	}
	for name, damage := range map[string][]byte{
		"emptied":      {},
		"cut off":      content[:3*4096],
		"bits flipped": bytes.ReplaceAll(content, []byte("DEV1-S"), []byte("DEV1-R")),
	} {
		t.Run("refused: "+name, func(t *testing.T) {
			f := &fleet{world: f.in(t)}
			if err := os.WriteFile(f.state(), damage, 0o600); err != nil {
				t.Fatal(err)
			}
			f.stops(f.launch(), f.state(), "is damaged", "restore a copy of the file (capacityctl state restore), or move it away")
			if after, err := os.ReadFile(f.state()); err != nil || !bytes.Equal(after, damage) {
				t.Errorf("the file was changed: %v", err)
			}
		})
	}
	t.Run("refused: unreadable", func(t *testing.T) {
		f := &fleet{world: f.in(t)}
		if err := os.WriteFile(f.state(), content, 0o600); err != nil {
			t.Fatal(err)
		}
		f.asNobody()
		f.stops(f.launch(), f.state(), "permission denied")
	})
	t.Run("refused: no place for a new one", func(t *testing.T) {
		f := &fleet{world: f.in(t)}
		if err := os.Remove(f.state()); err != nil {
			t.Fatal(err)
		}
		f.asNobody()
		f.stops(f.launch(), f.state(), "cannot be made", "permission denied")
	})
	t.Run("adopted: no file", func(t *testing.T) {
		f := &fleet{world: f.in(t)}
		f.run()
		f.adopted(6)
	})
	if f.servers() != before {
		t.Errorf("%d servers, %d before", f.servers(), before)
	}
}

// in is the same world, judged by a subtest.
func (w *world) in(t *testing.T) *world {
	t.Helper()
	return &world{
		t: t, dir: w.dir, cloud: w.cloud, hosts: w.hosts, env: w.env, args: w.args, attr: w.attr,
		CapacityProviderClient: w.CapacityProviderClient,
	}
}

// asNobody makes the next providers run as a user who may read the files of the
// test but write none.
func (w *world) asNobody() {
	w.t.Helper()
	if os.Geteuid() != 0 {
		w.t.Skip("needs root to become another user")
	}
	w.attr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	for dir := filepath.Dir(w.state()); dir != os.TempDir() && dir != "/"; dir = filepath.Dir(dir) {
		if err := os.Chmod(dir, 0o755); err != nil {
			w.t.Fatal(err)
		}
	}
	if err := os.Chmod(filepath.Join(w.dir, "offerings.json"), 0o644); err != nil {
		w.t.Fatal(err)
	}
}

// adopted wants every server to have its machine again, bound as its tag says.
func (f *fleet) adopted(slots int) {
	f.t.Helper()
	l := f.list()
	if n := len(l.GetMachines()); n != slots {
		f.t.Errorf("%d machines, want %d", n, slots)
	}
	if err := f.compare(l); err != nil {
		f.t.Error(err)
	}
	bound := 0
	for _, m := range l.GetMachines() {
		if m.GetState() != configured {
			continue
		}
		bound++
		if want := clusterOf(m.GetId()).cluster; m.GetCluster() != want {
			f.t.Errorf("%s is bound to %q, want %q", m.GetId(), m.GetCluster(), want)
		}
	}
	if bound != slots/2 {
		f.t.Errorf("%d machines are CONFIGURED, want %d", bound, slots/2)
	}
}

// TestOlderStateFile puts a copy of the state file back that knows little of
// what lives now: all of it is kept, and has its machine again.
func TestOlderStateFile(t *testing.T) {
	t.Parallel()
	f := &fleet{world: newWorld(t, 6)}
	p := f.run()
	p.kill()
	old, err := os.ReadFile(f.state())
	if err != nil {
		t.Fatal(err)
	}
	f.run()
	f.populate()
	f.stopLast()
	if err := os.WriteFile(f.state(), old, 0o600); err != nil {
		t.Fatal(err)
	}
	before := f.servers()
	p = f.run()
	// As it is, nothing tells it from one beside the provider that knows more.
	if _, err := f.call(create, f.ids()[0]); status.Code(err) != codes.Unavailable || !p.said("capacityctl state restore") {
		t.Errorf("a call on a plain copy: %v, want UNAVAILABLE, and what to do on the log", err)
	}
	f.stopLast()
	f.restore(old)
	f.run()
	eventually(t, 20*time.Second, func() error { return f.compare(f.list()) })
	f.adopted(6)
	if f.servers() != before {
		t.Errorf("%d servers, %d before", f.servers(), before)
	}
}

// restore puts a copy of the state back as capacityctl state restore does.
func (w *world) restore(copied []byte) {
	w.t.Helper()
	from := filepath.Join(w.dir, "copy.db")
	if err := os.WriteFile(from, copied, 0o600); err != nil {
		w.t.Fatal(err)
	}
	if _, err := store.Restore(from, w.state(), true, time.Now()); err != nil {
		w.t.Fatal(err)
	}
}

// TestOlderStateFileOfAnEarlierLife puts a copy back in which a machine has a
// host that is gone by now, while another serves it: the machine loses the one
// and finds the other, with its binding.
func TestOlderStateFileOfAnEarlierLife(t *testing.T) {
	t.Parallel()
	f := &fleet{world: newWorld(t, 2)}
	f.run()
	ids := f.ids()
	f.to(ids[0], create)
	f.to(ids[1], create, configure)
	f.stopLast()
	old, err := os.ReadFile(f.state())
	if err != nil {
		t.Fatal(err)
	}
	f.run()
	f.to(ids[0], remove, create, configure)
	f.stopLast()
	f.restore(old)
	f.run()
	f.await(ids[0], configured)
	l := f.list()
	if err := f.compare(l); err != nil {
		t.Error(err)
	}
	for _, m := range l.GetMachines() {
		if m.GetState() != configured || m.GetCluster() != clusterOf(m.GetId()).cluster {
			t.Errorf("%s is %s in %q", m.GetId(), m.GetState(), m.GetCluster())
		}
	}
}

// TestKillBeforeFirstInventory kills a provider that made a new state file over
// live servers before it could read what the cloud has: the next one must not
// take the file for one that knows everything.
func TestKillBeforeFirstInventory(t *testing.T) {
	t.Parallel()
	f := &fleet{world: newWorld(t, 6)}
	f.run()
	f.populate()
	ids := f.ids()
	f.stopLast()
	if err := os.Remove(f.state()); err != nil {
		t.Fatal(err)
	}
	before := f.servers()
	mend := f.cloud.Inject(fakecloud.Fault{Route: fakecloud.RouteListServers, Times: -1, Reply: fakecloud.Unavailable()})
	for range 3 {
		p := f.launch()
		eventually(t, readyWithin, func() error {
			if !p.said("inventory could not be read") {
				return errors.New("no inventory was tried")
			}
			return nil
		})
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		if ack, err := f.Create(ctx, &pb.CreateRequest{MachineId: ids[0]}, grpc.WaitForReady(true)); err == nil {
			t.Fatalf("Create over a live server was accepted: %v", ack)
		}
		cancel()
		p.kill()
	}
	mend()
	f.run()
	f.adopted(6)
	if f.servers() != before {
		t.Errorf("%d servers, %d before", f.servers(), before)
	}
}

// TestStateFileTakenAway removes, moves or cuts the file under a running
// provider: it stops rather than to acknowledge what a restart would not find,
// and what was acknowledged before is known to the next one, by the file or by
// the servers' tags.
func TestStateFileTakenAway(t *testing.T) {
	t.Parallel()
	for name, take := range map[string]func(path string) error{
		"folder removed": func(path string) error { return os.RemoveAll(filepath.Dir(path)) },
		"file removed":   os.Remove,
		"file emptied":   func(path string) error { return os.Truncate(path, 0) },
		"file cut off":   func(path string) error { return os.Truncate(path, 8192) },
	} {
		t.Run(name, func(t *testing.T) {
			f := &fleet{world: newWorld(t, 2)}
			p := f.run()
			ids := f.ids()
			f.to(ids[0], create, configure)
			if err := take(f.state()); err != nil {
				t.Fatal(err)
			}
			if _, err := f.call(create, ids[1]); status.Code(err) != codes.Unavailable {
				t.Errorf("Create without a state file: %v, want UNAVAILABLE", err)
			}
			f.stops(p, "the state cannot be written any more")
			if f.servers() != 1 {
				t.Errorf("%d servers, want the one that was acknowledged", f.servers())
			}

			if strings.HasPrefix(name, "file ") && name != "file removed" {
				f.stops(f.launch(), f.state(), "is damaged")
				if err := os.Remove(f.state()); err != nil {
					t.Fatal(err)
				}
			}
			if name == "folder removed" {
				f.stops(f.launchAsIs(), f.state(), "cannot be created")
			}
			f.run()
			f.adopted(2)
		})
	}
}

// TestSecondProvider: of two on one file the first goes on, and the second says
// so before it does anything.
func TestSecondProvider(t *testing.T) {
	t.Parallel()
	f := &fleet{world: newWorld(t, 2)}
	f.run()
	ids := f.ids()
	f.to(ids[0], create)
	second := f.launch()
	f.stops(second, f.state(), "locked by another process")
	if second.said("msg=serving") {
		t.Error("the second one served")
	}
	f.to(ids[0], configure)
}
