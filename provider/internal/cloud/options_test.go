package cloud

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Encoded options are in state files: what a release wrote must mean the same to
// the next.
func TestOptionsGolden(t *testing.T) {
	for want, o := range map[string]Options{
		"": {},
		`{"image":"ubuntu_noble","root_volume":{"type":"sbs","size_gb":100,"iops":15000},"private_network_ids":["n1","n2"],` +
			`"security_group_id":"s","placement_group_id":"p","public_ip":"ipv6","tags":["team=data","batch"]}`: {
			Image: "ubuntu_noble", RootVolume: &RootVolume{Type: VolumeBlock, SizeGB: 100, IOPS: 15000},
			PrivateNetworks: []string{"n1", "n2"}, SecurityGroup: "s", PlacementGroup: "p", PublicIP: PublicIPv6, Tags: []string{"team=data", "batch"},
		},
		`{"root_volume":{"type":"local"},"public_ip":"none"}`: {RootVolume: &RootVolume{Type: VolumeLocal}, PublicIP: PublicNone},
	} {
		if got := o.Encode(); got != want {
			t.Errorf("encoded\n%s\nwant\n%s", got, want)
		}
		back, err := DecodeOptions(want)
		if err != nil {
			t.Errorf("%s: %v", want, err)
		}
		if diff := cmp.Diff(o, back); diff != "" {
			t.Errorf("decoded (-want +got):\n%s", diff)
		}
	}
	for _, encoded := range []string{"{", `[]`, `{"image":1}`, `{"boot_from":"net"}`} {
		if o, err := DecodeOptions(encoded); !errors.Is(err, ErrInvalid) {
			t.Errorf("DecodeOptions(%s) = %+v, %v, want ErrInvalid", encoded, o, err)
		}
	}
}
