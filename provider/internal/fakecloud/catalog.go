package fakecloud

import (
	_ "embed"
	"encoding/csv"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// catalogCSV holds the types as recorded from GET /products/servers: prices are
// hourly, in EUR without tax, compute only; sizes are decimal GB, memory GiB.
//
//go:embed catalog.csv
var catalogCSV string

const gigabyte = 1_000_000_000

// product is one commercial type.
type product struct {
	name         string
	arch         string
	vcpus        uint32
	ramBytes     uint64
	gpus         uint64
	hourlyEUR    float64
	localMax     uint64 // 0: boots from network volumes only
	scratchMax   uint64
	endOfService bool
	zones        []string
}

// catalog is the types in the order of the recording.
type catalog struct {
	all    []*product
	byName map[string]*product
	byZone map[string][]*product
}

// loadCatalog reads the embedded list; that it parses is a property of the
// build, which the package's tests check.
func loadCatalog() *catalog {
	rows, err := csv.NewReader(strings.NewReader(catalogCSV)).ReadAll()
	if err != nil {
		panic("fakecloud: catalog.csv: " + err.Error())
	}
	cat := &catalog{byName: map[string]*product{}, byZone: map[string][]*product{}}
	for i, row := range rows[1:] {
		p, err := parseProduct(row)
		if err != nil {
			panic(fmt.Sprintf("fakecloud: catalog.csv line %d: %v", i+2, err))
		}
		cat.all = append(cat.all, p)
		cat.byName[p.name] = p
		for _, z := range p.zones {
			cat.byZone[z] = append(cat.byZone[z], p)
		}
	}
	return cat
}

func parseProduct(row []string) (*product, error) {
	p := &product{name: row[0], arch: row[1], zones: strings.Fields(row[10])}
	var err error
	number := func(column int, unit uint64) uint64 {
		n, e := strconv.ParseUint(row[column], 10, 64)
		if e != nil && err == nil {
			err = fmt.Errorf("column %d: %w", column+1, e)
		}
		return n * unit
	}
	p.vcpus = uint32(number(2, 1))
	p.ramBytes = number(3, 1<<30)
	p.gpus = number(4, 1)
	p.localMax = number(6, gigabyte)
	p.scratchMax = number(7, gigabyte)
	if err != nil {
		return nil, err
	}
	if p.hourlyEUR, err = strconv.ParseFloat(row[5], 64); err != nil {
		return nil, fmt.Errorf("column 6: %w", err)
	}
	if p.endOfService, err = strconv.ParseBool(row[8]); err != nil {
		return nil, fmt.Errorf("column 9: %w", err)
	}
	return p, nil
}

// in is the types of a zone. A zone without a recording (it-mil-2 and -3
// opened after the last one) sells what its region's first zone sells, and a
// region without one what fr-par-1 sells.
func (cat *catalog) in(zone string) []*product {
	if list := cat.byZone[zone]; list != nil {
		return list
	}
	if list := cat.byZone[zone[:strings.LastIndexByte(zone, '-')]+"-1"]; list != nil {
		return list
	}
	return cat.byZone["fr-par-1"]
}

func (cat *catalog) find(zone, name string) *product {
	p := cat.byName[name]
	if p == nil || !slices.Contains(cat.in(zone), p) {
		return nil
	}
	return p
}

// priceIn is the hourly price in a zone: fr-par-3 costs half as much again,
// all others the same.
func (p *product) priceIn(zone string) float64 {
	if zone == "fr-par-3" {
		return microEUR(p.hourlyEUR * 1.5)
	}
	return p.hourlyEUR
}

// microEUR rounds to the precision of the recorded prices.
func microEUR(price float64) float64 { return math.Round(price*1e6) / 1e6 }

func (p *product) windows() bool { return strings.HasSuffix(p.name, "-WIN") }

func (p *product) family() string {
	f, _, _ := strings.Cut(p.name, "-")
	return f
}

// gpuModel is the vendor's name and the memory of one GPU, from the type's
// name; RENDER-S does not tell.
func (p *product) gpuModel() (model string, memory uint64) {
	switch fields := strings.Split(p.name, "-"); {
	case p.gpus == 0:
		return "", 0
	case p.name == "RENDER-S":
		return "P100", 16 << 30
	default:
		last := fields[len(fields)-1]
		gib, err := strconv.ParseUint(strings.TrimSuffix(last, "G"), 10, 64)
		if err != nil {
			return p.family(), 0
		}
		return p.family(), gib << 30
	}
}
