package fakecloud

import (
	"cmp"
	"net/http"
	"slices"
)

// metalZones sell Elastic Metal.
var metalZones = []string{"fr-par-1", "fr-par-2", "nl-ams-1", "nl-ams-2", "pl-waw-2", "pl-waw-3"}

// metalOffer is one kind of dedicated server. Its hourly and its monthly form
// are offers of their own.
type metalOffer struct {
	zone    string
	name    string
	nanos   int32 // of a EUR
	units   int64 // whole EUR
	monthly bool
}

// metalPrices are the hourly prices of fr-par-2 in thousandths of a EUR,
// recorded on 2026-04-07. Recordings give most names without their ending,
// which follows the vendor's scheme here.
var metalPrices = map[string]int64{
	"EM-A116X-SSD": 77, metalRetired: 88, "EM-A215R-NVME": 101, "EM-A315X-SSD": 153, "EM-A410X-SSD": 153, "EM-A610R-NVME": 110,
	"EM-B111X-SATA": 263, "EM-B112X-SSD": 263, "EM-B211X-SATA": 321, "EM-B212X-SSD": 321, "EM-B311X-SATA": 379, "EM-B312X-SSD": 379,
	"EM-B220E-NVME": 333, "EM-B320E-NVME": 417, "EM-B420E-NVME": 444, "EM-B520E-NVME": 528,
	"EM-I120E-NVME": 356, "EM-I210E-NVME": 667, "EM-I215E-NVME": 904, "EM-I220E-NVME": 548, "EM-I320E-NVME": 822,
	"EM-I420E-NVME": 1096, "EM-I520E-NVME": 1370, "EM-I525E-NVME": 1781, "EM-I620E-NVME": 1644,
	"EM-L101X-SATA": 122, "EM-L105X-SATA": 213, "EM-L110X-SATA": 366, "EM-L220E-NVME": 685, "EM-L420E-NVME": 1014, "EM-L520E-NVME": 1096,
	metalWithoutCloudInit: 42, "EM-T220E-L40S": 4110, "EM-T620E-H100": 9589,
}

// metalMonthly are the monthly prices that are recorded, in hundredths of a
// EUR; the fee at the start is one month more.
var metalMonthly = map[string]int64{"EM-A610R-NVME": 3999, "EM-I220E-NVME": 19999}

// metalRetired is of before the recording; tools still offer it by default. Its
// price is of the documentation of 2024.
const metalRetired = "EM-A210R-HDD"

// metalWithoutCloudInit lacks the tag cloud-init. That such offers exist is
// recorded, which ones is not.
const metalWithoutCloudInit = "EM-RV1"

func metalOffers(zone string) []metalOffer {
	if !slices.Contains(metalZones, zone) {
		return nil
	}
	var out []metalOffer
	for name, milli := range metalPrices {
		out = append(out, metalOffer{zone: zone, name: name, units: milli / 1000, nanos: int32(milli % 1000 * 1_000_000)})
	}
	for name, cents := range metalMonthly {
		out = append(out, metalOffer{zone: zone, name: name, units: cents / 100, nanos: int32(cents % 100 * 10_000_000), monthly: true})
	}
	slices.SortFunc(out, func(a, b metalOffer) int {
		return cmp.Or(cmp.Compare(a.name, b.name), cmp.Compare(a.period(), b.period()))
	})
	return out
}

func findMetalOffer(zone string, is func(metalOffer) bool) (metalOffer, bool) {
	offers := metalOffers(zone)
	if i := slices.IndexFunc(offers, is); i >= 0 {
		return offers[i], true
	}
	return metalOffer{}, false
}

func (o metalOffer) period() string {
	if o.monthly {
		return "monthly"
	}
	return "hourly"
}

func (o metalOffer) id() string { return digestID(0, "metal offer", o.zone, o.name, o.period()) }

func (o metalOffer) cloudInit() bool { return o.name != metalWithoutCloudInit }

func (o metalOffer) price() money { return money{CurrencyCode: "EUR", Units: o.units, Nanos: o.nanos} }

// metalHardware is what is in a server: threads of its CPUs, GiB of memory and
// its GPUs.
type metalHardware struct {
	cpus    int
	cores   uint32 // of each
	threads uint32 // of each
	memory  uint64 // GiB
	gpus    int
	gpu     string
}

// hardware has the documented figures where they matter to tests, and rounds up
// from the range elsewhere: the recordings hold prices only.
func (o metalOffer) hardware() metalHardware {
	switch o.name {
	case metalRetired:
		return metalHardware{cpus: 1, cores: 6, threads: 12, memory: 16}
	case "EM-B112X-SSD":
		return metalHardware{cpus: 2, cores: 4, threads: 8, memory: 96}
	case "EM-T220E-L40S":
		return metalHardware{cpus: 2, cores: 16, threads: 32, memory: 384, gpus: 2, gpu: "NVIDIA L40S"}
	case "EM-T620E-H100":
		return metalHardware{cpus: 2, cores: 32, threads: 64, memory: 768, gpus: 4, gpu: "NVIDIA H100"}
	case metalWithoutCloudInit:
		return metalHardware{cpus: 1, cores: 4, threads: 4, memory: 16}
	}
	switch o.name[len("EM-")] {
	case 'A':
		return metalHardware{cpus: 1, cores: 4, threads: 8, memory: 32}
	case 'B':
		return metalHardware{cpus: 2, cores: 8, threads: 16, memory: 256}
	default:
		return metalHardware{cpus: 1, cores: 16, threads: 32, memory: 256}
	}
}

type metalCPUBody struct {
	Name      string `json:"name"`
	Cores     uint32 `json:"core_count"`
	Threads   uint32 `json:"thread_count"`
	Frequency uint32 `json:"frequency"`
	Benchmark string `json:"benchmark"`
}

type metalMemoryBody struct {
	Capacity  uint64 `json:"capacity"`
	Type      string `json:"type"`
	Frequency uint32 `json:"frequency"`
	ECC       bool   `json:"is_ecc"`
}

type metalDiskBody struct {
	Capacity uint64 `json:"capacity"`
	Type     string `json:"type"`
}

type metalGPUBody struct {
	Name string `json:"name"`
	VRAM uint64 `json:"vram"`
}

func (h metalHardware) fill(b *metalOfferBody) {
	for range h.cpus {
		b.CPUs = append(b.CPUs, metalCPUBody{Name: "CPU", Cores: h.cores, Threads: h.threads, Frequency: 2600})
	}
	// In two modules, which a reader has to add up.
	for range 2 {
		b.Memories = append(b.Memories, metalMemoryBody{Capacity: h.memory << 30 / 2, Type: "DDR4", Frequency: 2666, ECC: true})
		b.Disks = append(b.Disks, metalDiskBody{Capacity: 1_000_000_000_000, Type: "SSD"})
	}
	for range h.gpus {
		b.GPUs = append(b.GPUs, metalGPUBody{Name: h.gpu, VRAM: 48 << 30})
	}
}

type metalOfferBody struct {
	ID                 string            `json:"id"`
	Name               string            `json:"name"`
	Stock              string            `json:"stock"`
	Bandwidth          uint64            `json:"bandwidth"`
	MaxBandwidth       uint64            `json:"max_bandwidth"`
	CommercialRange    string            `json:"commercial_range"`
	PricePerHour       *money            `json:"price_per_hour"`
	PricePerMonth      *money            `json:"price_per_month"`
	Disks              []metalDiskBody   `json:"disks"`
	Enable             bool              `json:"enable"`
	CPUs               []metalCPUBody    `json:"cpus"`
	Memories           []metalMemoryBody `json:"memories"`
	GPUs               []metalGPUBody    `json:"gpus"`
	IncompatibleOSIDs  []string          `json:"incompatible_os_ids"`
	SubscriptionPeriod string            `json:"subscription_period"`
	OperationPath      string            `json:"operation_path"`
	Fee                *money            `json:"fee"`
	Options            []string          `json:"options"`
	PrivateBandwidth   uint64            `json:"private_bandwidth"`
	SharedBandwidth    bool              `json:"shared_bandwidth"`
	Tags               []string          `json:"tags"`
	MonthlyOfferID     *string           `json:"monthly_offer_id"`
	Zone               string            `json:"zone"`
}

var metalRanges = map[byte]string{'A': "aluminium", 'B': "beryllium", 'I': "iridium", 'L': "lithium", 'T': "titanium", 'R': "labs"}

func (c *Cloud) metalOfferView(o metalOffer) metalOfferBody {
	price := o.price()
	b := metalOfferBody{
		ID: o.id(), Name: o.name, CommercialRange: metalRanges[o.name[len("EM-")]], Enable: true,
		Disks: []metalDiskBody{}, CPUs: []metalCPUBody{}, Memories: []metalMemoryBody{}, GPUs: []metalGPUBody{}, IncompatibleOSIDs: []string{},
		SubscriptionPeriod: o.period(), Options: []string{}, Tags: []string{}, Zone: o.zone,
	}
	o.hardware().fill(&b)
	switch c.stock[zoneType{o.zone, o.name}] {
	case Scarce:
		b.Stock = "low"
	case Shortage:
		b.Stock = "empty"
	default:
		b.Stock = "available"
	}
	if o.cloudInit() {
		b.Tags = append(b.Tags, "cloud-init")
	}
	if o.monthly {
		b.PricePerMonth, b.Fee = &price, &price
		return b
	}
	b.PricePerHour = &price
	monthly := metalOffer{zone: o.zone, name: o.name, monthly: true}
	if _, sold := metalMonthly[o.name]; sold {
		b.MonthlyOfferID = new(monthly.id())
	}
	return b
}

// metalNotFound has no type, so that the SDK makes no ResourceNotFoundError of it.
func metalNotFound() error { return metalRefusal(http.StatusNotFound, "Not Found") }

func metalRefusal(status int, message string) error {
	return &apiError{status: status, body: errorBody{Message: message}}
}

func (c *Cloud) listMetalOffers(q *request) (*response, error) {
	period, name := q.query.Get("subscription_period"), q.query.Get("name")
	var found []metalOffer
	for _, o := range metalOffers(q.zone) {
		if (period == "" || period == "unknown_subscription_period" || period == o.period()) && (name == "" || name == o.name) {
			found = append(found, o)
		}
	}
	page, total := cut(pageWindow(q.query, "page_size", 50), slices.Values(found))
	views := []metalOfferBody{}
	for _, o := range page {
		views = append(views, c.metalOfferView(o))
	}
	return ok(countedBody{"offers", views, total})
}

func (c *Cloud) getMetalOffer(q *request) (*response, error) {
	o, found := findMetalOffer(q.zone, func(o metalOffer) bool { return o.id() == q.id })
	if !found {
		return nil, metalNotFound()
	}
	return ok(c.metalOfferView(o))
}

// metalOS is a system that an install takes.
type metalOS struct {
	id, name, version, user string
	servicePassword         bool
}

// metalSystems have their recorded ids where those are known in full.
var metalSystems = []metalOS{
	{"96e5f0f2-d216-4de2-8a15-68730d877885", "Ubuntu", "22.04 LTS (Jammy Jellyfish)", "ubuntu", false},
	{digestID(0, "metal os", "ubuntu 24.04"), "Ubuntu", "24.04 LTS (Noble Numbat)", "ubuntu", false},
	{digestID(0, "metal os", "debian 12"), "Debian", "12 (Bookworm)", "debian", false},
	{digestID(0, "metal os", "debian 13"), "Debian", "13 (Trixie)", "debian", false},
	{digestID(0, "metal os", "proxmox 8"), "Proxmox", "VE 8", "root", true},
}

func findMetalOS(id string) (metalOS, bool) {
	i := slices.IndexFunc(metalSystems, func(o metalOS) bool { return o.id == id })
	if i < 0 {
		return metalOS{}, false
	}
	return metalSystems[i], true
}

type metalOSBody struct {
	ID                 string       `json:"id"`
	Name               string       `json:"name"`
	Version            string       `json:"version"`
	LogoURL            string       `json:"logo_url"`
	SSH                metalOSField `json:"ssh"`
	User               metalOSField `json:"user"`
	Password           metalOSField `json:"password"`
	ServiceUser        metalOSField `json:"service_user"`
	ServicePassword    metalOSField `json:"service_password"`
	Enabled            bool         `json:"enabled"`
	LicenseRequired    bool         `json:"license_required"`
	Allowed            bool         `json:"allowed"`
	CustomPartitioning bool         `json:"custom_partitioning_supported"`
	CloudInit          bool         `json:"cloud_init_supported"`
	Zone               string       `json:"zone"`
}

type metalOSField struct {
	Editable bool    `json:"editable"`
	Required bool    `json:"required"`
	Default  *string `json:"default_value"`
}

func (o metalOS) view(zone string) metalOSBody {
	return metalOSBody{
		ID: o.id, Name: o.name, Version: o.version, SSH: metalOSField{Editable: true, Required: true},
		User: metalOSField{Default: &o.user}, ServicePassword: metalOSField{Editable: o.servicePassword, Required: o.servicePassword},
		Enabled: true, Allowed: true, CloudInit: !o.servicePassword, Zone: zone,
	}
}

func (c *Cloud) listMetalOS(q *request) (*response, error) {
	page, total := cut(pageWindow(q.query, "page_size", 50), slices.Values(metalSystems))
	views := []metalOSBody{}
	for _, o := range page {
		views = append(views, o.view(q.zone))
	}
	return ok(countedBody{"os", views, total})
}

func (c *Cloud) getMetalOS(q *request) (*response, error) {
	o, found := findMetalOS(q.id)
	if !found {
		return nil, metalNotFound()
	}
	return ok(o.view(q.zone))
}
