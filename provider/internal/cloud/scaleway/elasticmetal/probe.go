package elasticmetal

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/scaleway/scaleway-sdk-go/api/baremetal/v1"

	"bigfleet-providers/provider/internal/cloud"
	"bigfleet-providers/provider/internal/cloud/scaleway"
)

// product is what the key is examined for.
var product = scaleway.Product{Name: "Elastic Metal", Servers: "Elastic Metal servers", Permission: "ElasticMetalFullAccess"}

// Access implements cloud.Prober.
func (c *Cloud) Access(ctx context.Context) error {
	_, err := c.page(ctx, nil, 1, 1)
	return product.ExplainAccess(c.scope.Project, err)
}

// Missing implements cloud.Prober: all that is needed is seen by Access or Probe.
func (c *Cloud) Missing(context.Context) error { return nil }

// Probe implements cloud.Prober.
func (c *Cloud) Probe(ctx context.Context, wanted []cloud.Wanted) []cloud.Finding {
	p := &probe{Cloud: c, ctx: ctx}
	err := c.Access(ctx)
	p.AddAccess(product, c.scope.Zone, err)
	if err != nil {
		return p.Findings
	}
	p.Add(cloud.Unknown, "permission to order and install", "reading cannot tell; the key needs ElasticMetalFullAccess and SSHKeysReadOnly on project %s", c.scope.Project)
	p.sshKeys()
	if offers := p.zoneOffers(); offers != nil {
		p.offerings(offers, wanted)
	}
	p.spares()
	return p.Findings
}

// probe collects findings.
type probe struct {
	*Cloud
	scaleway.Findings
	ctx context.Context
}

func (p *probe) sshKeys() {
	const what = "SSH keys"
	keys, err := p.keys(p.ctx)
	switch {
	case err == nil && len(p.Cloud.sshKeys) > 0:
		p.Add(cloud.Fine, what, "%d are named by --ssh-keys; whether they exist is not asked", len(keys))
	case err == nil:
		p.Add(cloud.Fine, what, "the project has %d, which go on every server", len(keys))
	default:
		p.Add(cloud.Fault, what, "%s", err)
	}
}

// zoneOffers reads what the zone sells; nil when it cannot be read.
func (p *probe) zoneOffers() map[string]*baremetal.Offer {
	what := "zone " + p.scope.Zone.String()
	offers, err := p.listOffers(p.ctx)
	switch {
	case err != nil:
		p.Add(cloud.Fault, what, "%s; check --zone and --api-url", err)
		return nil
	case len(offers) == 0:
		p.Add(cloud.Fault, what, "it sells no Elastic Metal by the hour; check --zone")
		return nil
	}
	p.Add(cloud.Fine, what, "it sells %d offers by the hour", len(offers))
	return offers
}

// offerings judges each offer and each system.
func (p *probe) offerings(offers map[string]*baremetal.Offer, wanted []cloud.Wanted) {
	judged := map[string]bool{}
	for _, w := range wanted {
		at := w.At + ": "
		offer, sold := offers[w.Type]
		if !sold {
			p.Add(cloud.Fault, at+"offer "+w.Type, "zone %s does not sell it by the hour: check the spelling, or whether it was retired", p.scope.Zone)
			continue
		}
		if !judged[w.Type] {
			judged[w.Type] = true
			p.judge(at+"offer "+w.Type, offer)
		}
		if w.Options.Server != "" {
			p.given(at+"server "+w.Options.Server, w)
			continue
		}
		what := at + "image " + p.imageOf(w.Options)
		switch err := p.Fit(p.ctx, w.Type, w.Options); {
		case err == nil:
			p.Add(cloud.Fine, what, "it can be installed on %s and supports cloud-init", w.Type)
		case errors.Is(err, cloud.ErrInvalid):
			p.Add(cloud.Fault, what, "%s", strings.ReplaceAll(err.Error(), "\n", "; "))
		default:
			p.Add(cloud.Fault, what, "could not be looked up: %s; try again", err)
		}
	}
}

func (p *probe) imageOf(o cloud.Options) string {
	if o.Image != "" {
		return o.Image
	}
	return p.system
}

func (p *probe) judge(what string, o *baremetal.Offer) {
	price := "at a price that the API does not say"
	if o.PricePerHour != nil {
		price = fmt.Sprintf("at %.3f EUR an hour", o.PricePerHour.ToFloat())
	}
	switch o.Stock {
	case baremetal.OfferStockEmpty:
		p.Add(cloud.Doubt, what, "it is out of stock now: Creates will fail until it is back")
	case baremetal.OfferStockLow:
		p.Add(cloud.Doubt, what, "little of it is left in stock; each server bills %s until you give it back by hand", price)
	default:
		p.Add(cloud.Fine, what, "the zone sells it; each server bills %s until you give it back by hand", price)
	}
}

// given looks at a server that the offerings file names.
func (p *probe) given(what string, w cloud.Wanted) {
	server, err := p.get(p.ctx, w.Options.Server)
	if err == nil {
		err = p.mustOwn(server)
	}
	switch {
	case err != nil:
		p.Add(cloud.Fault, what, "%s", err)
	case server.OfferName != w.Type:
		p.Add(cloud.Fault, what, "it is a %s, not a %s", server.OfferName, w.Type)
	case !installed(server):
		p.Add(cloud.Doubt, what, "no system is installed on it (%s)", describe(server))
	default:
		p.Add(cloud.Fine, what, "it carries the tag %q and a system", scaleway.OwnerTag(p.scope.Provider))
	}
}

// spares counts what is paid for and no machine's.
func (p *probe) spares() {
	const what = "spare servers"
	servers, err := p.list(p.ctx)
	if err != nil {
		p.Add(cloud.Unknown, what, "could not be read: %s", err)
		return
	}
	n := 0
	for _, s := range servers {
		if scaleway.ParseTags(s.Tags).Spare != "" {
			n++
		}
	}
	if n > 0 {
		p.Add(cloud.Doubt, what, "%d are paid for and used by no machine: the next Creates take them, or give them back by hand", n)
		return
	}
	p.Add(cloud.Fine, what, "there are none")
}
