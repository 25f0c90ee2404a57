package offering

import (
	"cmp"
	"crypto/sha256"
	"encoding/base32"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"

	"bigfleet-providers/provider/internal/cloud"
	"bigfleet-providers/provider/internal/machine"
)

const archLabel = "kubernetes.io/arch"

// maxIDBytes keeps a slot's id a DNS label, with room for the mark of the
// machine that follows a failed one.
const maxIDBytes = 63 - len("-r9999")

// Slot is the quota for one machine.
type Slot struct {
	ID    string
	Offer *machine.Offer // shared by all slots of an offering; never changed
	// Server is the id of the one server that can fill the slot, "" for any.
	Server string
}

// Slots makes the slots of the offerings. The ids depend on the provider's name
// and on what is offered, never on the order of the offerings, and growing a
// count keeps the ids there are. Offerings that say the same are one, with
// their counts added.
//
// Prices become USD at eurUSD, the price of a euro in dollars; bare metal costs
// 0, being paid for whether it is used or not. What cannot be offered is left
// out and returned as a problem. fits asks the cloud whether an offering could be
// made at all, as cloud.Fitter does; nil asks nobody.
func Slots(provider string, offerings []Offering, types map[string]cloud.Type, eurUSD float64, fits func(Offering) error) ([]Slot, []Problem) {
	var (
		slots    []Slot
		problems []Problem
		taken    = map[string]string{} // prefix → what was offered under it
	)
	for _, m := range merge(provider, offerings) {
		offer, problem := price(m.Offering, types, eurUSD)
		if offer != nil {
			if other, clash := taken[m.prefix]; clash {
				offer, problem = nil, "its ids clash with those of "+other+"; change a label of one of them"
			}
			taken[m.prefix] = m.CommercialType
		}
		if offer != nil && fits != nil {
			switch err := fits(m.Offering); {
			case errors.Is(err, cloud.ErrInvalid):
				offer, problem = nil, strings.ReplaceAll(err.Error(), "\n", "; ")
			case err != nil:
				problem = "whether it can be made is not known: " + err.Error()
			}
		}
		if problem != "" {
			p := Problem{CommercialType: m.CommercialType, Reason: problem}
			if offer == nil {
				p.LeftOut = m.Count
			}
			problems = append(problems, p)
		}
		if offer == nil {
			continue
		}
		slots = slices.Grow(slots, m.Count)
		for n := range m.Count - len(m.Servers) {
			slots = append(slots, Slot{ID: slotID(m.prefix, n+1), Offer: offer})
		}
		given, doubled := m.given(offer)
		slots, problems = append(slots, given...), append(problems, doubled...)
	}
	return slots, problems
}

// given makes the slots of servers that were made by hand. Their ids follow from
// those of the servers, so that no reordering moves a machine to another host.
func (m merged) given(offer *machine.Offer) (slots []Slot, problems []Problem) {
	taken := map[string]string{}
	for _, server := range m.Servers {
		sum := sha256.Sum256([]byte(server))
		id := m.prefix + "-s" + strings.ToLower(base32.StdEncoding.EncodeToString(sum[:])[:5])
		if other := taken[id]; other != "" {
			problems = append(problems, Problem{m.CommercialType, 1, fmt.Sprintf("servers: the ids of %s and %s make the same machine id; put one of them into an offering with another label", other, server)})
			continue
		}
		taken[id] = server
		options, own := m.Options, *offer
		options.Server = server
		own.Options = options.Encode()
		slots = append(slots, Slot{ID: id, Offer: &own, Server: server})
	}
	return slots, problems
}

// slotID is the id of the nth slot under a prefix.
func slotID(prefix string, n int) string {
	const digits = 4
	number := strconv.Itoa(n)
	return prefix + "-" + "0000"[min(len(number), digits):] + number
}

// merged is all offerings that say the same.
type merged struct {
	Offering
	key    string // everything but the count
	prefix string // of the slots' ids
}

func merge(provider string, offerings []Offering) []merged {
	byKey := map[string]*merged{}
	for _, o := range offerings {
		o = canonical(o)
		key := identity(provider, o)
		if m := byKey[key]; m != nil {
			m.Count += o.Count
			m.Servers = append(m.Servers, o.Servers...)
			continue
		}
		byKey[key] = &merged{Offering: o, key: key, prefix: prefix(provider, o.CommercialType, key)}
	}
	var list []merged
	for _, m := range byKey {
		list = append(list, *m)
	}
	slices.SortFunc(list, func(a, b merged) int { return cmp.Compare(a.key, b.key) })
	return list
}

// canonical spells quantities in one way, so that "1" and "1000m" are the same
// offering.
func canonical(o Offering) Offering {
	o = o.clone()
	for name, value := range o.Resources {
		if q, err := resource.ParseQuantity(value); err == nil {
			o.Resources[name] = q.String()
		}
	}
	return o
}

// identity is everything that makes two offerings different, in one string. Of
// their options nothing is in it: a new image must not give every machine a new
// id.
func identity(provider string, o Offering) string {
	b, err := json.Marshal([]any{o.CommercialType, o.Zone, o.Capacity, provider, nonNil(o.Resources), nonNil(o.Labels)})
	if err != nil {
		panic("offering: strings and numbers that are not JSON: " + err.Error())
	}
	return string(b)
}

func nonNil(m map[string]string) map[string]string {
	if m == nil {
		return map[string]string{}
	}
	return m
}

// prefix is a slot's id without its ordinal. The provider's name gives way when
// it is too long; the hash covers all of it.
func prefix(provider, commercialType, key string) string {
	sum := sha256.Sum256([]byte(key))
	tail := "-" + hex.EncodeToString(sum[:3])
	const ordinal = len("-100000")

	typ := slug(commercialType)
	most := maxIDBytes - ordinal - len(tail)
	typ = typ[:min(len(typ), most)]
	name := slug(provider)
	if room := most - len(typ) - 1; room > 0 {
		name = strings.TrimRight(name[:min(len(name), room)], "-")
	} else {
		name = ""
	}
	return cmp.Or(strings.Trim(name+"-"+typ, "-"), "slot") + tail
}

// slug keeps what a DNS label can hold.
func slug(s string) string {
	return strings.Trim(strings.Map(func(r rune) rune {
		switch {
		case 'a' <= r && r <= 'z', '0' <= r && r <= '9':
			return r
		case 'A' <= r && r <= 'Z':
			return r - 'A' + 'a'
		default:
			return '-'
		}
	}, s), "-")
}

// price makes the offer, or says why there is none; an offer with a problem is
// one that the operator should look at.
func price(o Offering, types map[string]cloud.Type, eurUSD float64) (*machine.Offer, string) {
	t, ok := types[o.CommercialType]
	if !ok {
		return nil, fmt.Sprintf("the cloud does not sell this type in %s: check the spelling, or whether it was retired", o.Zone)
	}
	if arch, ok := o.Labels[archLabel]; ok && arch != t.Arch {
		return nil, fmt.Sprintf("labels[%q] says %q, but the type is %q", archLabel, arch, t.Arch)
	}
	labels := maps.Clone(t.Labels)
	if labels == nil {
		labels = map[string]string{}
	}
	maps.Copy(labels, o.Labels)
	labels[archLabel] = t.Arch

	offer := &machine.Offer{
		InstanceType: o.CommercialType,
		Zone:         o.Zone,
		Capacity:     o.Capacity,
		Resources:    o.Resources,
		Labels:       labels,
		Allocatable:  t.Allocatable,
		Options:      o.Options.Encode(),
	}
	if o.Capacity == machine.BareMetal {
		return offer, ""
	}
	rate := eurUSD
	switch t.Currency {
	case "EUR":
	case "USD":
		rate = 1
	default:
		return nil, fmt.Sprintf("its price is in %q, which cannot be turned into USD", t.Currency)
	}
	// To a millionth: no cloud prices finer, and a product of two floats reads
	// badly. What costs anything stays above 0.
	offer.PricePerHour = math.Round(t.PricePerHour*rate*1e6) / 1e6
	if offer.PricePerHour == 0 {
		offer.PricePerHour = t.PricePerHour * rate
	}
	switch usd := offer.PricePerHour; {
	case math.IsNaN(usd) || math.IsInf(usd, 0) || usd < 0:
		return nil, fmt.Sprintf("its price, %v %s at %v USD a euro, is no price", t.PricePerHour, t.Currency, eurUSD)
	case usd == 0:
		return offer, "its price is not known; it is offered at 0 and will look free"
	}
	return offer, ""
}
