package fakecloud

import (
	"cmp"
	"net/http"
	"slices"
	"time"

	"github.com/google/uuid"
)

type blockVolumeBody struct {
	ID             string          `json:"id"`
	Name           string          `json:"name"`
	Type           string          `json:"type"`
	Size           uint64          `json:"size"`
	ProjectID      string          `json:"project_id"`
	CreatedAt      time.Time       `json:"created_at"`
	UpdatedAt      time.Time       `json:"updated_at"`
	References     []referenceBody `json:"references"`
	ParentSnapshot *string         `json:"parent_snapshot_id"`
	Status         string          `json:"status"`
	Tags           []string        `json:"tags"`
	Specs          volumeSpecs     `json:"specs"`
	LastDetachedAt *time.Time      `json:"last_detached_at"`
	KMSKeyID       *string         `json:"kms_key_id"`
	Zone           string          `json:"zone"`
}

type referenceBody struct {
	ID                  string    `json:"id"`
	ProductResourceType string    `json:"product_resource_type"`
	ProductResourceID   string    `json:"product_resource_id"`
	CreatedAt           time.Time `json:"created_at"`
	Type                string    `json:"type"`
	Status              string    `json:"status"`
}

type volumeSpecs struct {
	PerfIOPS uint32 `json:"perf_iops"`
	Class    string `json:"class"`
}

func (v *volume) blockType() string {
	if v.iops == 15000 {
		return "sbs_15k"
	}
	return "sbs_5k"
}

func blockVolumeView(v *volume) blockVolumeBody {
	b := blockVolumeBody{
		ID: v.id, Name: v.name, Type: v.blockType(), Size: v.size, ProjectID: v.project,
		CreatedAt: zulu(v.created), UpdatedAt: zulu(v.modified), References: []referenceBody{},
		Status: v.status, Tags: v.tags, Specs: volumeSpecs{PerfIOPS: v.iops, Class: "sbs"}, Zone: v.zone,
	}
	if v.ref != nil {
		b.References = append(b.References, referenceBody{
			ID: v.ref.id, ProductResourceType: resServer, ProductResourceID: v.ref.serverID,
			CreatedAt: zulu(v.ref.created), Type: "exclusive", Status: v.ref.status,
		})
	}
	if v.parent != "" {
		b.ParentSnapshot = &v.parent
	}
	if !v.lastDetached.IsZero() {
		at := zulu(v.lastDetached)
		b.LastDetachedAt = &at
	}
	return b
}

// blockVolume finds the volume of the Block plane that the path names.
func (c *Cloud) blockVolume(q *request) (*volume, error) { return c.blockVolumeByID(q, q.id) }

func (c *Cloud) blockVolumeByID(q *request, id string) (*volume, error) {
	v := c.inv.volumes[id]
	if v == nil || !v.network() || v.zone != q.zone || !q.caller.sees(v.project) {
		return nil, notFound(resBlockVolume, id)
	}
	return v, nil
}

func (c *Cloud) listBlockVolumes(q *request) (*response, error) {
	ids := commaList(q.query, "volume_ids")
	user, kind := q.query.Get("product_resource_id"), q.query.Get("volume_type")
	keep := func(v *volume) bool {
		return v.network() && (kind == "" || v.blockType() == kind) &&
			(user == "" || v.ref != nil && v.ref.serverID == user) &&
			(len(ids) == 0 || slices.Contains(ids, v.id)) &&
			q.caller.visible(&v.object, q.query.Get("project_id"), q.query.Get("organization_id"), q.query.Get("name"))
	}
	list := c.inv.in(q.zone).volumes.withTags(commaList(q.query, "tags"))
	return countedList(q, "volumes", list, keep, blockVolumeView)
}

func (c *Cloud) createBlockVolume(q *request) (*response, error) {
	var in struct {
		Name         string
		ProjectID    string `json:"project_id"`
		PerfIOPS     uint32 `json:"perf_iops"`
		Tags         []string
		FromEmpty    *struct{ Size uint64 } `json:"from_empty"`
		FromSnapshot *struct {
			Size       *uint64
			SnapshotID string `json:"snapshot_id"`
		} `json:"from_snapshot"`
	}
	if err := q.decode(&in); err != nil {
		return nil, err
	}
	if _, err := uuid.Parse(in.ProjectID); err != nil {
		return nil, invalid(errorDetail{ArgumentName: "project_id", Reason: "format", HelpMessage: "value must be a valid UUID"})
	}
	if !q.caller.sees(in.ProjectID) {
		return nil, permissionDenied("project", "read")
	}
	iops := cmp.Or(in.PerfIOPS, 5000)
	if iops != 5000 && iops != 15000 {
		return nil, invalid(constraint("perf_iops", "not a valid value"))
	}
	var size uint64
	var parent string
	switch {
	case (in.FromEmpty == nil) == (in.FromSnapshot == nil):
		return nil, invalid(constraint("from_empty", "give exactly one of from_empty and from_snapshot"))
	case in.FromSnapshot != nil:
		from, err := c.snapshot(q, in.FromSnapshot.SnapshotID)
		if err != nil {
			return nil, err
		}
		parent, size = from.id, from.size
		set(&size, in.FromSnapshot.Size)
		if size < from.size {
			return nil, invalid(constraint("from_snapshot.size", "a volume cannot be smaller than its snapshot"))
		}
	case in.FromEmpty.Size == 0:
		return nil, invalid(required("from_empty.size"))
	default:
		size = in.FromEmpty.Size
	}
	v := c.newVolume(in.Name, q.zone, in.ProjectID, kindNetwork, size, in.Tags)
	v.iops, v.status, v.parent = iops, "creating", parent
	body := blockVolumeView(v) // "creating" is answered even when nothing takes time
	v.change = c.after(c.delays.VolumeMake, func() { v.status, v.modified = "available", time.Now() })
	return ok(body)
}

func (c *Cloud) getBlockVolume(q *request) (*response, error) {
	v, err := c.blockVolume(q)
	if err != nil {
		return nil, err
	}
	return ok(blockVolumeView(v))
}

func (c *Cloud) updateBlockVolume(q *request) (*response, error) {
	v, err := c.blockVolume(q)
	if err != nil {
		return nil, err
	}
	var in struct {
		Name     *string
		Size     *uint64
		Tags     *[]string
		PerfIOPS *uint32 `json:"perf_iops"`
	}
	if err := q.decode(&in); err != nil {
		return nil, err
	}
	if in.PerfIOPS != nil && *in.PerfIOPS != 5000 && *in.PerfIOPS != 15000 {
		return nil, invalid(constraint("perf_iops", "not a valid value"))
	}
	if in.Size != nil && *in.Size < v.size {
		return nil, invalid(constraint("size", "a volume cannot shrink"))
	}
	if in.Size != nil {
		v.size = *in.Size
	}
	if in.PerfIOPS != nil {
		v.iops = *in.PerfIOPS
	}
	c.editVolume(v, in.Name, in.Tags)
	return ok(blockVolumeView(v))
}

// deleteBlockVolume refuses a volume that something uses. Both refusals occur
// with the real API; which one when is inferred.
func (c *Cloud) deleteBlockVolume(q *request) (*response, error) {
	v, err := c.blockVolume(q)
	switch {
	case err != nil:
		return nil, err
	case v.ref != nil && v.ref.status == "attached":
		return nil, precondition(http.StatusPreconditionFailed, "resource_still_in_use", "volume is in use")
	case v.status != "available":
		return nil, transient(resBlockVolume, v.id, v.status)
	}
	c.removeVolume(v)
	return noContent()
}

type money struct {
	CurrencyCode string `json:"currency_code"`
	Units        int64  `json:"units"`
	Nanos        int32  `json:"nanos"`
}

type volumeTypeBody struct {
	Type            string      `json:"type"`
	Pricing         money       `json:"pricing"`
	SnapshotPricing *money      `json:"snapshot_pricing"`
	Specs           volumeSpecs `json:"specs"`
	Zone            string      `json:"zone"`
}

// networkGBHourNanos is the price of a network volume per GB and hour in
// billionths of a EUR (documentation of 2025, 5,000 IOPS); fr-par-3 costs half
// as much again. No other price is recorded, so sbs_15k shows the same.
const networkGBHourNanos = 118_000

func (c *Cloud) listBlockTypes(q *request) (*response, error) {
	price := int32(networkGBHourNanos)
	if q.zone == "fr-par-3" {
		price = price * 3 / 2
	}
	var all []volumeTypeBody
	for _, t := range []volumeTypeBody{
		{Type: "sbs_5k", Specs: volumeSpecs{PerfIOPS: 5000, Class: "sbs"}},
		{Type: "sbs_15k", Specs: volumeSpecs{PerfIOPS: 15000, Class: "sbs"}},
	} {
		t.Pricing, t.Zone = money{CurrencyCode: "EUR", Nanos: price}, q.zone
		all = append(all, t)
	}
	page, total := cut(pageWindow(q.query, "page_size", 50), slices.Values(all))
	return ok(struct {
		VolumeTypes []volumeTypeBody `json:"volume_types"`
		TotalCount  int              `json:"total_count"`
	}{page, total})
}
