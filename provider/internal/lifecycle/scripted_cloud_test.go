package lifecycle_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"bigfleet-providers/provider/internal/cloud"
)

// scriptedCloud is a cloud port whose steps take time, fail as told, and are
// recorded. The adapters are tested against the fake cloud; here only what the
// lifecycle makes of a cloud's answers matters.
type scriptedCloud struct {
	*scriptedServers
	epoch cloud.OwnerEpoch // of the process that has this end
}

// scriptedServers is what processes share.
type scriptedServers struct {
	mu        sync.Mutex
	instances map[string]cloud.Instance // by ref
	calls     []string                  // "step machine", in order
	reruns    []string                  // steps that were told that they may have run
	fail      map[string][]error        // by step name, one for each try; then success
	next      int
	listErr   error
	late      time.Duration // how long after it was true the answer of List comes
	// hidden is the instances that List does not show before a time, unread what
	// becomes of the Get of one.
	hidden  map[string]time.Time
	unread  map[string]func(context.Context) error
	strays  map[string]cloud.Stray // by ref
	busy    map[string]bool        // strays that turn out to be in use
	listers int                    // calls of List and Strays
	noting  bool                   // each step notes the calls so far
	asIs    bool                   // a Create keeps the system of its server
}

func newScriptedCloud() *scriptedCloud {
	return &scriptedCloud{scriptedServers: &scriptedServers{
		instances: map[string]cloud.Instance{}, fail: map[string][]error{},
		hidden: map[string]time.Time{}, unread: map[string]func(context.Context) error{},
		strays: map[string]cloud.Stray{}, busy: map[string]bool{},
	}}
}

// another is the end of another process.
func (c *scriptedCloud) another() *scriptedCloud {
	return &scriptedCloud{scriptedServers: c.scriptedServers}
}

func (c *scriptedCloud) SetEpoch(e cloud.OwnerEpoch) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.epoch = e
}

// mine is called with c.mu held.
func (c *scriptedCloud) mine(ref string) error {
	if in := c.instances[ref]; in.Epoch.After(c.epoch) {
		return &cloud.NotOwnerError{Ref: ref, Epoch: in.Epoch}
	}
	return nil
}

func (c *scriptedCloud) MarkEpoch(_ context.Context, ref string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	in, ok := c.instances[ref]
	if !ok {
		return cloud.ErrNotFound
	}
	if err := c.mine(ref); err != nil {
		return err
	}
	in.Epoch = c.epoch
	c.instances[ref] = in
	return nil
}

func (c *scriptedCloud) Oldest(context.Context) (cloud.Instance, bool, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.listErr != nil || len(c.instances) == 0 {
		return cloud.Instance{}, false, c.listErr
	}
	return slices.MinFunc(slices.Collect(maps.Values(c.instances)), func(a, b cloud.Instance) int { return a.Created.Compare(b.Created) }), true, nil
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
			if c.asIs {
				t.Note(cloud.NoteAsIs, "1")
			}
			c.next++
			t.Ref = fmt.Sprint("z/", c.next)
			c.instances[t.Ref] = cloud.Instance{Ref: t.Ref, MachineID: t.Spec.MachineID, OperationID: t.Spec.OperationID, Life: t.Spec.OperationID, Type: t.Spec.Type, Zone: t.Spec.Zone, Power: cloud.PowerStopped, Created: time.Now(), Epoch: c.epoch}
			return nil
		}},
		{Name: "boot", Run: func(_ context.Context, t *cloud.Task) error {
			if err := c.did("boot", t); err != nil {
				return err
			}
			if _, err := t.Spec.UserData(); err != nil {
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

// powered has the cloud say so of an instance.
func (c *scriptedCloud) powered(ref string, p cloud.Power, word string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	in := c.instances[ref]
	in.Power, in.PowerWord = p, word
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
		if err := c.mine(t.Ref); err != nil {
			return err
		}
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
	if err := c.mine(ref); err != nil {
		return err
	}
	in := c.instances[ref]
	in.Cluster, in.Epoch = cluster, c.epoch
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
	late := c.late
	c.mu.Unlock()
	defer time.Sleep(late)
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

func slicesOf(err error, n int) []error {
	errs := make([]error, n)
	for i := range errs {
		errs[i] = err
	}
	return errs
}

// clone adds a server like another, made now, of another machine.
func (c *scriptedCloud) clone(ref, as, machineID string) string {
	c.edit(func() {
		in := c.instances[ref]
		in.Ref, in.MachineID, in.Created = as, machineID, time.Now()
		c.instances[as] = in
	})
	return as
}

func (c *scriptedCloud) instance(ref string) (in cloud.Instance) {
	c.edit(func() { in = c.instances[ref] })
	return in
}
