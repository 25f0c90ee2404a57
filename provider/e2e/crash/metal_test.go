package crash

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "bigfleet-providers/proto/bigfleet/v1alpha1"
	"bigfleet-providers/provider/internal/cloud/scaleway"
	"bigfleet-providers/provider/internal/fakecloud"
)

// metalType takes a few of the dedicated servers' types.
const metalType = "EM-B112X-SSD"

// newMetalWorld is a world of dedicated servers, at a pace of tests.
func newMetalWorld(t *testing.T, slots int, extra ...string) *fleet {
	t.Helper()
	offerings := filepath.Join(t.TempDir(), "metal.json")
	content := fmt.Sprintf(`[{"commercial_type": %q, "zone": "fr-par-1", "count": %d}]`, metalType, slots)
	if err := os.WriteFile(offerings, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, 2, append([]string{"--substrate=elastic-metal", "--image=Debian 12", "--offerings=" + offerings}, extra...)...)
	w.cloud.SetScale(0.002) // an install takes 0.7 s
	return &fleet{world: w}
}

// orders is the number of orders that the cloud has carried out.
func (f *fleet) orders() int { return len(f.cloud.Metal()) }

// spares is the number of servers that are paid for and no machine's.
func (f *fleet) spares() int {
	n := 0
	for _, s := range f.cloud.Metal() {
		if scaleway.ParseTags(s.Tags).Spare != "" {
			n++
		}
	}
	return n
}

// made creates machines one by one, whichever are SPECULATIVE, until so many
// are IDLE, and returns how many failed on the way.
func (f *fleet) made(want int) (failures int) {
	f.t.Helper()
	seen := map[string]bool{}
	eventually(f.t, 60*time.Second, func() error {
		ctx, cancel := context.WithTimeout(f.t.Context(), callTimeout)
		defer cancel()
		l, err := f.List(ctx, &pb.ListFilter{}, grpc.WaitForReady(true))
		if err != nil { // the provider was killed this moment
			return err
		}
		idles := 0
		for _, m := range l.GetMachines() {
			switch m.GetState() {
			case idle:
				idles++
			case speculative:
				// Whatever it answers, the next look tells.
				_, _ = f.call(create, m.GetId())
			case failed:
				seen[m.GetId()] = true
			default: // under way
			}
		}
		if idles != want {
			return fmt.Errorf("%d machines are IDLE, want %d", idles, want)
		}
		return nil
	})
	return len(seen)
}

// TestMetalOrderIsCounted: however an order ends, there are as many servers as
// there are machines.
func TestMetalOrderIsCounted(t *testing.T) {
	t.Parallel()
	lost := func(f fakecloud.Fault) fakecloud.Fault {
		f.Route, f.Commit = fakecloud.RouteCreateMetal, true
		return f
	}
	for name, tt := range map[string]struct {
		faults   []fakecloud.Fault
		failures int
	}{
		"answer lost":           {[]fakecloud.Fault{lost(fakecloud.Fault{Hangup: true, Times: 2})}, 0},
		"answer cut":            {[]fakecloud.Fault{lost(fakecloud.Fault{HangupAfter: 100, Times: 2})}, 0},
		"500 after the order":   {[]fakecloud.Fault{lost(fakecloud.Fault{Reply: &fakecloud.Reply{Status: http.StatusInternalServerError}})}, 0},
		"500 without an order":  {[]fakecloud.Fault{{Route: fakecloud.RouteCreateMetal, Reply: &fakecloud.Reply{Status: http.StatusInternalServerError}}}, 1},
		"429, ten times":        {[]fakecloud.Fault{{Route: fakecloud.RouteCreateMetal, Times: 10, Reply: &fakecloud.Reply{Status: http.StatusTooManyRequests}}}, 0},
		"three broken installs": {[]fakecloud.Fault{{Route: fakecloud.RouteInstallMetal, Times: 3, Outcome: fakecloud.OutcomeFallBack}}, 0},
		"broken for good":       {[]fakecloud.Fault{{Route: fakecloud.RouteInstallMetal, Times: 4, Outcome: fakecloud.OutcomeFallBack}}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newMetalWorld(t, 1)
			for _, fault := range tt.faults {
				f.cloud.Inject(fault)
			}
			f.run()
			if got := f.made(1); got != tt.failures {
				t.Errorf("%d machines failed, want %d", got, tt.failures)
			}
			if f.orders() != 1 || f.spares() != 0 {
				t.Errorf("%d servers, of them %d spare, for one machine", f.orders(), f.spares())
			}
		})
	}
}

// TestMetalTwoCreatesAtOnce orders one server a machine.
func TestMetalTwoCreatesAtOnce(t *testing.T) {
	t.Parallel()
	f := newMetalWorld(t, 4)
	f.run()
	for _, id := range f.ids() {
		for range 2 { // and a retry
			if _, err := f.call(create, id); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, id := range f.ids() {
		f.await(id, idle)
	}
	if f.orders() != 4 {
		t.Errorf("%d servers for 4 machines", f.orders())
	}
}

// TestMetalStuckDelivery: the Create ends at its deadline and names the stage,
// the server stays, and who comes next gets it.
func TestMetalStuckDelivery(t *testing.T) {
	t.Parallel()
	f := newMetalWorld(t, 1, "--create-timeout=2s")
	f.cloud.Inject(fakecloud.Fault{Route: fakecloud.RouteCreateMetal, Outcome: fakecloud.OutcomeStuck})
	f.run()
	id := f.ids()[0]
	if _, err := f.call(create, id); err != nil {
		t.Fatal(err)
	}
	f.await(id, failed)
	m, err := f.get(id)
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{"delivery", "delivering", "timeout", "capacityctl release --spare fr-par-1/" + f.cloud.Metal()[0].ID} {
		if !strings.Contains(m.GetLastError(), part) {
			t.Errorf("last_error %q does not say %q", m.GetLastError(), part)
		}
	}
	eventually(t, 10*time.Second, func() error {
		if f.spares() != 1 {
			return fmt.Errorf("%d spares", f.spares())
		}
		return nil
	})
	if f.orders() != 1 {
		t.Errorf("%d servers were ordered", f.orders())
	}
}

// TestMetalKills kills the provider again and again while ten machines are
// created: as many servers are ordered. A provider that dies between the mark of
// an order and its answer fails that machine rather than order twice.
func TestMetalKills(t *testing.T) {
	t.Parallel()
	const machines = 10
	f := newMetalWorld(t, machines)
	f.cloud.Inject(fakecloud.Fault{Route: fakecloud.RouteCreateMetal, Times: -1, Delay: 150 * time.Millisecond, Commit: true})
	stop := make(chan struct{})
	stopped := make(chan struct{})
	var kills atomic.Int64
	f.run()
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			case <-time.After(time.Duration(100+rand.IntN(400)) * time.Millisecond):
			}
			if kills.Load() >= 12 {
				continue
			}
			kills.Add(1)
			f.last.signalKill()
			<-f.last.done
			f.launch()
		}
	}()
	failures := f.made(machines)
	close(stop)
	<-stopped
	if f.orders() != machines || f.spares() != 0 {
		t.Errorf("%d servers, of them %d spare, for %d machines; %d machines failed over %d kills", f.orders(), f.spares(), machines, failures, kills.Load())
	}
	t.Logf("%d kills, %d machines failed on the way", kills.Load(), failures)
}

// TestMetalKilledInALaterOrder: an order that was refused leaves notes behind.
// What the next process notes of its own order must be on disk all the same when
// it is killed.
func TestMetalKilledInALaterOrder(t *testing.T) {
	t.Parallel()
	f := newMetalWorld(t, 1)
	refusing := f.cloud.Inject(fakecloud.Fault{Route: fakecloud.RouteCreateMetal, Times: -1, Reply: fakecloud.RateLimited()})
	p := f.run()
	id := f.ids()[0]
	if _, err := f.call(create, id); err != nil {
		t.Fatal(err)
	}
	eventually(t, 20*time.Second, func() error {
		if !p.said("failures=2") { // a pause follows, in which nothing is under way
			return errors.New("no order was refused twice")
		}
		return nil
	})
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	p.exit(t, 20*time.Second)
	refusing()
	f.cloud.SetLag(settleWindow*9/10, 0)
	f.cloud.Inject(fakecloud.Fault{Route: fakecloud.RouteCreateMetal, Commit: true, Delay: time.Minute})
	p = f.run()
	eventually(t, 20*time.Second, func() error {
		if f.orders() == 0 {
			return errors.New("nothing was ordered")
		}
		return nil
	})
	p.kill()
	f.run()
	f.await(id, idle)
	if f.orders() != 1 {
		t.Errorf("%d servers for one machine", f.orders())
	}
}

// TestMetalStateLost: with a new state, servers are IDLE or CONFIGURED by their
// tags, and nothing is ordered or given back.
func TestMetalStateLost(t *testing.T) {
	t.Parallel()
	f := newMetalWorld(t, 4)
	p := f.run()
	ids := f.ids()
	f.to(ids[0], create)
	f.to(ids[1], create, configure)
	f.to(ids[2], create, configure, drain)
	_, err := f.call(remove, ids[2])
	if status.Code(err) != codes.Unimplemented {
		t.Errorf("Delete = %v, want UNIMPLEMENTED", err)
	}
	before := f.cloud.Metal()
	p.kill()
	if err := os.RemoveAll(filepath.Dir(f.state())); err != nil {
		t.Fatal(err)
	}
	f.run()
	for i, want := range []pb.MachineState{idle, configured, idle, speculative} {
		f.await(ids[i], want)
	}
	if m, err := f.get(ids[1]); err != nil || m.GetCluster() != clusterOf(ids[1]).cluster {
		t.Errorf("%v, %v: bound to another cluster", m, err)
	}
	if after := f.cloud.Metal(); len(after) != len(before) || f.orders() != 3 {
		t.Errorf("%d servers, were %d", len(after), len(before))
	}
	f.to(ids[3], create)
	if f.orders() != 4 {
		t.Errorf("%d servers for 4 machines", f.orders())
	}
}
