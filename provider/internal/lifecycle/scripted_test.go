package lifecycle_test

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"bigfleet-providers/provider/internal/cloud"
	"bigfleet-providers/provider/internal/delivery"
	"bigfleet-providers/provider/internal/lifecycle"
	"bigfleet-providers/provider/internal/machine"
	"bigfleet-providers/provider/internal/store"
	"bigfleet-providers/shared/command"
)

// scriptedCloud is a cloud port whose steps take time, fail as told, and are
// recorded. The adapters are tested against the fake cloud; here only what the
// lifecycle makes of a cloud's answers matters.
type scriptedCloud struct {
	mu        sync.Mutex
	instances map[string]cloud.Instance // by ref
	calls     []string                  // "step machine", in order
	reruns    []string                  // steps that were told that they may have run
	fail      map[string][]error        // by step name, one for each try; then success
	next      int
	listErr   error
	// hidden is the instances that List does not show before a time, unread what
	// becomes of the Get of one.
	hidden  map[string]time.Time
	unread  map[string]func(context.Context) error
	strays  map[string]cloud.Stray // by ref
	busy    map[string]bool        // strays that turn out to be in use
	listers int                    // calls of List and Strays
	noting  bool                   // each step notes the calls so far
}

func newScriptedCloud() *scriptedCloud {
	return &scriptedCloud{
		instances: map[string]cloud.Instance{}, fail: map[string][]error{},
		hidden: map[string]time.Time{}, unread: map[string]func(context.Context) error{},
		strays: map[string]cloud.Stray{}, busy: map[string]bool{},
	}
}

func (c *scriptedCloud) did(step string, t *cloud.Task) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls = append(c.calls, step+" "+t.Spec.MachineID)
	if t.Rerun {
		c.reruns = append(c.reruns, step)
	}
	if c.noting {
		t.Note("calls", fmt.Sprint(len(c.calls)))
	}
	if errs := c.fail[step]; len(errs) > 0 {
		c.fail[step] = errs[1:]
		return errs[0]
	}
	return nil
}

func (c *scriptedCloud) Create() []cloud.Step {
	return []cloud.Step{
		{Name: "order", Run: func(_ context.Context, t *cloud.Task) error {
			if err := c.did("order", t); err != nil {
				return err
			}
			c.mu.Lock()
			defer c.mu.Unlock()
			for ref, in := range c.instances {
				if in.OperationID == t.Spec.OperationID {
					t.Ref = ref
					return nil
				}
			}
			c.next++
			t.Ref = fmt.Sprint("z/", c.next)
			c.instances[t.Ref] = cloud.Instance{Ref: t.Ref, MachineID: t.Spec.MachineID, OperationID: t.Spec.OperationID, Type: t.Spec.Type, Zone: t.Spec.Zone, Power: cloud.PowerStopped, Created: time.Now()}
			return nil
		}},
		{Name: "boot", Run: func(_ context.Context, t *cloud.Task) error {
			if err := c.did("boot", t); err != nil {
				return err
			}
			c.power(t.Ref, cloud.PowerRunning)
			return nil
		}},
	}
}

func (c *scriptedCloud) power(ref string, p cloud.Power) {
	c.mu.Lock()
	defer c.mu.Unlock()
	in := c.instances[ref]
	in.Power = p
	c.instances[ref] = in
}

func (c *scriptedCloud) Start() []cloud.Step {
	return []cloud.Step{{Name: "start", Run: func(_ context.Context, t *cloud.Task) error {
		if err := c.did("start", t); err != nil {
			return err
		}
		c.power(t.Ref, cloud.PowerRunning)
		return nil
	}}}
}

func (c *scriptedCloud) remove(name string) []cloud.Step {
	return []cloud.Step{{Name: name, Run: func(_ context.Context, t *cloud.Task) error {
		if err := c.did(name, t); err != nil {
			return err
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.instances, t.Ref)
		return nil
	}}}
}

func (c *scriptedCloud) Discard() []cloud.Step { return c.remove("discard") }
func (c *scriptedCloud) Delete() []cloud.Step  { return c.remove("terminate") }

func (c *scriptedCloud) Scrub(_ context.Context, ref string) error {
	return c.did("scrub", &cloud.Task{Spec: cloud.Spec{MachineID: ref}})
}

func (c *scriptedCloud) SetCluster(_ context.Context, ref, cluster string) error {
	if err := c.did("set-cluster", &cloud.Task{Spec: cloud.Spec{MachineID: ref + "=" + cluster}}); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	in := c.instances[ref]
	in.Cluster = cluster
	c.instances[ref] = in
	return nil
}

func (c *scriptedCloud) Get(ctx context.Context, ref string) (cloud.Instance, error) {
	c.mu.Lock()
	unread := c.unread[ref]
	c.mu.Unlock()
	if unread != nil {
		if err := unread(ctx); err != nil {
			return cloud.Instance{}, err
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	in, ok := c.instances[ref]
	if !ok {
		return in, cloud.ErrNotFound
	}
	return in, nil
}

func (c *scriptedCloud) List(context.Context) ([]cloud.Instance, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.listers++
	if c.listErr != nil {
		return nil, c.listErr
	}
	return slices.DeleteFunc(slices.Collect(maps.Values(c.instances)), func(in cloud.Instance) bool {
		return time.Now().Before(c.hidden[in.Ref])
	}), nil
}

func (c *scriptedCloud) Strays(context.Context) ([]cloud.Stray, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.listers++
	if errs := c.fail["strays"]; len(errs) > 0 {
		c.fail["strays"] = errs[1:]
		return nil, errs[0]
	}
	return slices.Collect(maps.Values(c.strays)), nil
}

func (c *scriptedCloud) Remove(_ context.Context, s cloud.Stray) error {
	if err := c.did("remove", &cloud.Task{Spec: cloud.Spec{MachineID: s.Ref}}); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.busy[s.Ref] {
		return cloud.ErrConflict
	}
	delete(c.strays, s.Ref)
	return nil
}

// left lists the strays that are still there.
func (c *scriptedCloud) left() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Sorted(maps.Keys(c.strays))
}

func (c *scriptedCloud) ProviderID(ref string) string { return "scripted://" + ref }

// edit changes the cloud behind the engine's back.
func (c *scriptedCloud) edit(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f()
}

func (c *scriptedCloud) tag(ref string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.instances[ref].Cluster
}

func (c *scriptedCloud) script(step string, errs ...error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fail[step] = errs
}

func (c *scriptedCloud) count(step string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := 0
	for _, call := range c.calls {
		if strings.HasPrefix(call, step) {
			n++
		}
	}
	return n
}

func (c *scriptedCloud) size() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.instances)
}

// scriptedHosts is a delivery to hosts that answer after a second, unless told
// otherwise.
type scriptedHosts struct {
	mu        sync.Mutex
	silent    bool // no contact, no report
	report    func(command.Command) (bool, string)
	commands  []command.Command
	confirmed []error
}

func (h *scriptedHosts) Contact(ctx context.Context, _ string, _ time.Time) error {
	return h.answer(ctx)
}

func (h *scriptedHosts) answer(ctx context.Context) error {
	h.mu.Lock()
	silent := h.silent
	h.mu.Unlock()
	if silent {
		<-ctx.Done()
		return context.Cause(ctx)
	}
	select {
	case <-time.After(time.Second):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (h *scriptedHosts) Deliver(ctx context.Context, cmd command.Command) (delivery.Report, error) {
	h.mu.Lock()
	h.commands = append(h.commands, cmd)
	report := h.report
	h.mu.Unlock()
	if err := h.answer(ctx); err != nil {
		return delivery.Report{}, err
	}
	ok, text := true, ""
	if report != nil {
		ok, text = report(cmd)
	}
	return delivery.Report{OK: ok, Error: text, Confirm: func(err error) {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.confirmed = append(h.confirmed, err)
	}}, nil
}

func (h *scriptedHosts) Forget(string) {}

func (h *scriptedHosts) HeardWithin(string, time.Duration) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return !h.silent
}

func (h *scriptedHosts) edit(f func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	f()
}

func (h *scriptedHosts) sent() []command.Command {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.commands)
}

func (h *scriptedHosts) outcomes() []error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.confirmed)
}

// witness is an observer that keeps what the tests look at.
type witness struct {
	mu      sync.Mutex
	last    lifecycle.PassReport // of the last complete pass
	passes  int                  // complete ones
	failed  int                  // passes
	orphans map[string]int       // by "kind result"
	blocked map[string]time.Time
}

func newWitness() *witness {
	return &witness{orphans: map[string]int{}, blocked: map[string]time.Time{}}
}

func (*witness) Started(machine.Kind)                        {}
func (*witness) Settled(machine.Kind, string, time.Duration) {}
func (*witness) StepFailed(machine.Kind, string, string)     {}
func (*witness) Panicked()                                   {}

func (*witness) StepDone(machine.Kind, string, string, time.Duration) {}

func (w *witness) Reconciled(r lifecycle.PassReport) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !r.Complete {
		w.failed++
		return
	}
	w.passes++
	w.last = r
}

func (w *witness) Orphan(kind, result string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.orphans[kind+" "+result]++
}

func (w *witness) TypeBlocked(commercialType, class string, until time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.blocked[commercialType+" "+class] = until
}

func (w *witness) look(f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f()
}

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
		Store: st, Cloud: r.cloud, Deleter: r.cloud, Sweeper: r.cloud, Delivery: r.hosts, Provider: "p",
		UserData: func(string) ([]byte, error) { return nil, nil },
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
