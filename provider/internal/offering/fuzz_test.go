package offering

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// FuzzParse: an offerings file is taken within the limits, or refused in words
// that say where the fault is.
func FuzzParse(f *testing.F) {
	for _, text := range []string{
		`[{"commercial_type":"DEV1-S","zone":"fr-par-1","count":3}]`,
		`[{"commercial_type":"L4-1-24G","count":1,"capacity_type":"on_demand","resources":{"cpu":"500m","nvidia.com/gpu":"1"},"labels":{"a":"b"},"image":"ubuntu_noble","root_volume":{"size_gb":20},"private_network_ids":["x"],"public_ip":"none","tags":["t"]}]`,
		`[]`, `{}`, `null`, `[null]`, `[1]`, `[{"count":1e9,"commercial_type":"x"}]`, `[{"count":-1}]`, `[{"count":1.5}]`, `[[[[`, "\xff", `[{"resources":{"cpu":"1e99999"},"commercial_type":"x","count":1}]`,
	} {
		f.Add([]byte(text))
	}
	files, err := filepath.Glob("testdata/*.json")
	if err != nil {
		f.Fatal(err)
	}
	for _, path := range files {
		body, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(body)
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		if len(body) > MaxFileBytes {
			return // Load refuses it
		}
		list, err := parse(body, frPar1)
		if err != nil {
			if strings.TrimSpace(err.Error()) == "" || list != nil {
				t.Errorf("refused with %q and %d offerings", err, len(list))
			}
			return
		}
		total := 0
		for _, o := range list {
			if o.CommercialType == "" || o.Count < 0 {
				t.Errorf("accepted: %+v", o)
			}
			total += o.Count
		}
		if len(list) == 0 || total > MaxSlots {
			t.Errorf("accepted: %d offerings of %d slots", len(list), total)
		}
	})
}
