// Package offering turns what an operator offers into priced slots. An offering
// is so many machines of one commercial type; a slot is the quota for one of
// them, with an id that survives restarts and any reordering of the offerings.
package offering

import (
	"fmt"
	"maps"
	"slices"

	"bigfleet-providers/provider/internal/cloud"
	"bigfleet-providers/provider/internal/machine"
)

// The substrates, as --substrate names them.
const (
	Instances    = "instances"
	ElasticMetal = "elastic-metal"
)

// Limits of an offerings file.
const (
	MaxFileBytes  = 4 << 20
	MaxSlots      = 100_000 // of all offerings together: what one provider is measured for
	MaxLabels     = 64      // an offering
	MaxLabelBytes = 1024    // a key or a value
	MaxTags       = 32      // an offering
	MaxNetworks   = 8       // private ones, an offering: Scaleway's own limit
	MaxServers    = 500     // given by hand, an offering
)

// Offering is one entry of the offerings file.
type Offering struct {
	CommercialType string
	Zone           string
	Capacity       machine.CapacityType
	Count          int
	// Resources is what one replica that this offering is meant for requests, as
	// Kubernetes quantities. It is the operator's word and stays empty without
	// one: the hardware's own size is Offer.Allocatable, and neither stands in
	// for the other.
	Resources map[string]string
	Labels    map[string]string
	// Options say how new machines are made. They are not part of a slot's
	// identity: machines that exist keep their ids, and what they were made with.
	Options cloud.Options
	// Servers are ids of servers that were made by hand: Count is then their
	// number, and none is ever ordered. Each has a slot of its own.
	Servers []string
}

// Rules are what a provider demands of its offerings.
type Rules struct {
	Substrate string // Instances or ElasticMetal
	Zone      string // a provider serves one
	ZoneFlag  string // with which it is set, such as --zone, for faults
	Vendor    string // whose cloud it is, for faults
	// Tag judges an operator's tag; nil accepts any.
	Tag func(tag string) error
}

// Capacity is how the substrate is sold.
func Capacity(substrate string) machine.CapacityType {
	if substrate == ElasticMetal {
		return machine.BareMetal
	}
	return machine.OnDemand
}

// Problem is an offering that cannot be offered as it stands. The provider
// starts in spite of it, and machines of the type that exist live on.
type Problem struct {
	CommercialType string
	LeftOut        int // slots that are not offered for it
	Reason         string
}

func (p Problem) String() string {
	return fmt.Sprintf("offering of %s: %s (slots left out: %d)", p.CommercialType, p.Reason, p.LeftOut)
}

func (o Offering) clone() Offering {
	o.Resources, o.Labels, o.Servers = maps.Clone(o.Resources), maps.Clone(o.Labels), slices.Clone(o.Servers)
	return o
}
