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

// fresh ends what is said of a refusal: permissions spread slowly.
const fresh = " (a new key or policy may take two minutes to hold)"

// Access implements cloud.Prober.
func (c *Cloud) Access(ctx context.Context) error {
	_, err := c.page(ctx, nil, 1, 1)
	switch {
	case scaleway.Unauthenticated(err):
		return fmt.Errorf("%w; check SCW_ACCESS_KEY and SCW_SECRET_KEY: both of one API key that is neither expired nor deleted%s", err, fresh)
	case errors.Is(err, cloud.ErrDenied):
		return fmt.Errorf("%w; the key is known, but may not list Elastic Metal servers of project %s: grant its application ElasticMetalFullAccess there%s", err, c.project, fresh)
	}
	return err
}

// Probe implements cloud.Prober.
func (c *Cloud) Probe(ctx context.Context, wanted []cloud.Wanted) []cloud.Finding {
	p := &probe{Cloud: c, ctx: ctx}
	if !p.credentials() {
		return p.findings
	}
	p.add(cloud.Unknown, "permission to order and install", "reading cannot tell; the key needs ElasticMetalFullAccess and SSHKeysReadOnly on project %s", c.project)
	p.sshKeys()
	if offers := p.zoneOffers(); offers != nil {
		p.offerings(offers, wanted)
	}
	p.spares()
	return p.findings
}

// probe collects findings.
type probe struct {
	*Cloud
	ctx      context.Context
	findings []cloud.Finding
}

func (p *probe) add(v cloud.Verdict, what, format string, args ...any) {
	p.findings = append(p.findings, cloud.Finding{Verdict: v, What: what, Text: fmt.Sprintf(format, args...)})
}

// credentials reports whether calls with the key are worth making.
func (p *probe) credentials() bool {
	const what, list = "credentials", "Elastic Metal"
	err := p.Access(p.ctx)
	switch {
	case err == nil:
		p.add(cloud.Fine, what, "the API knows the key")
		p.add(cloud.Fine, list, "the key may list servers in zone %s", p.zone)
		return true
	case scaleway.Unauthenticated(err):
		p.add(cloud.Fault, what, "%s", err)
	case errors.Is(err, cloud.ErrDenied):
		p.add(cloud.Fine, what, "the API knows the key")
		p.add(cloud.Fault, list, "%s", err)
	case errors.Is(err, cloud.ErrNotFound):
		p.add(cloud.Fault, list, "%s; is zone %s one that has Elastic Metal? check --zone and --api-url", err, p.zone)
	default:
		p.add(cloud.Fault, list, "%s; check --api-url, proxy and firewall, then try again", err)
	}
	return false
}

func (p *probe) sshKeys() {
	const what = "SSH keys"
	keys, err := p.keys(p.ctx)
	switch {
	case err == nil && len(p.Cloud.sshKeys) > 0:
		p.add(cloud.Fine, what, "%d are named by --ssh-keys; whether they exist is not asked", len(keys))
	case err == nil:
		p.add(cloud.Fine, what, "the project has %d, which go on every server", len(keys))
	default:
		p.add(cloud.Fault, what, "%s", err)
	}
}

// zoneOffers reads what the zone sells; nil when it cannot be read.
func (p *probe) zoneOffers() map[string]*baremetal.Offer {
	what := "zone " + p.zone.String()
	offers, err := p.listOffers(p.ctx)
	switch {
	case err != nil:
		p.add(cloud.Fault, what, "%s; check --zone and --api-url", err)
		return nil
	case len(offers) == 0:
		p.add(cloud.Fault, what, "it sells no Elastic Metal by the hour; check --zone")
		return nil
	}
	p.add(cloud.Fine, what, "it sells %d offers by the hour", len(offers))
	return offers
}

// offerings judges each offer and each system.
func (p *probe) offerings(offers map[string]*baremetal.Offer, wanted []cloud.Wanted) {
	judged := map[string]bool{}
	for _, w := range wanted {
		at := w.At + ": "
		offer, sold := offers[w.Type]
		if !sold {
			p.add(cloud.Fault, at+"offer "+w.Type, "zone %s does not sell it by the hour: check the spelling, or whether it was retired", p.zone)
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
			p.add(cloud.Fine, what, "it can be installed on %s and supports cloud-init", w.Type)
		case errors.Is(err, cloud.ErrInvalid):
			p.add(cloud.Fault, what, "%s", strings.ReplaceAll(err.Error(), "\n", "; "))
		default:
			p.add(cloud.Fault, what, "could not be looked up: %s; try again", err)
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
		p.add(cloud.Doubt, what, "it is out of stock now: Creates will fail until it is back")
	case baremetal.OfferStockLow:
		p.add(cloud.Doubt, what, "little of it is left in stock; each server bills %s until you give it back by hand", price)
	default:
		p.add(cloud.Fine, what, "the zone sells it; each server bills %s until you give it back by hand", price)
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
		p.add(cloud.Fault, what, "%s", err)
	case server.OfferName != w.Type:
		p.add(cloud.Fault, what, "it is a %s, not a %s", server.OfferName, w.Type)
	case !installed(server):
		p.add(cloud.Doubt, what, "no system is installed on it (%s)", describe(server))
	default:
		p.add(cloud.Fine, what, "it carries the tag %q and a system", scaleway.OwnerTag(p.provider))
	}
}

// spares counts what is paid for and no machine's.
func (p *probe) spares() {
	const what = "spare servers"
	servers, err := p.list(p.ctx)
	if err != nil {
		p.add(cloud.Unknown, what, "could not be read: %s", err)
		return
	}
	n := 0
	for _, s := range servers {
		if scaleway.ParseTags(s.Tags).Spare != "" {
			n++
		}
	}
	if n > 0 {
		p.add(cloud.Doubt, what, "%d are paid for and used by no machine: the next Creates take them, or give them back by hand", n)
		return
	}
	p.add(cloud.Fine, what, "there are none")
}
