package instances

import (
	"context"
	_ "embed"
	"encoding/csv"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/scaleway/scaleway-sdk-go/api/instance/v1"
	"github.com/scaleway/scaleway-sdk-go/scw"

	"bigfleet-providers/provider/internal/cloud"
	"bigfleet-providers/provider/internal/cloud/scaleway"
)

// Recorded implements cloud.Catalog by a table in this program.
func (c *Cloud) Recorded() (map[string]cloud.Type, error) {
	return recordedTypes(c.scope.Zone.String())
}

// Types implements cloud.Catalog: what the zone sells, at the API's prices. The
// price covers the server only, without tax, root volume and public address. A
// price that the API leaves out comes from the recorded table.
func (c *Cloud) Types(ctx context.Context) (map[string]cloud.Type, error) {
	recorded, err := c.Recorded()
	if err != nil {
		return nil, err
	}
	listed, err := c.listTypes(ctx)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	c.offered = listed
	c.mu.Unlock()
	types := make(map[string]cloud.Type, len(listed))
	for name, st := range listed {
		t, ok := typeOf(name, st)
		if !ok {
			continue // an architecture that Kubernetes has no nodes for
		}
		if t.PricePerHour == 0 && recorded[name].PricePerHour > 0 {
			t.PricePerHour = recorded[name].PricePerHour
			c.log.Warn("the API has no price for a type; a recorded one is used",
				"type", name, "eur_per_hour", t.PricePerHour, "recorded", recordedOn)
		}
		types[name] = t
	}
	return types, nil
}

// listTypes reads all pages: the first holds a third of the types.
func (c *Cloud) listTypes(ctx context.Context) (map[string]*instance.ServerType, error) {
	types := map[string]*instance.ServerType{}
	for page := int32(1); ; page++ {
		resp, err := c.api.ListServersTypes(&instance.ListServersTypesRequest{
			Zone: c.scope.Zone, PerPage: new(uint32(maxPageSize)), Page: &page,
		}, scw.WithContext(ctx))
		switch {
		case err != nil:
			return nil, fmt.Errorf("list types, page %d: %w", page, scaleway.Explain(err))
		case resp.Servers == nil:
			return nil, fmt.Errorf("list types, page %d: %w", page, scaleway.ErrEmptyAnswer)
		case resp.TotalCount == 0 && len(resp.Servers) > 0:
			return nil, errors.New("list types: the answer lacks X-Total-Count, so nobody can tell whether it is complete")
		}
		before := len(types)
		for name, st := range resp.Servers {
			if st != nil {
				types[name] = st
			}
		}
		if uint32(len(types)) >= resp.TotalCount {
			return types, nil
		}
		if len(types) == before { // nor would it if it were asked for ever
			return nil, fmt.Errorf("list types: %d of %d came before the pages ended", len(types), resp.TotalCount)
		}
	}
}

func typeOf(name string, st *instance.ServerType) (cloud.Type, bool) {
	h := scaleway.Hardware{CPUs: uint64(st.Ncpus), Memory: st.RAM}
	switch st.Arch {
	case instance.ArchX86_64:
		h.Arch = "amd64"
	case instance.ArchArm64:
		h.Arch = "arm64"
	default:
		return cloud.Type{}, false
	}
	if st.Gpu != nil {
		h.GPUs = *st.Gpu
	}
	if info := st.GpuInfo; info != nil && strings.EqualFold(info.GpuManufacturer, "nvidia") {
		h.Nvidia = info.GpuName
	}
	return h.Type(name, price(st.HourlyPrice)), true
}

// price widens a 32-bit price to the decimal number that was sent, not to its
// binary neighbour. Anything that is no price counts as unknown.
func price(p float32) float64 {
	f, err := strconv.ParseFloat(strconv.FormatFloat(float64(p), 'g', -1, 32), 64)
	if err != nil || math.IsInf(f, 0) || math.IsNaN(f) || f < 0 {
		return 0
	}
	return f
}

// recordedOn dates types.csv: the newest of its rows, as recorded from
// GET /products/servers.
const recordedOn = "2026-08-18"

//go:embed types.csv
var typesCSV string

// dearZone costs half as much again as all others, which cost the same.
const (
	dearZone   = "fr-par-3"
	dearFactor = 1.5
)

// recordedTypes is the table's part for a zone. A zone that was opened later is
// taken to sell everything: the API has the last word at the order.
func recordedTypes(zone string) (map[string]cloud.Type, error) {
	rows, err := csv.NewReader(strings.NewReader(typesCSV)).ReadAll()
	if err != nil {
		return nil, fmt.Errorf("recorded types: %w", err)
	}
	here, all := map[string]cloud.Type{}, map[string]cloud.Type{}
	for i, row := range rows[1:] { // type,arch,vcpus,memory_gib,gpus,gpu,hourly_eur,zones
		var faults []error
		number := func(field int) uint64 {
			n, err := strconv.ParseUint(row[field], 10, 64)
			faults = append(faults, err)
			return n
		}
		h := scaleway.Hardware{Arch: row[1], CPUs: number(2), Memory: number(3) << 30, GPUs: number(4), Nvidia: row[5]}
		eur, err := strconv.ParseFloat(row[6], 64)
		if err := errors.Join(append(faults, err)...); err != nil {
			return nil, fmt.Errorf("recorded types, line %d: %w", i+2, err)
		}
		if zone == dearZone {
			eur *= dearFactor
		}
		t := h.Type(row[0], eur)
		all[t.Name] = t
		if slices.Contains(strings.Fields(row[7]), zone) {
			here[t.Name] = t
		}
	}
	if len(here) == 0 {
		return all, nil
	}
	return here, nil
}
