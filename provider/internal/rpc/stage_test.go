package rpc

import (
	"testing"

	"google.golang.org/protobuf/proto"

	pb "bigfleet-providers/proto/bigfleet/v1alpha1"
	"bigfleet-providers/provider/internal/machine"
)

// TestStage: a dedicated server that is being made shows its step, and nothing
// else does.
func TestStage(t *testing.T) {
	t.Parallel()
	offer := func(c machine.CapacityType) *machine.Offer {
		return &machine.Offer{InstanceType: "EM-X", Zone: "z", Capacity: c, Labels: map[string]string{"l": "v"}}
	}
	creating := &machine.Operation{Kind: machine.Create, Step: "install"}
	for name, tt := range map[string]struct {
		rec  machine.Record
		want string
	}{
		"under way":    {machine.Record{State: machine.Creating, Offer: offer(machine.BareMetal), Op: creating}, "install"},
		"not begun":    {machine.Record{State: machine.Creating, Offer: offer(machine.BareMetal), Op: &machine.Operation{}}, ""},
		"an instance":  {machine.Record{State: machine.Creating, Offer: offer(machine.OnDemand), Op: creating}, ""},
		"done":         {machine.Record{State: machine.Idle, Offer: offer(machine.BareMetal)}, ""},
		"without more": {machine.Record{State: machine.Creating, Offer: &machine.Offer{Capacity: machine.BareMetal}, Op: creating}, "install"},
	} {
		t.Run(name, func(t *testing.T) {
			var framed pb.Machine
			if err := proto.Unmarshal(unframe(framer.Frame(&tt.rec)), &framed); err != nil {
				t.Fatal(err)
			}
			plain := toProto(&tt.rec, "p")
			if !proto.Equal(plain, &framed) {
				t.Errorf("List shows %v, an ack %v", &framed, plain)
			}
			if got := framed.GetLabels()[stageLabel]; got != tt.want {
				t.Errorf("stage %q, want %q", got, tt.want)
			}
			if _, changed := tt.rec.Offer.Labels[stageLabel]; changed {
				t.Error("the offer's own labels were changed")
			}
		})
	}
}
