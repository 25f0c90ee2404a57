package lifecycle_test

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"bigfleet-providers/provider/internal/machine"
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
