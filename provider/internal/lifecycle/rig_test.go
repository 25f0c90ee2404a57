package lifecycle_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"bigfleet-providers/provider/internal/lifecycle"
	"bigfleet-providers/provider/internal/machine"
	"bigfleet-providers/provider/internal/store"
)

// rig is an engine on a memory store, with its cloud and hosts.
type rig struct {
	t      *testing.T
	store  *store.Store
	cloud  *scriptedCloud
	hosts  *scriptedHosts
	saw    *witness
	log    *lockedBuffer
	engine *lifecycle.Engine
	stop   func()
	opts   lifecycle.Options
	slots  map[string]*machine.Offer
}

// lockedBuffer collects the log.
type lockedBuffer struct {
	mu  sync.Mutex
	buf strings.Builder
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

var offer = &machine.Offer{InstanceType: "DEV1-S", Zone: "z", Capacity: machine.OnDemand}

// newRig must be called in a synctest bubble.
func newRig(t *testing.T, change func(*lifecycle.Options)) *rig {
	t.Helper()
	st, err := store.Open(store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	sealer, err := lifecycle.NewSealer([]byte("0123456789abcdef0123456789abcdef"))
	if err != nil {
		t.Fatal(err)
	}
	ids := 0
	var mu sync.Mutex
	r := &rig{t: t, store: st, cloud: newScriptedCloud(), hosts: &scriptedHosts{}, saw: newWitness(), log: &lockedBuffer{}, slots: map[string]*machine.Offer{"m1": offer}}
	r.opts = lifecycle.Options{
		Hints: lifecycle.Hints{Contact: "hint: contact", Deliver: "hint: deliver", Agent: "hint: agent", CallRate: "--rate"},
		Store: st, Cloud: r.cloud, Deleter: r.cloud, Sweeper: r.cloud, Delivery: r.hosts, Provider: "p",
		UserData: func(string, string) ([]byte, error) { return nil, nil },
		NewID: func() string {
			mu.Lock()
			defer mu.Unlock()
			ids++
			return fmt.Sprint("op-", ids)
		},
		Timeouts: lifecycle.Timeouts{Create: 10 * time.Minute, Configure: 5 * time.Minute, Drain: 5 * time.Minute, Delete: 10 * time.Minute},
		Pace:     lifecycle.Pace{RetryMin: time.Second, RetryMax: time.Minute, TagBudget: 30 * time.Second, TypePauseMin: 30 * time.Second, TypePauseMax: 15 * time.Minute},
		Log:      slog.New(slog.NewTextHandler(r.log, nil)), Observer: r.saw, Sealer: sealer,
		FailedRetention: time.Hour, FailedListed: 10 * time.Minute,
		MaxCloudSteps: 8, RemovalGrace: 30 * time.Minute, RemovalCap: 3,
	}
	if change != nil {
		change(&r.opts)
	}
	r.start()
	t.Cleanup(func() {
		r.stop()
		if err := st.Close(); err != nil {
			t.Error(err)
		}
	})
	return r
}

// start begins a new engine on the same store, as a new process would.
func (r *rig) start() {
	r.engine = lifecycle.New(r.opts)
	if err := r.engine.Seed(context.Background(), r.slots); err != nil {
		r.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- r.engine.Run(ctx, time.Minute) }()
	r.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			r.t.Error(err)
		}
	})
}

func (r *rig) do(k machine.Kind, change func(*machine.Request)) (string, error) {
	q := machine.Request{Kind: k, MachineID: "m1"}
	if k == machine.Configure {
		q.Cluster = "c1"
	}
	if change != nil {
		change(&q)
	}
	id, _, err := r.engine.Start(context.Background(), q, []byte("join me"))
	return id, err
}

func (r *rig) must(k machine.Kind) string {
	r.t.Helper()
	id, err := r.do(k, nil)
	if err != nil {
		r.t.Fatalf("%s: %v", k, err)
	}
	return id
}

func (r *rig) record(id string) machine.Record {
	rec, _, ok := r.store.Get(id)
	if !ok {
		rec.State = machine.Unknown
	}
	return rec
}

// settle advances time until the machine is at rest.
func (r *rig) settle(want machine.State) machine.Record {
	r.t.Helper()
	for range 5000 {
		rec := r.record("m1")
		if !rec.State.Transitional() {
			if rec.State != want {
				r.t.Fatalf("the machine is %s (%s), want %s", rec.State, rec.LastError, want)
			}
			return rec
		}
		time.Sleep(time.Second)
	}
	r.t.Fatalf("the machine stays %s", r.record("m1").State)
	return machine.Record{}
}
