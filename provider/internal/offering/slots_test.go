package offering

import (
	"math"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"bigfleet-providers/provider/internal/cloud"
	"bigfleet-providers/provider/internal/machine"
)

var types = map[string]cloud.Type{
	"DEV1-S": {
		Name: "DEV1-S", Arch: "amd64", PricePerHour: 0.01, Currency: "EUR",
		Allocatable: map[string]string{"cpu": "2", "memory": "2Gi"},
		Labels:      map[string]string{archLabel: "amd64"},
	},
	"BASIC2-A2C-4G": {Name: "BASIC2-A2C-4G", Arch: "arm64", PricePerHour: 0.02, Currency: "EUR"},
	"L4-1-24G": {
		Name: "L4-1-24G", Arch: "amd64", PricePerHour: 0.75, Currency: "EUR",
		Labels: map[string]string{archLabel: "amd64", "bigfleet.io/accelerator": "L4"},
	},
	"UNPRICED":     {Name: "UNPRICED", Arch: "amd64", Currency: "EUR"},
	"STRANGE":      {Name: "STRANGE", Arch: "amd64", PricePerHour: 1, Currency: "XAU"},
	"EM-B112X-SSD": {Name: "EM-B112X-SSD", Arch: "amd64", PricePerHour: 0.2, Currency: "EUR"},
}

func dev(count int) Offering {
	return Offering{CommercialType: "DEV1-S", Zone: "fr-par-1", Capacity: machine.OnDemand, Count: count}
}

func idsOf(slots []Slot) []string {
	var list []string
	for _, s := range slots {
		list = append(list, s.ID)
	}
	return list
}

// The ids are written into state files and onto servers: they must not change.
func TestSlotIDsAreFixed(t *testing.T) {
	slots, problems := Slots("scaleway-fr-par-1", []Offering{dev(2)}, types, 1.1, nil)
	if len(problems) > 0 {
		t.Fatalf("problems: %v", problems)
	}
	want := []string{"scaleway-fr-par-1-dev1-s-c2a6fb-0001", "scaleway-fr-par-1-dev1-s-c2a6fb-0002"}
	if diff := cmp.Diff(want, idsOf(slots)); diff != "" {
		t.Errorf("ids (-want +got):\n%s", diff)
	}
}

func TestSlotOffers(t *testing.T) {
	o := dev(1)
	o.Resources = map[string]string{"cpu": "1000m"}
	o.Labels = map[string]string{"team": "a", archLabel: "amd64"}
	gpu := Offering{CommercialType: "L4-1-24G", Zone: "fr-par-1", Capacity: machine.OnDemand, Count: 1, Labels: map[string]string{"bigfleet.io/accelerator": "mine"}}
	arm := Offering{CommercialType: "BASIC2-A2C-4G", Zone: "fr-par-1", Capacity: machine.OnDemand, Count: 1}
	metal := Offering{CommercialType: "EM-B112X-SSD", Zone: "fr-par-1", Capacity: machine.BareMetal, Count: 1}

	slots, problems := Slots("p", []Offering{o, gpu, arm, metal}, types, 2, nil)
	if len(problems) > 0 {
		t.Fatalf("problems: %v", problems)
	}
	got := map[string]machine.Offer{}
	for _, s := range slots {
		got[s.Offer.InstanceType] = *s.Offer
	}
	want := map[string]machine.Offer{
		"DEV1-S": {
			InstanceType: "DEV1-S", Zone: "fr-par-1", Capacity: machine.OnDemand, PricePerHour: 0.02,
			Resources:   map[string]string{"cpu": "1"},
			Labels:      map[string]string{"team": "a", archLabel: "amd64"},
			Allocatable: map[string]string{"cpu": "2", "memory": "2Gi"},
		},
		"L4-1-24G": {
			InstanceType: "L4-1-24G", Zone: "fr-par-1", Capacity: machine.OnDemand, PricePerHour: 1.5,
			Labels: map[string]string{archLabel: "amd64", "bigfleet.io/accelerator": "mine"},
		},
		"BASIC2-A2C-4G": {
			InstanceType: "BASIC2-A2C-4G", Zone: "fr-par-1", Capacity: machine.OnDemand, PricePerHour: 0.04,
			Labels: map[string]string{archLabel: "arm64"},
		},
		"EM-B112X-SSD": {
			InstanceType: "EM-B112X-SSD", Zone: "fr-par-1", Capacity: machine.BareMetal,
			Labels: map[string]string{archLabel: "amd64"},
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("offers (-want +got):\n%s", diff)
	}
	if _, ok := types["L4-1-24G"].Labels["team"]; ok || types["L4-1-24G"].Labels["bigfleet.io/accelerator"] != "L4" {
		t.Error("the catalogue's own labels were changed")
	}
}

func TestSlotProblems(t *testing.T) {
	offering := func(typ string, labels map[string]string) Offering {
		return Offering{CommercialType: typ, Zone: "fr-par-1", Capacity: machine.OnDemand, Count: 2, Labels: labels}
	}
	for name, tc := range map[string]struct {
		offering Offering
		rate     float64
		want     string
		slots    int
	}{
		"retired type":    {offering("GONE1-S", nil), 1, "does not sell this type in fr-par-1", 0},
		"lie about arch":  {offering("BASIC2-A2C-4G", map[string]string{archLabel: "amd64"}), 1, `says "amd64", but the type is "arm64"`, 0},
		"strange money":   {offering("STRANGE", nil), 1, `"XAU"`, 0},
		"rate is NaN":     {offering("DEV1-S", nil), math.NaN(), "is no price", 0},
		"rate is endless": {offering("DEV1-S", nil), math.Inf(1), "is no price", 0},
		"negative rate":   {offering("DEV1-S", nil), -1, "is no price", 0},
		"unknown price":   {offering("UNPRICED", nil), 1, "offered at 0", 2},
	} {
		t.Run(name, func(t *testing.T) {
			good := Offering{CommercialType: "EM-B112X-SSD", Zone: "fr-par-1", Capacity: machine.BareMetal, Count: 1}
			slots, problems := Slots("p", []Offering{tc.offering, good}, types, tc.rate, nil)
			if len(slots) != tc.slots+1 {
				t.Errorf("%d slots, want %d", len(slots), tc.slots+1)
			}
			if len(problems) != 1 || !strings.Contains(problems[0].String(), tc.want) || problems[0].LeftOut != 2-tc.slots {
				t.Errorf("problems %v, want one with %q", problems, tc.want)
			}
		})
	}
}

func TestSlotsShareOffers(t *testing.T) {
	slots, _ := Slots("p", []Offering{dev(3000), {CommercialType: "L4-1-24G", Zone: "fr-par-1", Capacity: machine.OnDemand, Count: 5000}}, types, 1, nil)
	offers := map[*machine.Offer]bool{}
	for _, s := range slots {
		offers[s.Offer] = true
	}
	if len(slots) != 8000 || len(offers) != 2 {
		t.Errorf("%d slots with %d offers, want 8000 with 2", len(slots), len(offers))
	}
}

func TestSlotsMergeWhatIsTheSame(t *testing.T) {
	a, b := dev(2), dev(3)
	a.Resources, b.Resources = map[string]string{"cpu": "1"}, map[string]string{"cpu": "1000m"}
	a.Labels = map[string]string{} // the same as none
	together, _ := Slots("p", []Offering{a, b}, types, 1, nil)
	a.Count = 5
	alone, _ := Slots("p", []Offering{a}, types, 1, nil)
	if diff := cmp.Diff(idsOf(alone), idsOf(together)); diff != "" || len(together) != 5 {
		t.Errorf("two halves are not the whole (-whole +halves):\n%s", diff)
	}
}

var dnsLabel = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]*[a-z0-9])?$`)

// Whatever the names are: ids are valid, short and distinct, do not depend on
// the order, and stay when a count grows.
func TestSlotIDProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		provider := rapid.String().Draw(t, "provider")
		names := rapid.SliceOfNDistinct(rapid.StringN(1, 80, -1), 1, 4, rapid.ID[string]).Draw(t, "types")
		catalogue := map[string]cloud.Type{}
		for _, n := range names {
			catalogue[n] = cloud.Type{Name: n, Arch: "amd64", PricePerHour: 1, Currency: "EUR"}
		}
		offerings := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) Offering {
			o := Offering{
				CommercialType: rapid.SampledFrom(names).Draw(t, "type"), Zone: "fr-par-1",
				Capacity: machine.OnDemand, Count: rapid.IntRange(1, 4).Draw(t, "count"),
			}
			if rapid.Bool().Draw(t, "labelled") {
				o.Labels = map[string]string{"l": rapid.SampledFrom([]string{"a", "b"}).Draw(t, "label")}
			}
			return o
		}), 1, 6).Draw(t, "offerings")

		slots, problems := Slots(provider, offerings, catalogue, 1, nil)
		if len(problems) > 0 {
			t.Fatalf("problems: %v", problems)
		}
		total := 0
		for _, o := range offerings {
			total += o.Count
		}
		ids := idsOf(slots)
		if len(ids) != total {
			t.Fatalf("%d slots for a total count of %d", len(ids), total)
		}
		distinct := map[string]bool{}
		for _, id := range ids {
			if len(id) > maxIDBytes || !dnsLabel.MatchString(id) {
				t.Fatalf("id %q is no DNS label of at most %d bytes", id, maxIDBytes)
			}
			distinct[id] = true
		}
		if len(distinct) != len(ids) {
			t.Fatalf("ids repeat: %v", ids)
		}

		shuffled := rapid.Permutation(offerings).Draw(t, "shuffled")
		again, _ := Slots(provider, shuffled, catalogue, 1, nil)
		if diff := cmp.Diff(ids, idsOf(again)); diff != "" {
			t.Fatalf("the order of the offerings changed the ids:\n%s", diff)
		}

		grown := slices.Clone(offerings)
		grown[0].Count++
		after, _ := Slots(provider, grown, catalogue, 1, nil)
		for _, id := range idsOf(after) {
			delete(distinct, id)
		}
		if len(distinct) > 0 || len(after) != total+1 {
			t.Fatalf("growing a count lost the ids %v", distinct)
		}
	})
}
