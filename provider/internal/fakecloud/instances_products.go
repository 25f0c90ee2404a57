package fakecloud

import (
	"cmp"
	"net/http"
	"slices"
)

type productBody struct {
	AltNames          []string         `json:"alt_names"`
	Arch              string           `json:"arch"`
	NCPUs             uint32           `json:"ncpus"`
	RAM               uint64           `json:"ram"`
	GPU               uint64           `json:"gpu"`
	GPUInfo           *gpuBody         `json:"gpu_info"`
	MIGProfile        *string          `json:"mig_profile"`
	VolumesConstraint sizeRange        `json:"volumes_constraint"`
	PerVolume         perVolumeBody    `json:"per_volume_constraint"`
	ScratchMaxSize    uint64           `json:"scratch_storage_max_size"`
	ScratchMaxVolumes int              `json:"scratch_storage_max_volumes_count"`
	MonthlyPrice      float64          `json:"monthly_price"`
	HourlyPrice       float64          `json:"hourly_price"`
	Capabilities      capabilitiesBody `json:"capabilities"`
	Network           networkBody      `json:"network"`
	BlockBandwidth    *uint64          `json:"block_bandwidth"`
	EndOfService      bool             `json:"end_of_service"`
}

type gpuBody struct {
	Manufacturer string `json:"gpu_manufacturer"`
	Name         string `json:"gpu_name"`
	Memory       uint64 `json:"gpu_memory"`
}

type sizeRange struct {
	Min uint64 `json:"min_size"`
	Max uint64 `json:"max_size"`
}

type perVolumeBody struct {
	Local sizeRange `json:"l_ssd"`
}

type capabilitiesBody struct {
	BootTypes       []string `json:"boot_types"`
	PlacementGroups bool     `json:"placement_groups"`
	BlockStorage    bool     `json:"block_storage"`
	HotSnapshots    bool     `json:"hot_snapshots_local_volume"`
	PrivateNetwork  int      `json:"private_network"`
	MaxFileSystems  int      `json:"max_file_systems"`
}

// networkBody leaves the bandwidths out: they are not recorded.
type networkBody struct {
	Interfaces           []string `json:"interfaces"`
	SumInternalBandwidth *uint64  `json:"sum_internal_bandwidth"`
	SumInternetBandwidth *uint64  `json:"sum_internet_bandwidth"`
	IPv6Support          bool     `json:"ipv6_support"`
}

var altNames = map[string][]string{"VC1S": {"X64-2GB"}, "VC1M": {"X64-4GB"}, "VC1L": {"X64-8GB"}}

// hoursPerMonth is how the API relates its two prices.
const hoursPerMonth = 730

func productView(p *product, zone string) productBody {
	b := productBody{
		AltNames: nonNil(altNames[p.name]), Arch: p.arch, NCPUs: p.vcpus, RAM: p.ramBytes, GPU: p.gpus,
		VolumesConstraint: sizeRange{Max: p.localMax}, PerVolume: perVolumeBody{sizeRange{Max: p.localMax}},
		ScratchMaxSize: p.scratchMax, HourlyPrice: p.priceIn(zone), MonthlyPrice: microEUR(p.priceIn(zone) * hoursPerMonth),
		Capabilities: capabilitiesBody{
			BootTypes: []string{"local", "rescue"}, PlacementGroups: true, BlockStorage: true,
			HotSnapshots: p.localMax > 0, PrivateNetwork: maxNICs,
		},
		Network: networkBody{Interfaces: []string{}, IPv6Support: true}, EndOfService: p.endOfService,
	}
	if p.gpus > 0 {
		model, memory := p.gpuModel()
		b.GPUInfo = &gpuBody{Manufacturer: "NVIDIA", Name: model, Memory: memory}
	}
	if p.scratchMax > 0 {
		b.ScratchMaxVolumes = 1
	}
	return b
}

// productPage is one page of the zone's types by name. Both lists of types are
// maps, paged all the same.
func productPage[T any](c *Cloud, q *request, view func(*product) T) (*response, error) {
	w := pageWindow(q.query, "per_page", 50)
	types := slices.SortedFunc(slices.Values(c.types.in(q.zone)), func(a, b *product) int { return cmp.Compare(a.name, b.name) })
	found, total := cut(w, slices.Values(types))
	body := struct {
		Servers map[string]T `json:"servers"`
	}{map[string]T{}}
	for _, p := range found {
		body.Servers[p.name] = view(p)
	}
	return &response{status: http.StatusOK, header: w.headers(q.pagePath(), q.query, total), body: body}, nil
}

func (c *Cloud) listProducts(q *request) (*response, error) {
	return productPage(c, q, func(p *product) productBody { return productView(p, q.zone) })
}

type availabilityBody struct {
	Availability Stock `json:"availability"`
}

func (c *Cloud) listAvailability(q *request) (*response, error) {
	return productPage(c, q, func(p *product) availabilityBody {
		return availabilityBody{cmp.Or(c.stock[zoneType{q.zone, p.name}], Available)}
	})
}
