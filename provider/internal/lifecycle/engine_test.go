package lifecycle_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"bigfleet-providers/provider/internal/machine"
	"bigfleet-providers/shared/command"
)

// together sends calls for one machine at once and returns which were accepted.
// The others must be told that the machine is not where they need it.
func (r *rig) together(id string, kinds ...machine.Kind) []machine.Kind {
	var (
		mu       sync.Mutex
		accepted []machine.Kind
		work     sync.WaitGroup
	)
	for _, k := range kinds {
		work.Go(func() {
			_, err := r.do(k, func(q *machine.Request) { q.MachineID = id })
			var refused *machine.Error
			switch {
			case err == nil:
				mu.Lock()
				defer mu.Unlock()
				accepted = append(accepted, k)
			case !errors.As(err, &refused) || refused.Code != machine.Busy && refused.Code != machine.Misplaced:
				r.t.Errorf("%s of %s: %v, want a refusal for its state", k, id, err)
			}
		})
	}
	work.Wait()
	return accepted
}

// Configure, Drain and Delete that come at the same moment have one legal order:
// one begins, the others are refused. A machine that was deleted never joins a
// cluster, and one that joins is not deleted under its workloads.
func TestConcurrentCallsHaveOneOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const machines = 100
		r := fleet(t, machines, nil, func(r *rig) {
			for n := 1; n <= machines; n++ {
				r.host(n, machine.Idle, "")
			}
		})
		synctest.Wait()
		joins := func(id string) int {
			n := 0
			for _, cmd := range r.hosts.sent() {
				if cmd.MachineID == id {
					n++
				}
			}
			return n
		}
		want := map[string]machine.State{}
		for n := 1; n <= machines; n++ {
			id := fmt.Sprint("m", n)
			kinds := []machine.Kind{machine.Configure, machine.Drain, machine.Delete}
			accepted := r.together(id, slices.Concat(kinds[n%3:], kinds[:n%3])...)
			if len(accepted) != 1 || accepted[0] == machine.Drain {
				t.Fatalf("%s was free, and it was accepted to %v", id, accepted)
			}
			want[id] = map[machine.Kind]machine.State{machine.Configure: machine.Configured, machine.Delete: machine.Speculative}[accepted[0]]
		}
		time.Sleep(time.Minute)
		servers := 0
		for id, state := range want {
			if got := r.record(id).State; got != state {
				t.Errorf("%s is %s, want %s", id, got, state)
			}
			if state == machine.Configured {
				servers++
			}
			if got, joined := joins(id), state == machine.Configured; (got == 1) != joined || got > 1 {
				t.Errorf("%s is %s after %d commands to its host", id, state, got)
			}
		}
		if n := r.cloud.size(); n != servers {
			t.Errorf("%d servers for %d machines", n, servers)
		}
		// One that carries workloads must be drained first, however close the calls.
		for id, state := range want {
			if state != machine.Configured {
				continue
			}
			if accepted := r.together(id, machine.Delete, machine.Drain, machine.Delete); len(accepted) != 1 || accepted[0] != machine.Drain {
				t.Errorf("%s was bound, and it was accepted to %v", id, accepted)
			}
		}
		time.Sleep(time.Minute)
		if n := r.cloud.size(); n != servers {
			t.Errorf("%d servers for %d machines", n, servers)
		}
	})
}

func TestWholeLife(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		synctest.Wait()
		create := r.must(machine.Create)
		if again := r.must(machine.Create); again != create {
			t.Errorf("a replay got operation %s, want %s", again, create)
		}
		if rec := r.settle(machine.Idle); rec.Host != "z/1" {
			t.Errorf("host %+v", rec.Host)
		}
		configure := r.must(machine.Configure)
		rec := r.settle(machine.Configured)
		if rec.Cluster != "c1" || rec.Op != nil || r.cloud.tag("z/1") != "c1" {
			t.Errorf("after Configure: %+v, tag %q", rec, r.cloud.tag("z/1"))
		}
		cmd := r.hosts.sent()[0]
		if cmd.CommandID != configure || string(cmd.Blob) != "join me" || cmd.Kind != command.Configure || cmd.ProviderID != "scripted://z/1" || cmd.NodeName != "m1" {
			t.Errorf("command %+v", cmd)
		}
		if _, err := r.do(machine.Drain, func(q *machine.Request) { q.GraceSeconds = 7 }); err != nil {
			t.Fatal(err)
		}
		rec = r.settle(machine.Idle)
		if rec.Cluster != "" || r.cloud.tag("z/1") != "" {
			t.Errorf("after Drain: %+v", rec)
		}
		if cmd := r.hosts.sent()[1]; cmd.Kind != command.Drain || cmd.GraceSeconds != 7 || len(cmd.Blob) > 0 {
			t.Errorf("command %+v", cmd)
		}
		r.must(machine.Delete)
		r.settle(machine.Speculative)
		if r.cloud.size() != 0 || r.cloud.count("order") != 1 || r.cloud.count("scrub") != 1 {
			t.Errorf("left %d instances after %d calls", r.cloud.size(), r.cloud.count(""))
		}
		for _, err := range r.hosts.outcomes() {
			if err != nil {
				t.Errorf("a report was not confirmed: %v", err)
			}
		}
	})
}

func TestCallersContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		synctest.Wait()
		over, cancel := context.WithCancel(context.Background())
		cancel()
		q := machine.Request{Kind: machine.Create, MachineID: "m1", Fence: machine.Fence{Shard: "s", Epoch: 1, Sequence: 1}}
		if _, _, err := r.engine.Start(over, q, nil); !errors.Is(err, context.Canceled) {
			t.Errorf("a call whose caller is gone: %v", err)
		}
		if rec := r.record("m1"); rec.State != machine.Speculative || len(rec.Marks) > 0 {
			t.Errorf("a call whose caller is gone did something: %+v", rec)
		}
		ctx, hangUp := context.WithCancel(context.Background())
		if _, _, err := r.engine.Start(ctx, q, nil); err != nil {
			t.Fatal(err)
		}
		hangUp()
		r.settle(machine.Idle)
	})
}
