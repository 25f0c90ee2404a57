package offering

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"bigfleet-providers/provider/internal/cloud"
	"bigfleet-providers/provider/internal/machine"
)

const (
	serverA = "6ba7b810-9dad-41d1-80b4-00c04fd430c8"
	serverB = "6ba7b811-9dad-41d1-80b4-00c04fd430c8"
)

var metalRules = Rules{Substrate: ElasticMetal, Zone: "fr-par-2"}

func TestMetalOfferings(t *testing.T) {
	list, err := parse([]byte(`[
		{"commercial_type": "EM-B112X-SSD", "zone": "fr-par-2", "count": 2, "image": "Ubuntu 24.04 LTS (Noble Numbat)"},
		{"commercial_type": "EM-B112X-SSD", "zone": "fr-par-2", "image": "Ubuntu 24.04 LTS (Noble Numbat)", "servers": ["`+serverB+`", "`+serverA+`"]}
	]`), metalRules)
	if err != nil {
		t.Fatal(err)
	}
	slots, problems := Slots("p", list, types, 1, nil)
	if len(problems) > 0 || len(slots) != 4 {
		t.Fatalf("%d slots, problems %v", len(slots), problems)
	}
	ids := map[string]string{}
	for _, s := range slots {
		if s.Offer.Capacity != machine.BareMetal || s.Offer.PricePerHour != 0 || len(s.ID) > maxIDBytes {
			t.Errorf("slot %s: %+v", s.ID, s.Offer)
		}
		o, err := cloud.DecodeOptions(s.Offer.Options)
		if err != nil || o.Server != s.Server || o.Image == "" {
			t.Errorf("slot %s of server %q has options %+v, %v", s.ID, s.Server, o, err)
		}
		ids[s.Server] = s.ID
	}
	if len(ids) != 3 {
		t.Fatalf("slots by server: %v", ids)
	}
	// The other way round, and alone: the same ids.
	again, _ := Slots("p", []Offering{{CommercialType: "EM-B112X-SSD", Zone: "fr-par-2", Capacity: machine.BareMetal, Count: 1, Servers: []string{serverA}}}, types, 1, nil)
	if len(again) != 1 || again[0].ID != ids[serverA] {
		t.Errorf("alone, server A has slot %v, want %s", again, ids[serverA])
	}
}

func TestMetalFaults(t *testing.T) {
	for entry, want := range map[string]string{
		`"count": 1, "servers": ["` + serverA + `"]`: ".count: set beside servers",
		`"servers": []`:    ".servers: 0 servers",
		`"servers": ["X"]`: ".servers[0]",
		`"servers": 7`:     ".servers: 7 is not an array",
		`"servers": ["` + serverA + `", "` + serverA + `"]`:           "offerings[0].servers[1]",
		`"count": 1, "image": "#!"`:                                   ".image",
		`"count": 1, "root_volume": {"type": "sbs"}`:                  ".root_volume: dedicated servers have none",
		`"count": 1, "private_network_ids": []`:                       ".private_network_ids",
		`"count": 1, "security_group_id": "` + serverA + `"`:          ".security_group_id",
		`"count": 1, "public_ip": "none"`:                             ".public_ip",
		`"count": 1, "capacity_type": "on_demand"`:                    ".capacity_type",
		`"count": 1, "placement_group_id": "` + serverA + `", "x": 1`: ".x: unknown field",
	} {
		_, err := parse([]byte(`[{"commercial_type": "EM-B112X-SSD", "zone": "fr-par-2", `+entry+`}]`), metalRules)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", entry, err, want)
		}
	}
	_, err := parse([]byte(`[{"commercial_type": "DEV1-S", "zone": "z", "servers": ["`+serverA+`"]}]`), Rules{Substrate: Instances, Zone: "z"})
	if err == nil || !strings.Contains(err.Error(), ".servers: servers by hand are for --substrate elastic-metal only") {
		t.Errorf("servers of Instances: %v", err)
	}
}

func TestMetalThatDoesNotFit(t *testing.T) {
	o := Offering{CommercialType: "EM-B112X-SSD", Zone: "fr-par-2", Capacity: machine.BareMetal, Count: 2, Servers: []string{serverA, serverB}}
	slots, problems := Slots("p", []Offering{o}, types, 1, func(Offering) error { return errors.Join(cloud.ErrInvalid) })
	if len(slots) != 0 || !slices.ContainsFunc(problems, func(p Problem) bool { return p.LeftOut == 2 }) {
		t.Errorf("%d slots, problems %v", len(slots), problems)
	}
}
