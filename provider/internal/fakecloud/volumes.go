package fakecloud

import (
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
)

// The kinds of volume. Local and scratch ones live on the instance plane,
// network ones on the Block plane; each plane answers 404 for the other's ids.
const (
	kindLocal   = "l_ssd"
	kindScratch = "scratch"
	kindNetwork = "sbs_volume"
)

// volume is one disk of either plane.
type volume struct {
	object
	kind   string
	size   uint64
	iops   uint32 // of network volumes: 5000 or 15000
	parent string // the snapshot it was made from, "" for none
	boot   bool
	server *server    // nil when attached to nothing
	ref    *reference // of network volumes, from attaching until detached
	status string     // of network volumes
	change *pending

	lastDetached time.Time
}

// reference is the Block API's link to what uses a volume.
type reference struct {
	id       string
	serverID string
	created  time.Time
	status   string // attached, later detaching
}

func (v *volume) network() bool { return v.kind == kindNetwork }

// newVolume puts a volume into the inventory; network volumes made with a
// server are there at once.
func (c *Cloud) newVolume(name, zone, project, kind string, size uint64, tags []string) *volume {
	v := &volume{object: c.inv.newObject(name, zone, project, tags), kind: kind, size: size, status: "available"}
	if v.network() {
		v.iops = 5000
	}
	c.inv.volumes[v.id] = v
	c.inv.zone(zone).volumes.add(v)
	return v
}

func (c *Cloud) removeVolume(v *volume) {
	c.cancel(v.change)
	for _, s := range c.inv.in(v.zone).snapshots.all {
		if s.parent == v {
			s.parent = nil
		}
	}
	delete(c.inv.volumes, v.id)
	c.inv.zone(v.zone).volumes.remove(v)
}

func (c *Cloud) attach(v *volume, s *server, slot string) {
	v.server, v.modified = s, time.Now()
	s.volumes[slot] = v
	if v.network() {
		v.status = "in_use"
		v.ref = &reference{id: uuid.NewString(), serverID: s.id, created: time.Now(), status: "attached"}
	}
}

// detach takes a volume off its server; a network volume stays in use, with a
// reference that is "detaching", for the time it takes. The caller removes it
// from the server's slots.
func (c *Cloud) detach(v *volume, takes time.Duration) {
	v.server, v.boot, v.modified = nil, false, time.Now()
	if v.ref == nil {
		return
	}
	done := func() {
		v.ref, v.status, v.change = nil, "available", nil
		v.lastDetached = time.Now()
		v.modified = v.lastDetached
	}
	begun := func() {
		v.ref.status = "detaching"
		v.change = c.after(takes, done)
	}
	if late := c.delays.DetachStart; late > 0 {
		v.change = c.after(late, begun)
		return
	}
	begun()
}

// localVolume finds a volume of the instance plane.
func (c *Cloud) localVolume(q *request, id string) (*volume, error) {
	v := c.inv.volumes[id]
	if v == nil || v.network() || v.zone != q.zone || !q.caller.sees(v.project) {
		return nil, notFound(resLocalVolume, id)
	}
	return v, nil
}

// anyVolume finds a volume of either plane, for attaching.
func (c *Cloud) anyVolume(q *request, id string) (*volume, error) {
	v := c.inv.volumes[id]
	if v == nil || v.zone != q.zone || !q.caller.sees(v.project) {
		return nil, notFound(resLocalVolume, id)
	}
	return v, nil
}

// attachable says why a volume cannot be put on the server.
func attachable(v *volume, s *server) error {
	switch {
	case v.network() && v.status != "available":
		return transient(resBlockVolume, v.id, v.status)
	case v.server != nil:
		return stillInUse("volume is attached to another server")
	case !v.network() && s != nil && s.state != StateStopped:
		return stillInUse("instance should be powered off")
	}
	return nil
}

type localVolumeBody struct {
	ID           string       `json:"id"`
	Name         string       `json:"name"`
	ExportURI    *string      `json:"export_uri"`
	Size         uint64       `json:"size"`
	VolumeType   string       `json:"volume_type"`
	Created      stamp        `json:"creation_date"`
	Modified     stamp        `json:"modification_date"`
	Organization string       `json:"organization"`
	Project      string       `json:"project"`
	Tags         []string     `json:"tags"`
	Server       *summaryBody `json:"server"`
	State        string       `json:"state"`
	Zone         string       `json:"zone"`
}

func localVolumeView(v *volume) localVolumeBody {
	return localVolumeBody{
		ID: v.id, Name: v.name, Size: v.size, VolumeType: v.kind,
		Created: stamp(v.created), Modified: stamp(v.modified),
		Organization: DefaultOrganizationID, Project: v.project, Tags: v.tags,
		Server: summary(v.server), State: "available", Zone: v.zone,
	}
}

type localVolumeEnvelope struct {
	Volume localVolumeBody `json:"volume"`
}

func (c *Cloud) listLocalVolumes(q *request) (*response, error) {
	w := pageWindow(q.query, "per_page", 50)
	kind := q.query.Get("volume_type")
	found, total := cut(w, newestFirst(c.inv.in(q.zone).volumes.withTags(commaList(q.query, "tags")), func(v *volume) bool {
		return !v.network() && (kind == "" || v.kind == kind) &&
			q.caller.visible(&v.object, q.query.Get("project"), q.query.Get("organization"), q.query.Get("name"))
	}))
	body := struct {
		Volumes []localVolumeBody `json:"volumes"`
	}{[]localVolumeBody{}}
	for _, v := range found {
		body.Volumes = append(body.Volumes, localVolumeView(v))
	}
	return &response{status: http.StatusOK, header: w.headers(q.pagePath(), q.query, total), body: body}, nil
}

func (c *Cloud) createLocalVolume(q *request) (*response, error) {
	var in struct {
		Name         string
		Project      string
		Organization string
		Tags         []string
		VolumeType   string `json:"volume_type"`
		Size         uint64
	}
	if err := q.decode(&in); err != nil {
		return nil, err
	}
	project, err := q.project(in.Project, in.Organization)
	if err != nil {
		return nil, err
	}
	if in.VolumeType != kindLocal && in.VolumeType != kindScratch {
		return nil, invalid(constraint("volume_type", "not a valid value"))
	}
	if in.Size == 0 {
		return nil, invalid(required("size"))
	}
	v := c.newVolume(in.Name, q.zone, project, in.VolumeType, in.Size, in.Tags)
	return created(localVolumeEnvelope{localVolumeView(v)})
}

func (c *Cloud) getLocalVolume(q *request) (*response, error) {
	v, err := c.localVolume(q, q.id)
	if err != nil {
		return nil, err
	}
	return ok(localVolumeEnvelope{localVolumeView(v)})
}

func (c *Cloud) updateLocalVolume(q *request) (*response, error) {
	v, err := c.localVolume(q, q.id)
	if err != nil {
		return nil, err
	}
	var in struct {
		Name *string
		Tags *[]string
		Size *uint64
	}
	if err := q.decode(&in); err != nil {
		return nil, err
	}
	if in.Size != nil && *in.Size != v.size {
		return nil, invalid(constraint("size", "a local volume keeps its size"))
	}
	c.editVolume(v, in.Name, in.Tags)
	return ok(localVolumeEnvelope{localVolumeView(v)})
}

func (c *Cloud) editVolume(v *volume, name *string, tags *[]string) {
	if name != nil {
		v.name = *name
	}
	if tags != nil {
		c.inv.zone(v.zone).volumes.retag(v, *tags)
	}
	v.modified = time.Now()
}

func (c *Cloud) deleteLocalVolume(q *request) (*response, error) {
	v, err := c.localVolume(q, q.id)
	if err != nil {
		return nil, err
	}
	if v.server != nil {
		return nil, stillInUse("volume is attached to a server")
	}
	c.removeVolume(v)
	return noContent()
}

// attachVolume and detachVolume are actions on a server.
func (c *Cloud) attachVolume(q *request) (*response, error) {
	s, err := c.server(q)
	if err != nil {
		return nil, err
	}
	var in struct {
		VolumeID   string `json:"volume_id"`
		VolumeType string `json:"volume_type"`
		Boot       bool
	}
	if err := q.decode(&in); err != nil {
		return nil, err
	}
	v, err := c.anyVolume(q, in.VolumeID)
	if err != nil {
		return nil, err
	}
	if in.VolumeType != "" && in.VolumeType != v.kind {
		return nil, invalid(constraint("volume_type", "the volume is of type "+v.kind))
	}
	if err := attachable(v, s); err != nil {
		return nil, err
	}
	slot, err := s.freeSlot()
	if err != nil {
		return nil, err
	}
	after := slices.Values(append(slices.Collect(maps.Values(s.volumes)), v))
	if err := fitsAttached(after, s.product); err != nil {
		return nil, err
	}
	c.attach(v, s, slot)
	v.boot = in.Boot
	return ok(c.serverEnvelope(s))
}

func (c *Cloud) detachVolume(q *request) (*response, error) {
	s, err := c.server(q)
	if err != nil {
		return nil, err
	}
	var in struct {
		VolumeID string `json:"volume_id"`
	}
	if err := q.decode(&in); err != nil {
		return nil, err
	}
	slot, found := s.slotOf(in.VolumeID)
	if !found {
		return nil, invalid(constraint("volume_id", "Volume "+in.VolumeID+" is not attached to this server"))
	}
	v := s.volumes[slot]
	if !v.network() && s.state != StateStopped {
		return nil, stillInUse("instance should be powered off")
	}
	c.detach(v, c.delays.DetachLive)
	delete(s.volumes, slot)
	return ok(c.serverEnvelope(s))
}

func (s *server) slotOf(volumeID string) (string, bool) {
	for slot, v := range s.volumes {
		if v.id == volumeID {
			return slot, true
		}
	}
	return "", false
}

// volumeSlots are the keys of the volumes map, in order.
var volumeSlots = strings.Fields("0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15")

// freeSlot is the first unused key; an instance takes at most sixteen volumes.
func (s *server) freeSlot() (string, error) {
	for _, slot := range volumeSlots {
		if s.volumes[slot] == nil {
			return slot, nil
		}
	}
	return "", invalid(constraint("volumes", "an instance takes at most 16 volumes"))
}
