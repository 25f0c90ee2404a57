package scaleway

import "bigfleet-providers/provider/internal/offering"

// Builtin implements provider.Settings: n machines, shared between a small and a
// larger type of the substrate. An unknown substrate offers nothing.
func (s *settings) Builtin(n int) []offering.Offering {
	var pair [2]offering.Offering
	switch s.Substrate {
	case offering.Instances:
		pair = [2]offering.Offering{
			{CommercialType: "DEV1-S", Resources: map[string]string{"cpu": "1", "memory": "1Gi"}},
			{CommercialType: "GP1-XS", Resources: map[string]string{"cpu": "3", "memory": "12Gi"}},
		}
	case offering.ElasticMetal:
		pair = [2]offering.Offering{
			{CommercialType: "EM-A210R-HDD", Resources: map[string]string{"cpu": "10", "memory": "12Gi"}},
			{CommercialType: "EM-B112X-SSD", Resources: map[string]string{"cpu": "14", "memory": "40Gi"}},
		}
	default:
		return nil
	}
	counts := [2]int{(n + 1) / 2, n / 2}
	var list []offering.Offering
	for i, o := range pair {
		o.Zone, o.Capacity, o.Count = s.Zone, offering.Capacity(s.Substrate), counts[i]
		if o.Count > 0 {
			list = append(list, o)
		}
	}
	return list
}
