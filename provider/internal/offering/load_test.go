package offering

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"bigfleet-providers/provider/internal/machine"
)

var frPar1 = Rules{Substrate: Instances, Zone: "fr-par-1", ZoneFlag: "--zone", Vendor: "Scaleway"}

func write(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "offerings.json")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestLoad(t *testing.T) {
	got, err := Load(write(t, `[
		{"commercial_type": "DEV1-S", "zone": "fr-par-1", "count": 3},
		{"commercial_type": "L4-1-24G", "zone": "fr-par-1", "capacity_type": "on_demand", "count": 1,
		 "resources": {"cpu": "500m", "memory": "2Gi", "nvidia.com/gpu": "1"},
		 "labels": {"team": "büro", "empty": ""}}
	]`), frPar1)
	if err != nil {
		t.Fatal(err)
	}
	want := []Offering{
		{CommercialType: "DEV1-S", Zone: "fr-par-1", Capacity: machine.OnDemand, Count: 3},
		{
			CommercialType: "L4-1-24G", Zone: "fr-par-1", Capacity: machine.OnDemand, Count: 1,
			Resources: map[string]string{"cpu": "500m", "memory": "2Gi", "nvidia.com/gpu": "1"},
			Labels:    map[string]string{"team": "büro", "empty": ""},
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("Load (-want +got):\n%s", diff)
	}
}

// Every fault of a file is told in one go, each with where it is.
func TestLoadReportsEveryFault(t *testing.T) {
	long := strings.Repeat("x", MaxLabelBytes+1)
	_, err := Load(write(t, `[
		{"zone": "fr-par-1", "count": 0},
		{"commercial_type": "", "zone": "nl-ams-1", "count": 1.5, "capacity_type": "spot"},
		{"commercial_type": 7, "count": "3", "capacity_type": "reserved"},
		{"commercial_type": "DEV1-S", "zone": "fr-par-1", "count": null, "capacity_type": "bare_metal",
		 "resources": {"cpu": "lots", "memory": "-1Gi"}, "labels": {"": "x", "k": "`+long+`"}},
		{"commercial_type": "DEV1-S", "zone": "fr-par-1", "count": 1, "resources": {"cpu": 1}, "labels": [], "colour": "red", "price": 1},
		"DEV1-S", null,
		{"commercial_type": "DEV1-S", "zone": null, "count": 100001, "capacity_type": "cheap"}
	]`), frPar1)
	if err == nil {
		t.Fatal("Load accepted a file full of faults")
	}
	for _, want := range []string{
		`offerings[0].commercial_type: missing`,
		`offerings[0].count: 0;`,
		`offerings[1].commercial_type: missing`,
		`offerings[1].zone: "nl-ams-1", but this provider serves "fr-par-1"`,
		`offerings[1].count: 1.5 is not a whole number`,
		`offerings[1].capacity_type: "spot": Scaleway sells no spot capacity; use "on_demand"`,
		`offerings[2].commercial_type: 7 is not a string`,
		`offerings[2].zone: missing`,
		`offerings[2].count: "3" is not a whole number`,
		`offerings[2].capacity_type: "reserved": Scaleway sells no reserved capacity`,
		`offerings[3].count: missing`,
		`offerings[3].capacity_type: "bare_metal" does not fit --substrate instances`,
		`offerings[3].resources["cpu"]: "lots" is not a Kubernetes quantity`,
		`offerings[3].resources["memory"]: "-1Gi" is negative`,
		`offerings[3].labels: a label has an empty key`,
		`offerings[3].labels["k"]: the value has 1025 bytes, the limit is 1024`,
		`offerings[4].resources: {"cpu": 1} is not an object of Kubernetes quantities`,
		`offerings[4].labels: [] is not an object of strings`,
		`offerings[4].colour: unknown field`,
		`offerings[4].price: unknown field`,
		`offerings[5]: not an object`,
		`offerings[6]: not an object`,
		`offerings[7].zone: missing`,
		`offerings[7].count: 100001;`,
		`offerings[7].capacity_type: "cheap" is not known`,
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error lacks %q", want)
		}
	}
	if got, want := strings.Count(err.Error(), "\n"), 25; got != want {
		t.Errorf("%d faults were told, want %d:\n%v", got, want, err)
	}
}

func TestLoadRefusesWholeFiles(t *testing.T) {
	many := make([]string, 0, 3)
	for range 3 {
		many = append(many, `{"commercial_type": "DEV1-S", "zone": "fr-par-1", "count": 40000}`)
	}
	for name, tc := range map[string]struct{ content, want string }{
		"empty":           {"\n", "empty, and so not a JSON array"},
		"comma too many":  {"[\n  {\"count\": 1},\n]", "line 3, byte 1: invalid character"},
		"no JSON":         {"x", "line 1, byte 1: invalid character"},
		"cut off":         {"[\n  {\"count\": 1},", "line 2, byte 15: it ends too early"},
		"no offering":     {"[]", "no offering"},
		"null":            {"null", "no offering"},
		"object":          {`{"offerings": []}`, "holds one JSON object; want an array"},
		"trailing":        {`[{"commercial_type": "DEV1-S", "zone": "fr-par-1", "count": 1}] []`, "something follows"},
		"not UTF-8":       {"[{\"commercial_type\": \"\xff\"}]", "UTF-8"},
		"byte order mark": {"\ufeff[]", "byte order mark"},
		"UTF-16":          {"\xff\xfe[\x00]\x00", "byte order mark"},
		"key twice": {
			"[{\"commercial_type\": \"DEV1-S\", \"zone\": \"fr-par-1\",\n\"count\": 1,\n\"count\": 100}]", "offerings[0].count: there twice, in line 2 and line 3",
		},
		"label twice": {
			`[{"commercial_type": "DEV1-S", "zone": "fr-par-1", "count": 1, "labels": {"a/b": "1", "a/b": "2"}}]`, `offerings[0].labels["a/b"]: there twice`,
		},
		"root volume's size twice": {
			`[{"commercial_type": "DEV1-S", "zone": "fr-par-1", "count": 1, "root_volume": {"type": "block", "size_gb": 20, "size_gb": 2000}}]`, "offerings[0].root_volume.size_gb: there twice",
		},
		"too many slots": {"[" + strings.Join(many, ",") + "]", "add up to 120000, the limit is 100000"},
		"too large":      {"[" + strings.Repeat(" ", MaxFileBytes) + "]", "larger than"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := Load(write(t, tc.content), frPar1); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("Load = %v, want an error with %q", err, tc.want)
			}
		})
	}
	if _, err := Load(filepath.Join(t.TempDir(), "missing.json"), frPar1); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Load of a missing file = %v", err)
	}
}

func TestLoadElasticMetal(t *testing.T) {
	rules := Rules{Substrate: ElasticMetal, Zone: "fr-par-2"}
	for word, wantErr := range map[string]bool{`"bare_metal"`: false, `null`: false, `"on_demand"`: true, `"spot"`: true} {
		list, err := Load(write(t, fmt.Sprintf(
			`[{"commercial_type": "EM-B112X-SSD", "zone": "fr-par-2", "count": 1, "capacity_type": %s}]`, word)), rules)
		if (err != nil) != wantErr {
			t.Errorf("capacity_type %s: error %v, want one: %t", word, err, wantErr)
		}
		if err == nil && list[0].Capacity != machine.BareMetal {
			t.Errorf("capacity_type %s: capacity %v", word, list[0].Capacity)
		}
	}
}
