package offering

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"bigfleet-providers/provider/internal/cloud"
)

const (
	id1 = "0e2b7c1a-1111-4111-8111-000000000001"
	id2 = "0e2b7c1a-1111-4111-8111-000000000002"
)

func TestLoadOptions(t *testing.T) {
	list, err := Load(write(t, `[
		{"commercial_type": "GP1-M", "zone": "fr-par-1", "count": 1, "image": "debian_bookworm",
		 "root_volume": {"type": "sbs", "size_gb": 100, "iops": 15000},
		 "private_network_ids": ["`+id1+`", "`+id2+`"], "security_group_id": "`+id1+`", "placement_group_id": "`+id2+`",
		 "public_ip": "ipv6", "tags": ["team=büro", "batch"]},
		{"commercial_type": "DEV1-S", "zone": "fr-par-1", "count": 1, "image": "`+id1+`", "root_volume": {"type": "local", "size_gb": 20}, "public_ip": "none"},
		{"commercial_type": "DEV1-M", "zone": "fr-par-1", "count": 1, "image": null, "tags": null}
	]`), frPar1)
	if err != nil {
		t.Fatal(err)
	}
	var got []cloud.Options
	for _, o := range list {
		got = append(got, o.Options)
	}
	want := []cloud.Options{
		{
			Image: "debian_bookworm", RootVolume: &cloud.RootVolume{Type: cloud.VolumeBlock, SizeGB: 100, IOPS: 15000},
			PrivateNetworks: []string{id1, id2}, SecurityGroup: id1, PlacementGroup: id2, PublicIP: cloud.PublicIPv6, Tags: []string{"team=büro", "batch"},
		},
		{Image: id1, RootVolume: &cloud.RootVolume{Type: cloud.VolumeLocal, SizeGB: 20}, PublicIP: cloud.PublicNone},
		{},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("Load (-want +got):\n%s", diff)
	}
	for _, o := range got {
		back, err := cloud.DecodeOptions(o.Encode())
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(o, back); diff != "" {
			t.Errorf("options after a record (-want +got):\n%s", diff)
		}
	}
}

func TestLoadReportsEveryFaultOfOptions(t *testing.T) {
	rules := frPar1
	rules.Tag = func(tag string) error {
		if strings.HasPrefix(tag, "bad") {
			return errors.New("is refused")
		}
		return nil
	}
	networks := make([]string, MaxNetworks+1)
	for i := range networks {
		networks[i] = fmt.Sprintf(`"0e2b7c1a-1111-4111-8111-%012d"`, i)
	}
	tags := make([]string, MaxTags+1)
	for i := range tags {
		tags[i] = fmt.Sprintf(`"t%d"`, i)
	}
	const head = `{"commercial_type": "DEV1-S", "zone": "fr-par-1", "count": 1, `
	_, err := Load(write(t, `[
		`+head+`"image": "ubuntu noble", "root_volume": {"type": "nvme", "size_gb": 5, "iops": 7000, "colour": 1}, "private_network_ids": ["lan", "`+id1+`", "`+id1+`"],
		 "security_group_id": "default", "placement_group_id": 7, "public_ip": "ipv4", "tags": ["fine", "bad=1", "fine"]},
		`+head+`"labels": {"n": "1"}, "image": "", "root_volume": {}, "private_network_ids": "x", "public_ip": "", "tags": [1]},
		`+head+`"labels": {"n": "2"}, "root_volume": {"type": "local", "iops": 5000}, "private_network_ids": [`+strings.Join(networks, ",")+`], "tags": [`+strings.Join(tags, ",")+`]},
		`+head+`"labels": {"n": "3"}, "root_volume": 20},
		`+head+`"labels": {"n": "4"}, "root_volume": {"type": "sbs", "size_gb": 10001}},
		`+head+`"labels": {"n": "5"}, "resources": {"cpu": "1"}},
		`+head+`"labels": {"n": "5"}, "resources": {"cpu": "1000m"}, "public_ip": "none", "tags": ["x"]}
	]`), rules)
	if err == nil {
		t.Fatal("Load accepted a file full of faults")
	}
	for _, want := range []string{
		`offerings[0].image: "ubuntu noble" is neither`,
		`offerings[0].root_volume.type: "nvme" is not known; use "local" or "sbs"`,
		`offerings[0].root_volume.size_gb: 5; it must be from 10 to 10000`,
		`offerings[0].root_volume.iops: 7000; it must be 5000 or 15000`,
		`offerings[0].root_volume.colour: unknown field; known are type, size_gb and iops`,
		`offerings[0].private_network_ids[0]: "lan" is not a UUID`,
		`offerings[0].private_network_ids[2]: "` + id1 + `" is in the list twice`,
		`offerings[0].security_group_id: "default" is not a UUID`,
		`offerings[0].placement_group_id: 7 is not a string`,
		`offerings[0].public_ip: "ipv4" is not known; use "dynamic", "none" or "ipv6"`,
		`offerings[0].tags[1]: is refused`,
		`offerings[0].tags[2]: "fine" is in the list twice`,
		`offerings[1].image: ""`,
		`offerings[1].root_volume.type: missing`,
		`offerings[1].private_network_ids: "x" is not an array of strings`,
		`offerings[1].public_ip: ""`,
		`offerings[1].tags: [1] is not an array of strings`,
		`offerings[2].root_volume.size_gb: missing`,
		`offerings[2].root_volume.iops: only block volumes have it`,
		`offerings[2].private_network_ids: 9 networks, the limit is 8`,
		`offerings[2].tags: 33 tags, the limit is 32`,
		`offerings[3].root_volume: not an object`,
		`offerings[4].root_volume.size_gb: 10001`,
		`offerings[6].public_ip: differs from that of offerings[5]`,
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error lacks %q", want)
		}
	}
	if t.Failed() {
		t.Log(err)
	}
}

// TestIDsInUpperCase: an id is the same in either case, and is read as clouds write it.
func TestIDsInUpperCase(t *testing.T) {
	upper := strings.ToUpper(id1)
	list, err := Load(write(t, `[{"commercial_type": "DEV1-S", "zone": "fr-par-1", "count": 1,
		"private_network_ids": ["`+upper+`"], "security_group_id": "`+upper+`", "placement_group_id": "`+id1+`"}]`), frPar1)
	if err != nil {
		t.Fatal(err)
	}
	want := cloud.Options{PrivateNetworks: []string{id1}, SecurityGroup: id1, PlacementGroup: id1}
	if diff := cmp.Diff(want, list[0].Options); diff != "" {
		t.Errorf("options (-want +got):\n%s", diff)
	}
	const head = `[{"commercial_type": "EM-A", "zone": "fr-par-2", "servers": ["`
	if list, err = Load(write(t, head+upper+`"]}]`), metalRules); err != nil || list[0].Servers[0] != id1 {
		t.Errorf("servers %v, %v", list, err)
	}
	if _, err = Load(write(t, head+upper+`", "`+id1+`"]}]`), metalRules); err == nil || !strings.Contains(err.Error(), "servers[1]") {
		t.Errorf("a server twice: %v", err)
	}
}

// Options change how machines are made, never which machines there are.
func TestOptionsKeepTheIDs(t *testing.T) {
	plain := dev(3)
	dressed := plain
	dressed.Options = cloud.Options{Image: "debian_bookworm", PublicIP: cloud.PublicNone}
	types := map[string]cloud.Type{"DEV1-S": {Name: "DEV1-S", Arch: "amd64", PricePerHour: 1, Currency: "EUR"}}
	before, _ := Slots("p", []Offering{plain}, types, 1, nil)
	after, _ := Slots("p", []Offering{dressed}, types, 1, nil)
	for i := range before {
		if before[i].ID != after[i].ID {
			t.Errorf("slot %q became %q", before[i].ID, after[i].ID)
		}
		if before[i].Offer.Options != "" || after[i].Offer.Options != dressed.Options.Encode() {
			t.Errorf("options %q and %q", before[i].Offer.Options, after[i].Offer.Options)
		}
	}
}

// What the cloud would refuse is left out; what it cannot tell is not.
func TestFit(t *testing.T) {
	types := map[string]cloud.Type{"DEV1-S": {Name: "DEV1-S", Arch: "amd64", PricePerHour: 1, Currency: "EUR"}}
	for name, tc := range map[string]struct {
		err    error
		slots  int
		reason string
	}{
		"fits":       {nil, 2, ""},
		"never fits": {fmt.Errorf("%w: image: no such label", cloud.ErrInvalid), 0, "image: no such label"},
		"not known":  {errors.New("the API is down"), 2, "the API is down"},
	} {
		t.Run(name, func(t *testing.T) {
			slots, problems := Slots("p", []Offering{dev(2)}, types, 1, func(Offering) error { return tc.err })
			if len(slots) != tc.slots || (tc.reason == "") != (len(problems) == 0) {
				t.Fatalf("%d slots, problems %v", len(slots), problems)
			}
			if len(problems) > 0 && (!strings.Contains(problems[0].Reason, tc.reason) || problems[0].LeftOut != 2-tc.slots) {
				t.Errorf("problem %+v, want %q", problems[0], tc.reason)
			}
		})
	}
}

var jsonBlock = regexp.MustCompile("(?s)```json\n(.*?)```")

// TestDocumentedExamples loads each example of the page.
func TestDocumentedExamples(t *testing.T) {
	page, err := os.ReadFile("../../../docs/offerings.md")
	if err != nil {
		t.Fatal(err)
	}
	examples := jsonBlock.FindAllStringSubmatch(string(page), -1)
	if len(examples) < 2 {
		t.Fatalf("%d examples in docs/offerings.md, want one without options and one with", len(examples))
	}
	options := false
	for i, example := range examples {
		list, err := Load(write(t, example[1]), frPar1)
		if err != nil {
			t.Errorf("example %d: %v", i+1, err)
		}
		for _, o := range list {
			options = options || o.Options.Encode() != ""
		}
	}
	if !options {
		t.Error("no example has options")
	}
}
