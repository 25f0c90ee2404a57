package cloud

import (
	"encoding/json"
	"fmt"
	"strings"
)

// Options are an operator's wishes for new instances of a slot, beyond its type
// and zone. The zero value has none.
type Options struct {
	Image           string      `json:"image,omitempty"` // a label or an id; "" is the adapter's own
	RootVolume      *RootVolume `json:"root_volume,omitempty"`
	PrivateNetworks []string    `json:"private_network_ids,omitempty"`
	SecurityGroup   string      `json:"security_group_id,omitempty"`
	PlacementGroup  string      `json:"placement_group_id,omitempty"`
	PublicIP        PublicIP    `json:"public_ip,omitempty"`
	Tags            []string    `json:"tags,omitempty"` // beside the adapter's own
	// Server is the id of the one server that may be the slot's: it was given by
	// hand, and nothing is ever ordered.
	Server string `json:"server,omitempty"`
}

// RootVolume is what an instance boots from.
type RootVolume struct {
	Type   VolumeType `json:"type"`
	SizeGB int        `json:"size_gb,omitempty"` // of 10^9 bytes; 0 is the smallest that the image needs
	IOPS   int        `json:"iops,omitempty"`    // of a VolumeBlock; 0 is the cloud's default
}

// VolumeType is a kind of volume, as the offerings file names it.
type VolumeType string

// The kinds of volume.
const (
	VolumeLocal VolumeType = "local" // a disk of the machine under the instance
	VolumeBlock VolumeType = "sbs"   // of the cloud's network storage
)

// PublicIP is the public address of an instance, as the offerings file names it.
type PublicIP string

// The public addresses. "" leaves it to the adapter.
const (
	PublicDynamic PublicIP = "dynamic" // an IPv4 that comes and goes with the instance
	PublicNone    PublicIP = "none"
	PublicIPv6    PublicIP = "ipv6" // an IPv6 and no IPv4
)

// Encode renders the options for a record; "" when there are none. Options that
// say the same are encoded the same.
func (o Options) Encode() string {
	b, err := json.Marshal(o)
	if err != nil {
		panic("cloud: strings and numbers that are not JSON: " + err.Error())
	}
	if string(b) == "{}" {
		return ""
	}
	return string(b)
}

// DecodeOptions reads what Encode made. The error matches ErrInvalid. An option
// that it does not know, of a later release, is an error: an instance without it
// would not be what was asked for.
func DecodeOptions(encoded string) (Options, error) {
	var o Options
	if encoded == "" {
		return o, nil
	}
	d := json.NewDecoder(strings.NewReader(encoded))
	d.DisallowUnknownFields()
	if err := d.Decode(&o); err != nil {
		return Options{}, fmt.Errorf("%w: the options on record cannot be read: %w; create the machine anew with this release", ErrInvalid, err)
	}
	return o, nil
}
