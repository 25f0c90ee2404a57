package offering

import (
	"encoding/json"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"bigfleet-providers/provider/internal/cloud"
)

// Bounds of a root volume. Scaleway's own depend on the type and the image, and
// are judged where those are known.
const (
	minRootGB = 10
	maxRootGB = 10_000 // the largest block volume
)

var (
	// systemName is an image of Elastic Metal: "Ubuntu 24.04 LTS (Noble Numbat)".
	systemName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._() -]{0,254}$`)
	imageName  = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,254}$`)
	uuidForm   = regexp.MustCompile(`^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$`)
)

// IsUUID says whether an id is written as a UUID, in upper or lower case. Clouds write
// them in lower case, and what is compared with theirs must be so, too.
func IsUUID(id string) bool { return uuidForm.MatchString(id) }

// options reads what an entry says of how its machines are made.
func (r *reader) options(o *cloud.Options, rules Rules) {
	if rules.Substrate == ElasticMetal {
		r.systemOptions(o, rules)
		return
	}
	if _, ok := r.take("image", &o.Image, "a string"); ok && !imageName.MatchString(o.Image) {
		r.fault(".image", "%.100q is neither a marketplace label such as ubuntu_noble nor an image's UUID", o.Image)
	}
	r.rootVolume(o)
	r.networks(o)
	r.id("security_group_id", &o.SecurityGroup)
	r.id("placement_group_id", &o.PlacementGroup)
	if _, ok := r.take("public_ip", &o.PublicIP, "a string"); ok &&
		!slices.Contains([]cloud.PublicIP{cloud.PublicDynamic, cloud.PublicNone, cloud.PublicIPv6}, o.PublicIP) {
		r.fault(".public_ip", "%.100q is not known; use %q, %q or %q", o.PublicIP, cloud.PublicDynamic, cloud.PublicNone, cloud.PublicIPv6)
	}
	r.tags(o, rules)
}

// systemOptions are those of Elastic Metal.
func (r *reader) systemOptions(o *cloud.Options, rules Rules) {
	if _, ok := r.take("image", &o.Image, "a string"); ok && !systemName.MatchString(o.Image) {
		r.fault(".image", "%.100q is neither a system's name and version, such as Ubuntu 24.04, nor its id", o.Image)
	}
	for _, name := range []string{"root_volume", "private_network_ids", "security_group_id", "placement_group_id", "public_ip"} {
		if _, there := r.fields[name]; there {
			delete(r.fields, name)
			r.fault("."+name, "dedicated servers have none: leave it out with --substrate %s", ElasticMetal)
		}
	}
	r.tags(o, rules)
}

// servers reads the servers that were made by hand.
func (r *reader) servers(o *Offering, rules Rules) {
	present, ok := r.take("servers", &o.Servers, "an array of strings")
	switch {
	case !ok:
		o.Servers = nil // or what was read before the fault
	case rules.Substrate != ElasticMetal:
		r.fault(".servers", "servers by hand are for --substrate %s only", ElasticMetal)
	case len(o.Servers) == 0 || len(o.Servers) > MaxServers:
		r.fault(".servers", "%d servers; name 1 to %d, or leave it out", len(o.Servers), MaxServers)
	}
	if !present {
		return
	}
	for i, id := range o.Servers {
		if !IsUUID(id) {
			r.fault(fmt.Sprintf(".servers[%d]", i), "%.100q is not a server's id, a UUID", id)
			continue
		}
		o.Servers[i] = strings.ToLower(id)
	}
}

// repeated finds servers that are named twice: two machines would share a host.
func repeated(list []Offering) []error {
	var faults []error
	first := map[string]string{}
	for i, o := range list {
		for j, id := range o.Servers {
			at := fmt.Sprintf("offerings[%d].servers[%d]", i, j)
			if other := first[id]; other != "" {
				faults = append(faults, fmt.Errorf("%s: %q is %s too", at, id, other))
				continue
			}
			first[id] = at
		}
	}
	return faults
}

func (r *reader) rootVolume(o *cloud.Options) {
	var raw json.RawMessage
	if _, ok := r.take("root_volume", &raw, "an object"); !ok {
		return
	}
	sub := reader{at: r.at + ".root_volume"}
	defer func() { r.faults = append(r.faults, sub.faults...) }()
	if err := json.Unmarshal(raw, &sub.fields); err != nil {
		sub.fault("", "not an object")
		return
	}
	v := &cloud.RootVolume{}
	o.RootVolume = v
	switch present, ok := sub.take("type", &v.Type, "a string"); {
	case !present:
		sub.fault(".type", "missing: use %q or %q", cloud.VolumeLocal, cloud.VolumeBlock)
	case ok && v.Type != cloud.VolumeLocal && v.Type != cloud.VolumeBlock:
		sub.fault(".type", "%.100q is not known; use %q or %q", v.Type, cloud.VolumeLocal, cloud.VolumeBlock)
	}
	switch present, ok := sub.take("size_gb", &v.SizeGB, "a whole number"); {
	case !present && v.Type == cloud.VolumeLocal:
		sub.fault(".size_gb", "missing: a local root volume needs its size, up to what the type has")
	case ok && (v.SizeGB < minRootGB || v.SizeGB > maxRootGB):
		sub.fault(".size_gb", "%d; it must be from %d to %d", v.SizeGB, minRootGB, maxRootGB)
	}
	if _, ok := sub.take("iops", &v.IOPS, "a whole number"); ok {
		switch {
		case v.IOPS != 5000 && v.IOPS != 15000:
			sub.fault(".iops", "%d; it must be 5000 or 15000", v.IOPS)
		case v.Type == cloud.VolumeLocal:
			sub.fault(".iops", "only block volumes have it; use type %q or leave it out", cloud.VolumeBlock)
		}
	}
	sub.leftOver("type, size_gb and iops")
}

func (r *reader) networks(o *cloud.Options) {
	const field = "private_network_ids"
	if _, ok := r.take(field, &o.PrivateNetworks, "an array of strings"); !ok {
		o.PrivateNetworks = nil // or what was read before the fault
		return
	}
	if n := len(o.PrivateNetworks); n > MaxNetworks {
		r.fault("."+field, "%d networks, the limit is %d", n, MaxNetworks)
	}
	for i, id := range o.PrivateNetworks {
		at := fmt.Sprintf(".%s[%d]", field, i)
		if !IsUUID(id) {
			r.fault(at, "%.100q is not a UUID", id)
			continue
		}
		o.PrivateNetworks[i] = strings.ToLower(id)
		if slices.Contains(o.PrivateNetworks[:i], o.PrivateNetworks[i]) {
			r.fault(at, "%q is in the list twice", id)
		}
	}
}

func (r *reader) id(name string, into *string) {
	present, ok := r.take(name, into, "a string")
	switch {
	case !present, !ok:
	case !IsUUID(*into):
		r.fault("."+name, "%.100q is not a UUID", *into)
	default:
		*into = strings.ToLower(*into)
	}
}

func (r *reader) tags(o *cloud.Options, rules Rules) {
	if _, ok := r.take("tags", &o.Tags, "an array of strings"); !ok {
		o.Tags = nil
		return
	}
	if n := len(o.Tags); n > MaxTags {
		r.fault(".tags", "%d tags, the limit is %d", n, MaxTags)
	}
	for i, tag := range o.Tags {
		at := fmt.Sprintf(".tags[%d]", i)
		if slices.Index(o.Tags, tag) < i {
			r.fault(at, "%.100q is in the list twice", tag)
			continue
		}
		if rules.Tag == nil {
			continue
		}
		if err := rules.Tag(tag); err != nil {
			r.fault(at, "%s", err)
		}
	}
}

// ambiguous finds offerings whose machines would have the same ids but be made
// in different ways: nobody could tell which id is made how.
func ambiguous(list []Offering) []error {
	var faults []error
	first := map[string]int{}
	for i, o := range list {
		if o.Count == 0 {
			continue // faulty
		}
		key := identity("", canonical(o))
		j, seen := first[key]
		if !seen {
			first[key] = i
			continue
		}
		if field := difference(list[j].Options, o.Options); field != "" {
			faults = append(faults, fmt.Errorf("offerings[%d].%s: differs from that of offerings[%d], which offers the same otherwise; such options are not part of a machine's id: give one of the two a label of its own", i, field, j))
		}
	}
	return faults
}

// difference names the first option in which two differ, as the file names it.
func difference(a, b cloud.Options) string {
	for _, f := range []struct {
		name string
		a, b any
	}{
		{"image", a.Image, b.Image},
		{"root_volume", a.RootVolume, b.RootVolume},
		{"private_network_ids", a.PrivateNetworks, b.PrivateNetworks},
		{"security_group_id", a.SecurityGroup, b.SecurityGroup},
		{"placement_group_id", a.PlacementGroup, b.PlacementGroup},
		{"public_ip", a.PublicIP, b.PublicIP},
		{"tags", a.Tags, b.Tags},
	} {
		if !reflect.DeepEqual(f.a, f.b) {
			return f.name
		}
	}
	return ""
}
