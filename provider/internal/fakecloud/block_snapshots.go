package fakecloud

import (
	"slices"
	"time"

	"github.com/google/uuid"
)

// snapshot is a copy of a network volume; it is billed until deleted.
type snapshot struct {
	object
	size   uint64
	parent *volume // nil once the volume is deleted
	status string
	change *pending
}

type snapshotBody struct {
	ID           string          `json:"id"`
	Name         string          `json:"name"`
	ParentVolume *parentBody     `json:"parent_volume"`
	Size         uint64          `json:"size"`
	ProjectID    string          `json:"project_id"`
	CreatedAt    time.Time       `json:"created_at"`
	UpdatedAt    time.Time       `json:"updated_at"`
	References   []referenceBody `json:"references"`
	Status       string          `json:"status"`
	Tags         []string        `json:"tags"`
	Zone         string          `json:"zone"`
	Class        string          `json:"class"`
	Public       bool            `json:"public"`
	KMSKeyID     *string         `json:"kms_key_id"`
}

type parentBody struct {
	ID     string `json:"id"`
	Name   string `json:"name"`
	Type   string `json:"type"`
	Status string `json:"status"`
}

func snapshotView(s *snapshot) snapshotBody {
	b := snapshotBody{
		ID: s.id, Name: s.name, Size: s.size, ProjectID: s.project, CreatedAt: zulu(s.created), UpdatedAt: zulu(s.modified),
		References: []referenceBody{}, Status: s.status, Tags: s.tags, Zone: s.zone, Class: "sbs",
	}
	if s.parent != nil {
		b.ParentVolume = &parentBody{ID: s.parent.id, Name: s.parent.name, Type: s.parent.blockType(), Status: s.parent.status}
	}
	return b
}

// snapshot finds one of the account's. Those behind public images exist but are
// forbidden.
func (c *Cloud) snapshot(q *request, id string) (*snapshot, error) {
	for _, img := range imagesIn(q.zone) {
		if img.rootID() == id && !img.local {
			return nil, permissionDenied("snapshot", "read")
		}
	}
	s := c.inv.snapshots[id]
	if s == nil || s.zone != q.zone || !q.caller.sees(s.project) {
		return nil, notFound(resSnapshot, id)
	}
	return s, nil
}

func (c *Cloud) listSnapshots(q *request) (*response, error) {
	get := q.query.Get
	keep := func(s *snapshot) bool {
		return (get("volume_id") == "" || s.parent != nil && s.parent.id == get("volume_id")) &&
			q.caller.visible(&s.object, get("project_id"), get("organization_id"), get("name"))
	}
	return countedList(q, "snapshots", c.inv.in(q.zone).snapshots.withTags(commaList(q.query, "tags")), keep, snapshotView)
}

func (c *Cloud) createSnapshot(q *request) (*response, error) {
	var in struct {
		VolumeID  string `json:"volume_id"`
		Name      string
		ProjectID string `json:"project_id"`
		Tags      []string
	}
	if err := q.decode(&in); err != nil {
		return nil, err
	}
	if uuid.Validate(in.ProjectID) != nil {
		return nil, invalid(errorDetail{ArgumentName: "project_id", Reason: "format", HelpMessage: "value must be a valid UUID"})
	}
	if !q.caller.sees(in.ProjectID) {
		return nil, permissionDenied("project", "read")
	}
	v, err := c.blockVolumeByID(q, in.VolumeID)
	if err != nil {
		return nil, err
	}
	if !slices.Contains([]string{"available", "in_use"}, v.status) {
		return nil, transient(resBlockVolume, v.id, v.status)
	}
	s := &snapshot{object: c.inv.newObject(in.Name, q.zone, in.ProjectID, in.Tags), size: v.size, parent: v, status: "creating"}
	c.inv.snapshots[s.id] = s
	c.inv.zone(q.zone).snapshots.add(s)
	body := snapshotView(s) // "creating" is answered even when nothing takes time
	s.change = c.after(c.delays.VolumeMake, func() { s.status, s.modified = "available", time.Now() })
	return ok(body)
}

func (c *Cloud) getSnapshot(q *request) (*response, error) {
	s, err := c.snapshot(q, q.id)
	if err != nil {
		return nil, err
	}
	return ok(snapshotView(s))
}

func (c *Cloud) updateSnapshot(q *request) (*response, error) {
	s, err := c.snapshot(q, q.id)
	if err != nil {
		return nil, err
	}
	var in struct {
		Name *string
		Tags *[]string
	}
	if err := q.decode(&in); err != nil {
		return nil, err
	}
	set(&s.name, in.Name)
	if in.Tags != nil {
		c.inv.zone(s.zone).snapshots.retag(s, *in.Tags)
	}
	s.modified = time.Now()
	return ok(snapshotView(s))
}

func (c *Cloud) deleteSnapshot(q *request) (*response, error) {
	s, err := c.snapshot(q, q.id)
	if err != nil {
		return nil, err
	}
	if s.status != "available" {
		return nil, transient(resSnapshot, s.id, s.status)
	}
	delete(c.inv.snapshots, s.id)
	c.inv.zone(s.zone).snapshots.remove(s)
	return noContent()
}
