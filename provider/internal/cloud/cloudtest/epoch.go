package cloudtest

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"bigfleet-providers/provider/internal/cloud"
)

// testOwnerEpoch has three processes with one owner tag: what the one with the
// greatest epoch has made or marked, the others leave alone.
func testOwnerEpoch(t *testing.T, w *World) {
	first, second, third := w.Connect(t), w.Connect(t), w.Connect(t)
	e1, e2, e3 := cloud.OwnerEpoch{Number: 1, Holder: "a"}, cloud.OwnerEpoch{Number: 2, Holder: "a"}, cloud.OwnerEpoch{Number: 2, Holder: "b"}
	first.SetEpoch(e1)
	second.SetEpoch(e2)
	third.SetEpoch(e3)

	if in, ok, err := first.Oldest(deadline(t)); err != nil || ok {
		t.Errorf("the oldest of none = %+v, %t, %v", in, ok, err)
	}
	w.Stranger(t, 2)
	one := w.create(t, first, "m-1")
	two := w.create(t, second, "m-2")
	epochs := func(want map[string]cloud.OwnerEpoch) {
		t.Helper()
		list, err := w.Connect(t).List(deadline(t))
		must(t, err)
		got := map[string]cloud.OwnerEpoch{}
		for _, in := range list {
			got[in.Ref] = in.Epoch
			if in.MachineID == "" || in.OperationID != "op-of-"+in.MachineID {
				t.Errorf("other tags were lost: %+v", in)
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("epochs (-want +got):\n%s", diff)
		}
	}
	epochs(map[string]cloud.OwnerEpoch{one.Ref: e1, two.Ref: e2})
	if in, ok, err := third.Oldest(deadline(t)); err != nil || !ok || in.Ref != one.Ref || in.Epoch != e1 {
		t.Errorf("the oldest = %+v, %t, %v; want %s", in, ok, err, one.Ref)
	}

	refused := func(what string, owner cloud.OwnerEpoch, err error) {
		t.Helper()
		if got, ok := cloud.NotOwner(err); !ok || got != owner {
			t.Errorf("%s = %v, want a refusal that names %s", what, err, owner)
		}
	}
	must(t, third.MarkEpoch(deadline(t), one.Ref))
	must(t, third.MarkEpoch(deadline(t), one.Ref)) // again changes nothing
	must(t, third.SetCluster(deadline(t), two.Ref, "prod"))
	epochs(map[string]cloud.OwnerEpoch{one.Ref: e3, two.Ref: e3})
	for _, loser := range []cloud.Cloud{first, second} {
		refused("MarkEpoch", e3, loser.MarkEpoch(deadline(t), one.Ref))
		refused("SetCluster", e3, loser.SetCluster(deadline(t), two.Ref, ""))
		refused("Scrub", e3, loser.Scrub(deadline(t), one.Ref))
		refused("Discard", e3, removal(one).refusal(deadline(t), loser.Discard()))
		if d, ok := loser.(cloud.Deleter); ok {
			refused("Delete", e3, removal(two).refusal(deadline(t), d.Delete()))
		}
	}
	epochs(map[string]cloud.OwnerEpoch{one.Ref: e3, two.Ref: e3})
	if in, err := third.Get(deadline(t), two.Ref); err != nil || in.Cluster != "prod" || in.Power != cloud.PowerRunning {
		t.Errorf("what a former owner was refused has changed: %+v, %v", in, err)
	}
	must(t, removal(one).Run(deadline(t), third.Discard()))
}

// refusal runs the steps until one is refused for good.
func (o *Operation) refusal(ctx context.Context, steps []cloud.Step) error {
	err := o.Run(ctx, steps)
	if e := (*cloud.NotOwnerError)(nil); errors.As(err, &e) {
		return e
	}
	return err
}
