package scaleway

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"bigfleet-providers/provider/internal/offering"
)

func TestBuiltin(t *testing.T) {
	for _, tc := range []struct {
		substrate string
		count     int
		want      map[string]int
	}{
		{offering.Instances, 5, map[string]int{"DEV1-S": 3, "GP1-XS": 2}},
		{offering.Instances, 1, map[string]int{"DEV1-S": 1}},
		{offering.ElasticMetal, 4, map[string]int{"EM-A210R-HDD": 2, "EM-B112X-SSD": 2}},
		{offering.ElasticMetal, 0, map[string]int{}},
		{"mainframe", 4, map[string]int{}},
	} {
		got := map[string]int{}
		for _, o := range (&settings{Substrate: tc.substrate, Zone: "fr-par-2"}).Builtin(tc.count) {
			got[o.CommercialType] = o.Count
			if o.Zone != "fr-par-2" || o.Capacity != offering.Capacity(tc.substrate) || len(o.Resources) == 0 {
				t.Errorf("%s: offering %+v", tc.substrate, o)
			}
		}
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("Builtin(%q, %d) (-want +got):\n%s", tc.substrate, tc.count, diff)
		}
	}
}
