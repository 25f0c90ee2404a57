// Package cloudtest is the contract of package cloud as a test suite. Every
// adapter's test calls Run with its own way to make a cloud.
package cloudtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"bigfleet-providers/provider/internal/cloud"
)

// World is one cloud, empty at first, as seen from outside.
type World struct {
	Zone string
	Type string // of the instances that are made; one with side resources, if the cloud has any
	// Options are the instances', encoded; "" for none.
	Options string
	// Connect returns an adapter as a newly started process has it. Adapters
	// share nothing but the cloud and the provider's name.
	Connect func(t *testing.T) cloud.Cloud
	// Servers lists the refs of all servers, whoever made them.
	Servers func() []string
	// Remains lists everything that exists and bills, a line each: servers,
	// volumes, addresses. Of a cloud.Keeper it leaves out the spare servers.
	Remains func() []string
	// UserData returns what the cloud holds for a server now and what its guest
	// saw at its first boot.
	UserData func(ref string) (now, firstBoot []byte)
	// States brings a running server into a state, by the cloud's name for it.
	States map[string]func(t *testing.T, ref string)
	// Stop powers a running server off and returns when it is.
	Stop func(t *testing.T, ref string)
	// Remove removes a server behind the provider's back.
	Remove func(t *testing.T, ref string)
	// Stranger makes servers that are not this provider's.
	Stranger func(t *testing.T, n int)
	// LoseAnswer carries out the n-th changing call from now, counted from 0, and
	// hangs up instead of answering. It returns whether that has happened.
	LoseAnswer func(n int) (happened func() bool)
}

const patience = 30 * time.Second

// userData is what the suite gives its instances.
var userData = []byte("#cloud-config\n# of the contract suite\n")

// Run runs the suite. Each test gets a world of its own, in a synctest bubble of
// its own: what the world and its adapters wait for takes no time, and they must
// talk to each other over connections in memory.
func Run(t *testing.T, newWorld func(t *testing.T) *World) {
	for _, tc := range []struct {
		name string
		test func(*testing.T, *World)
	}{
		{"Create", testCreate},
		{"RerunEveryStep", testRerunEveryStep},
		{"ConcurrentCreates", testConcurrentCreates},
		{"UnusualIDs", testUnusualIDs},
		{"Start", testStart},
		{"SetCluster", testSetCluster},
		{"OwnerEpoch", testOwnerEpoch},
		{"Scrub", testScrub},
		{"NotFound", testNotFound},
		{"List", testList},
		{"StrangersStay", testStrangersStay},
		{"Strays", testStrays},
		{"DiscardNothing", testDiscardNothing},
		{"DeleteGone", testDeleteGone},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { tc.test(t, newWorld(t)) })
		})
	}
	t.Run("CrashInCreate", func(t *testing.T) { testCrashInCreate(t, newWorld) })
	t.Run("LostAnswers", func(t *testing.T) { testLostAnswers(t, newWorld) })
	t.Run("DiscardAnywhere", func(t *testing.T) { testDiscardAnywhere(t, newWorld) })
	t.Run("DeleteFromAnyState", func(t *testing.T) { testDeleteFromAnyState(t, newWorld) })
	t.Run("CrashInDelete", func(t *testing.T) { testCrashInDelete(t, newWorld) })
}

func (w *World) operation(machineID string) *Operation {
	return &Operation{Spec: cloud.Spec{
		MachineID: machineID, OperationID: "op-of-" + machineID, Type: w.Type, Zone: w.Zone, Options: w.Options,
		UserData: func() ([]byte, error) { return userData, nil },
	}}
}

// create brings a machine up.
func (w *World) create(t *testing.T, c cloud.Cloud, machineID string) *Operation {
	t.Helper()
	op := w.operation(machineID)
	must(t, op.Run(deadline(t), c.Create()))
	return op
}

// removal is the Delete of what the operation made; it knows the server only.
func removal(op *Operation) *Operation { return &Operation{Spec: op.Spec, Ref: op.Ref} }

func deadline(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (w *World) wantOneRunning(t *testing.T, c cloud.Cloud, op *Operation) {
	t.Helper()
	if diff := cmp.Diff([]string{op.Ref}, w.Servers()); diff != "" {
		t.Fatalf("servers (-want +got):\n%s", diff)
	}
	in, err := c.Get(deadline(t), op.Ref)
	must(t, err)
	if in.Created.IsZero() || time.Since(in.Created) > time.Hour {
		t.Errorf("created at %v", in.Created)
	}
	if in.PowerWord == "" {
		t.Error("the cloud's own word for the state is missing")
	}
	in.Created, in.PowerWord = time.Time{}, ""
	want := cloud.Instance{
		Ref: op.Ref, MachineID: op.Spec.MachineID, OperationID: op.Spec.OperationID, Life: op.Spec.OperationID,
		Type: op.Spec.Type, Zone: op.Spec.Zone, Power: cloud.PowerRunning,
	}
	if diff := cmp.Diff(want, in); diff != "" {
		t.Errorf("instance (-want +got):\n%s", diff)
	}
	if _, first := w.UserData(op.Ref); !bytes.Equal(first, userData) {
		t.Errorf("the guest saw %q at its first boot, want %q", first, userData)
	}
}

func (w *World) wantNothing(t *testing.T) {
	t.Helper()
	if left := w.Remains(); len(left) > 0 {
		t.Errorf("left behind: %q", left)
	}
}

func testCreate(t *testing.T, w *World) {
	c := w.Connect(t)
	op := w.create(t, c, "m-1")
	w.wantOneRunning(t, c, op)
	if id := c.ProviderID(op.Ref); id == "" {
		t.Error("no provider id")
	}
}

func testRerunEveryStep(t *testing.T, w *World) {
	c := w.Connect(t)
	op := w.operation("m-1")
	steps := c.Create()
	for n := range steps {
		must(t, op.RunTo(deadline(t), steps, n+1))
		must(t, op.RunTo(deadline(t), steps, n+1)) // again, as after a restart
	}
	w.wantOneRunning(t, c, op)
}

// testCrashInCreate kills the process in each step, after its effect and before
// anything about it was saved, and goes on in another.
func testCrashInCreate(t *testing.T, newWorld func(*testing.T) *World) {
	for n, name := range stepNames(newWorld(t).Connect(t).Create()) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				op := w.operation("m-1")
				dying := w.Connect(t).Create()
				must(t, op.RunTo(deadline(t), dying, n))
				op.Lost(deadline(t), dying, n)

				next := w.Connect(t)
				must(t, op.Run(deadline(t), next.Create()))
				w.wantOneRunning(t, next, op)
			})
		})
	}
}

func stepNames(steps []cloud.Step) []string {
	var names []string
	for _, s := range steps {
		names = append(names, s.Name)
	}
	return names
}

// maxCalls bounds the changing calls that an operation is expected to need.
const maxCalls = 16

func testLostAnswers(t *testing.T, newWorld func(*testing.T) *World) {
	for n := range maxCalls {
		more := false
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			c := w.Connect(t)
			op := w.operation("m-1")
			happened := w.LoseAnswer(n)
			must(t, op.Run(deadline(t), c.Create()))
			if more = happened(); more {
				w.wantOneRunning(t, c, op)
			}
		})
		if more {
			continue
		}
		if n == 0 {
			t.Fatal("Create made no call whose answer could be lost")
		}
		return // more than it needs
	}
	t.Errorf("a Create needs more than %d changing calls", maxCalls)
}

func testConcurrentCreates(t *testing.T, w *World) {
	const machines = 12
	c := w.Connect(t)
	ctx := deadline(t)
	refs := make([]string, machines)
	var wg sync.WaitGroup
	for i := range machines {
		wg.Go(func() {
			op := w.operation(fmt.Sprintf("m-%d", i))
			if err := op.Run(ctx, c.Create()); err != nil {
				t.Errorf("machine %d: %v", i, err)
			}
			refs[i] = op.Ref
		})
	}
	wg.Wait()
	slices.Sort(refs)
	if diff := cmp.Diff(refs, slices.Sorted(slices.Values(w.Servers()))); diff != "" {
		t.Errorf("servers (-made +there):\n%s", diff)
	}
}

// Ids are the fleet's, not the cloud's: any of them must survive.
func testUnusualIDs(t *testing.T, w *World) {
	c := w.Connect(t)
	want := map[string]string{}
	for _, id := range []string{"a", "Upper.Case_1", "comma,tag=x", "AUTHORIZED_KEY=ssh", "é %41 \n\x00", string(bytes.Repeat([]byte("x"), 256))} {
		want[w.create(t, c, id).Ref] = id
	}
	list, err := w.Connect(t).List(deadline(t))
	must(t, err)
	got := map[string]string{}
	for _, in := range list {
		got[in.Ref] = in.MachineID
		if in.OperationID != "op-of-"+in.MachineID {
			t.Errorf("machine %q carries operation %q", in.MachineID, in.OperationID)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("machine ids (-want +got):\n%s", diff)
	}
}

func testStart(t *testing.T, w *World) {
	c := w.Connect(t)
	op := w.create(t, c, "m-1")
	must(t, removal(op).Run(deadline(t), c.Start())) // runs already
	w.wantOneRunning(t, c, op)
	w.Stop(t, op.Ref)
	if in, err := c.Get(deadline(t), op.Ref); err != nil || in.Power != cloud.PowerStopped {
		t.Fatalf("a stopped server is %v, %v", in.Power, err)
	}
	must(t, removal(op).Run(deadline(t), c.Start()))
	w.wantOneRunning(t, c, op)
}

func testSetCluster(t *testing.T, w *World) {
	c := w.Connect(t)
	ref := w.create(t, c, "m-1").Ref
	for _, cluster := range []string{"prod", "prod", "other, with=comma & ü", ""} {
		must(t, c.SetCluster(deadline(t), ref, cluster))
		in, err := w.Connect(t).Get(deadline(t), ref)
		must(t, err)
		if in.Cluster != cluster || in.MachineID != "m-1" || in.OperationID != "op-of-m-1" {
			t.Errorf("after SetCluster(%q): %+v", cluster, in)
		}
		list, err := c.List(deadline(t))
		must(t, err)
		if len(list) != 1 || list[0].Cluster != cluster {
			t.Errorf("after SetCluster(%q): list %+v", cluster, list)
		}
	}
}

func testScrub(t *testing.T, w *World) {
	c := w.Connect(t)
	ref := w.create(t, c, "m-1").Ref
	for range 2 {
		must(t, c.Scrub(deadline(t), ref))
		if now, _ := w.UserData(ref); bytes.Contains(now, []byte("of the contract suite")) {
			t.Errorf("the cloud still holds the user data: %q", now)
		}
	}
}

func testNotFound(t *testing.T, w *World) {
	c := w.Connect(t)
	op := w.create(t, c, "m-1")
	w.Remove(t, op.Ref)
	if _, err := c.Get(deadline(t), op.Ref); !errors.Is(err, cloud.ErrNotFound) {
		t.Errorf("Get of a removed instance = %v, want ErrNotFound", err)
	}
	if err := c.SetCluster(deadline(t), op.Ref, "x"); !errors.Is(err, cloud.ErrNotFound) {
		t.Errorf("SetCluster on a removed instance = %v, want ErrNotFound", err)
	}
	if list, err := c.List(deadline(t)); err != nil || len(list) > 0 {
		t.Errorf("List = %v, %v; want nothing", list, err)
	}
}

func testList(t *testing.T, w *World) {
	w.Stranger(t, 3)
	c := w.Connect(t)
	var want []string
	for i := range 7 {
		want = append(want, w.create(t, c, fmt.Sprintf("m-%d", i)).Ref)
	}
	w.Stranger(t, 3)
	w.Stop(t, want[0]) // every state is listed
	list, err := c.List(deadline(t))
	must(t, err)
	var got []string
	for _, in := range list {
		got = append(got, in.Ref)
	}
	slices.Sort(want)
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("List (-want +got):\n%s", diff)
	}
}

// testStrangersStay points every call that changes something at a server that
// does not carry the provider's tags.
func testStrangersStay(t *testing.T, w *World) {
	w.Stranger(t, 1)
	before := w.Remains()
	ref := w.Servers()[0]
	c := w.Connect(t)
	calls := map[string]error{
		"Get":        second(c.Get(deadline(t), ref)),
		"SetCluster": c.SetCluster(deadline(t), ref, "x"),
		"Scrub":      c.Scrub(deadline(t), ref),
		"Start":      (&Operation{Ref: ref}).Run(deadline(t), c.Start()),
		"Discard":    (&Operation{Ref: ref}).Run(deadline(t), c.Discard()),
	}
	if d, ok := c.(cloud.Deleter); ok {
		calls["Delete"] = (&Operation{Ref: ref}).Run(deadline(t), d.Delete())
	}
	for name, err := range calls {
		if !errors.Is(err, cloud.ErrInvalid) {
			t.Errorf("%s on another's server = %v, want ErrInvalid", name, err)
		}
	}
	if diff := cmp.Diff(before, w.Remains()); diff != "" {
		t.Errorf("another's server was touched (-before +after):\n%s", diff)
	}
}

func second[T any](_ T, err error) error { return err }
