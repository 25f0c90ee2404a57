package fakecloud

import (
	"slices"
	"time"

	"github.com/google/uuid"
)

// inventory is everything that exists. Cloud.mu guards it.
type inventory struct {
	serial     uint64 // of the object made last; orders lists by creation
	servers    map[string]*server
	volumes    map[string]*volume // of both planes
	snapshots  map[string]*snapshot
	ips        map[string]*flexibleIP
	groups     map[string]*securityGroup
	placements map[string]*placementGroup
	networks   map[string]*privateNetwork
	metal      map[string]*metalServer
	zones      map[string]*zoneIndex // by zone, and by region for what is regional

	// What belongs to the organization.
	applications shelf[*application]
	policies     shelf[*policy]
	keys         shelf[*apiKey]
	bySecret     map[string]*apiKey
	sshKeys      shelf[*sshKey]
	projects     shelf[*project]
}

// zoneIndex lists the objects of one zone or region.
type zoneIndex struct {
	servers    shelf[*server]
	volumes    shelf[*volume]
	snapshots  shelf[*snapshot]
	ips        shelf[*flexibleIP]
	groups     shelf[*securityGroup]
	placements shelf[*placementGroup]
	networks   shelf[*privateNetwork]
	vpcs       shelf[*vpc]
	metal      shelf[*metalServer]
}

func newInventory() inventory {
	return inventory{
		servers:    map[string]*server{},
		volumes:    map[string]*volume{},
		snapshots:  map[string]*snapshot{},
		ips:        map[string]*flexibleIP{},
		groups:     map[string]*securityGroup{},
		placements: map[string]*placementGroup{},
		networks:   map[string]*privateNetwork{},
		metal:      map[string]*metalServer{},
		zones:      map[string]*zoneIndex{},
		bySecret:   map[string]*apiKey{},
	}
}

// zone returns the index of a zone, made when something is first put there.
func (inv *inventory) zone(name string) *zoneIndex {
	z := inv.zones[name]
	if z == nil {
		z = &zoneIndex{}
		inv.zones[name] = z
	}
	return z
}

// in returns the index for reading, so that a list of a zone nobody uses
// leaves nothing behind.
func (inv *inventory) in(name string) *zoneIndex {
	if z := inv.zones[name]; z != nil {
		return z
	}
	return &zoneIndex{}
}

// object is what every listed thing has.
type object struct {
	serial   uint64
	id       string
	name     string
	zone     string // the region of what is regional, "" of what is global
	project  string
	tags     []string
	created  time.Time
	modified time.Time
}

func (o *object) common() *object { return o }

func (inv *inventory) newObject(name, zone, project string, tags []string) object {
	inv.serial++
	now := time.Now()
	return object{
		serial: inv.serial, id: uuid.NewString(), name: name, zone: zone, project: project,
		tags: nonNil(slices.Clone(tags)), created: now, modified: now,
	}
}

func nonNil[T any](s []T) []T {
	if s == nil {
		return []T{}
	}
	return s
}

// shelf keeps objects in the order of their creation, and by tag, so that a
// list filtered by tag walks only what carries the rarest of its tags.
type shelf[T interface{ common() *object }] struct {
	all   []T
	byTag map[string][]T
}

func (s *shelf[T]) add(t T) {
	s.all = append(s.all, t)
	s.tag(t)
}

func (s *shelf[T]) remove(t T) {
	s.all = without(s.all, t)
	s.untag(t)
}

// byID walks the shelf: it is for kinds of which there are few.
func (s *shelf[T]) byID(id string) (found T, ok bool) {
	for _, t := range s.all {
		if t.common().id == id {
			return t, true
		}
	}
	return found, false
}

func (s *shelf[T]) retag(t T, tags []string) {
	s.untag(t)
	t.common().tags = nonNil(slices.Clone(tags))
	s.tag(t)
}

func (s *shelf[T]) tag(t T) {
	if s.byTag == nil {
		s.byTag = map[string][]T{}
	}
	for _, tag := range t.common().tags {
		list := s.byTag[tag]
		if i, found := search(list, t); !found { // the same tag may be there twice
			s.byTag[tag] = slices.Insert(list, i, t)
		}
	}
}

func (s *shelf[T]) untag(t T) {
	for _, tag := range t.common().tags {
		if list := without(s.byTag[tag], t); len(list) > 0 {
			s.byTag[tag] = list
		} else {
			delete(s.byTag, tag)
		}
	}
}

// withTags returns the objects that carry all the tags, oldest first.
func (s *shelf[T]) withTags(tags []string) []T {
	if len(tags) == 0 {
		return s.all
	}
	rarest := s.byTag[tags[0]]
	for _, tag := range tags[1:] {
		if list := s.byTag[tag]; len(list) < len(rarest) {
			rarest = list
		}
	}
	var out []T
	for _, t := range rarest {
		if containsAll(t.common().tags, tags) {
			out = append(out, t)
		}
	}
	return out
}

func containsAll(have, want []string) bool {
	for _, w := range want {
		if !slices.Contains(have, w) {
			return false
		}
	}
	return true
}

func search[T interface{ common() *object }](list []T, t T) (int, bool) {
	return slices.BinarySearchFunc(list, t.common().serial, func(e T, serial uint64) int {
		switch s := e.common().serial; {
		case s < serial:
			return -1
		case s > serial:
			return 1
		default:
			return 0
		}
	})
}

func without[T interface{ common() *object }](list []T, t T) []T {
	if i, found := search(list, t); found {
		return slices.Delete(list, i, i+1)
	}
	return list
}
