package instances

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	account "github.com/scaleway/scaleway-sdk-go/api/account/v3"
	"github.com/scaleway/scaleway-sdk-go/api/iam/v1alpha1"
	"github.com/scaleway/scaleway-sdk-go/api/instance/v1"
	"github.com/scaleway/scaleway-sdk-go/api/vpc/v2"
	"github.com/scaleway/scaleway-sdk-go/scw"

	"bigfleet-providers/provider/internal/cloud"
	"bigfleet-providers/provider/internal/cloud/scaleway"
)

var _ cloud.Prober = (*Cloud)(nil)

// product is what the key is examined for.
var product = scaleway.Product{Name: "Instances", Servers: "Instances", Permission: "InstancesFullAccess"}

// Access implements cloud.Prober.
func (c *Cloud) Access(ctx context.Context) error {
	_, err := c.page(ctx, nil, 1, 1)
	return product.ExplainAccess(c.scope.Project, err)
}

// Probe implements cloud.Prober.
func (c *Cloud) Probe(ctx context.Context, wanted []cloud.Wanted) []cloud.Finding {
	p := &probe{Cloud: c, ctx: ctx}
	err := c.Access(ctx)
	p.AddAccess(product, c.scope.Zone, err)
	// A key that may not do this may well do that.
	admitted := err == nil || !scaleway.Unauthenticated(err) && (errors.Is(err, cloud.ErrDenied) || errors.Is(err, cloud.ErrNotFound))
	organization := ""
	if admitted {
		organization = p.readProject()
		p.blockStorage()
		p.Add(cloud.Unknown, "permission to create and delete", "reading cannot tell; the key needs %s on project %s", permissionSets(wanted), c.scope.Project)
	}
	if types := p.types(); types != nil {
		p.offerings(types, wanted)
	}
	if admitted {
		p.named(wanted)
		p.quota(organization, wanted)
	}
	return p.Findings
}

// probe collects findings.
type probe struct {
	*Cloud
	scaleway.Findings
	ctx context.Context
}

// readProject returns the project's organization, "" when it cannot be read.
func (p *probe) readProject() string {
	what := "project " + p.scope.Project
	project, err := account.NewProjectAPI(p.client).GetProject(&account.ProjectAPIGetProjectRequest{ProjectID: p.scope.Project}, scw.WithContext(p.ctx))
	switch err = scaleway.Explain(err); {
	case err == nil:
		p.Add(cloud.Fine, what, "it is there (%q)", project.Name)
		return project.OrganizationID
	case errors.Is(err, cloud.ErrNotFound):
		p.Add(cloud.Fault, what, "%s; check SCW_DEFAULT_PROJECT_ID", err)
	case errors.Is(err, cloud.ErrDenied):
		p.Add(cloud.Unknown, what, "the key may not read it, and need not (ProjectReadOnly); should it not exist, every order is refused: %s", err)
	default:
		p.Add(cloud.Unknown, what, "could not be read: %s", err)
	}
	return ""
}

func (p *probe) blockStorage() {
	const what = "Block Storage"
	err := p.Missing(p.ctx)
	switch {
	case err == nil:
		p.Add(cloud.Fine, what, "the key may list volumes")
	case errors.Is(err, cloud.ErrDenied):
		p.Add(cloud.Fault, what, "%s", err)
	default:
		p.Add(cloud.Fault, what, "volumes cannot be listed: %s; try again", err)
	}
}

// permissionSets names what a provider of all that is wanted needs.
func permissionSets(wanted []cloud.Wanted) string {
	sets := []string{"InstancesFullAccess", "BlockStorageFullAccess"}
	if slices.ContainsFunc(wanted, func(w cloud.Wanted) bool { return len(w.Options.PrivateNetworks) > 0 }) {
		sets = append(sets, "PrivateNetworksFullAccess", "IPAMFullAccess")
	}
	return strings.Join(sets, ", ")
}

// named looks for what the options name.
func (p *probe) named(wanted []cloud.Wanted) {
	seen := map[string]bool{}
	look := func(field, id string, read func() (project string, err error)) {
		what := field + " " + id
		if id == "" || seen[what] {
			return
		}
		seen[what] = true
		project, err := read()
		switch err = scaleway.Explain(err); {
		case err == nil && project != p.scope.Project:
			p.Add(cloud.Fault, what, "it is in project %s, but servers are made in %s", project, p.scope.Project)
		case err == nil:
			p.Add(cloud.Fine, what, "it is there")
		case errors.Is(err, cloud.ErrNotFound):
			p.Add(cloud.Fault, what, "%s; is it in another zone, region or project?", err)
		case errors.Is(err, cloud.ErrDenied):
			p.Add(cloud.Fault, what, "%s; the key may not read it, so it may not use it either", err)
		default:
			p.Add(cloud.Fault, what, "could not be read: %s; try again", err)
		}
	}
	for _, w := range wanted {
		o := w.Options
		look("security_group_id", o.SecurityGroup, func() (string, error) {
			resp, err := p.api.GetSecurityGroup(&instance.GetSecurityGroupRequest{Zone: p.scope.Zone, SecurityGroupID: o.SecurityGroup}, scw.WithContext(p.ctx))
			if err != nil {
				return "", err
			}
			if resp.SecurityGroup == nil {
				return "", scaleway.ErrEmptyAnswer
			}
			return resp.SecurityGroup.Project, nil
		})
		look("placement_group_id", o.PlacementGroup, func() (string, error) {
			resp, err := p.api.GetPlacementGroup(&instance.GetPlacementGroupRequest{Zone: p.scope.Zone, PlacementGroupID: o.PlacementGroup}, scw.WithContext(p.ctx))
			if err != nil {
				return "", err
			}
			if resp.PlacementGroup == nil {
				return "", scaleway.ErrEmptyAnswer
			}
			return resp.PlacementGroup.Project, nil
		})
		for _, id := range o.PrivateNetworks {
			look("private_network_ids", id, func() (string, error) {
				region, err := p.scope.Zone.Region()
				if err != nil {
					return "", err
				}
				network, err := p.vpc.GetPrivateNetwork(&vpc.GetPrivateNetworkRequest{Region: region, PrivateNetworkID: id}, scw.WithContext(p.ctx))
				if err != nil {
					return "", err
				}
				return network.ProjectID, nil
			})
		}
	}
}

// types reads what the zone sells, without the recorded table that stands in for
// it elsewhere; nil when it cannot be read.
func (p *probe) types() map[string]*instance.ServerType {
	what := "zone " + p.scope.Zone.String()
	types, err := p.listTypes(p.ctx)
	switch {
	case err != nil:
		p.Add(cloud.Fault, what, "%s; check --zone and --api-url", err)
		return nil
	case len(types) == 0:
		p.Add(cloud.Fault, what, "it sells no Instances; check --zone")
		return nil
	}
	p.mu.Lock()
	p.offered = types
	p.mu.Unlock()
	p.Add(cloud.Fine, what, "it sells %d types of Instances", len(types))
	return types
}

// offerings judges each type, and each way to make one.
func (p *probe) offerings(types map[string]*instance.ServerType, wanted []cloud.Wanted) {
	stock, stockErr := p.stock()
	if stockErr != nil {
		p.Add(cloud.Unknown, "stock", "could not be read: %s", stockErr)
	}
	judged := map[string]bool{}
	for _, w := range wanted {
		at := w.At + ": "
		st, sold := types[w.Type]
		if !sold {
			p.Add(cloud.Fault, at+"type "+w.Type, "zone %s does not sell it: check the spelling, or whether it was retired", p.scope.Zone)
			continue
		}
		if !judged[w.Type] {
			judged[w.Type] = true
			p.judge(at+"type "+w.Type, st, stock[w.Type])
		}
		what := at + "image " + p.image(w.Options)
		switch err := p.Fit(p.ctx, w.Type, w.Options); {
		case err == nil:
			p.Add(cloud.Fine, what, "it fits type %s%s", w.Type, rootWords(w.Options))
		case errors.Is(err, cloud.ErrInvalid):
			p.Add(cloud.Fault, what, "%s", strings.ReplaceAll(err.Error(), "\n", "; "))
		default:
			p.Add(cloud.Fault, what, "could not be looked up: %s; try again", err)
		}
	}
}

func rootWords(o cloud.Options) string {
	if o.RootVolume == nil {
		return ""
	}
	return fmt.Sprintf(" and its %s root volume", o.RootVolume.Type)
}

func (p *probe) judge(what string, st *instance.ServerType, stock instance.ServerTypesAvailability) {
	switch {
	case st.EndOfService:
		p.Add(cloud.Doubt, what, "Scaleway is about to retire it: plan for another type")
	case stock == instance.ServerTypesAvailabilityShortage:
		p.Add(cloud.Doubt, what, "it is out of stock now: Creates will fail until it is back")
	case stock == instance.ServerTypesAvailabilityScarce:
		p.Add(cloud.Doubt, what, "little of it is left in stock")
	default:
		p.Add(cloud.Fine, what, "the zone sells it")
	}
}

// stock reads how much of each type there is, all pages of it.
func (p *probe) stock() (map[string]instance.ServerTypesAvailability, error) {
	resp, err := p.api.GetServerTypesAvailability(&instance.GetServerTypesAvailabilityRequest{
		Zone: p.scope.Zone, PerPage: new(uint32(maxPageSize)),
	}, scw.WithContext(p.ctx), scw.WithAllPages())
	if err != nil {
		return nil, scaleway.Explain(err)
	}
	stock := make(map[string]instance.ServerTypesAvailability, len(resp.Servers))
	for name, s := range resp.Servers {
		if s != nil {
			stock[name] = s.Availability
		}
	}
	return stock, nil
}

// quota compares what is offered of each type with what the organization may
// have.
func (p *probe) quota(organization string, wanted []cloud.Wanted) {
	const what = "quota"
	if organization == "" {
		p.Add(cloud.Unknown, what, "cannot be read without the project's organization; see Organization > Quotas in the console")
		return
	}
	counts := map[string]int{}
	for _, w := range wanted {
		counts["cp_servers_type_"+strings.ReplaceAll(w.Type, "-", "_")] += w.Count
	}
	names := slices.Sorted(maps.Keys(counts))
	resp, err := iam.NewAPI(p.client).ListQuota(&iam.ListQuotaRequest{
		OrganizationID: organization, QuotumNames: names, PageSize: new(uint32(maxPageSize)),
	}, scw.WithContext(p.ctx), scw.WithAllPages())
	if err != nil {
		p.Add(cloud.Unknown, what, "could not be read: %s; see Organization > Quotas in the console", scaleway.Explain(err))
		return
	}
	limits := map[string]uint64{}
	for _, q := range resp.Quota {
		if limit := limitIn(q, p.scope.Zone); limit != nil {
			limits[q.Name] = *limit
		}
	}
	for _, name := range names {
		limit, known := limits[name]
		switch {
		case !known:
			p.Add(cloud.Unknown, what+" "+name, "the API names no limit")
		case uint64(counts[name]) > limit:
			p.Add(cloud.Doubt, what+" "+name, "%d, but %d are offered: ask for more in the console, or offer fewer", limit, counts[name])
		default:
			p.Add(cloud.Fine, what+" "+name, "%d for the %d that are offered; what else uses it is not counted here", limit, counts[name])
		}
	}
}

// limitIn is the limit that holds in the zone, nil for none.
func limitIn(q *iam.Quotum, zone scw.Zone) *uint64 {
	if q == nil {
		return nil
	}
	region, err := zone.Region()
	if err != nil {
		return nil
	}
	for _, l := range q.Limits {
		if l == nil {
			continue
		}
		elsewhere := l.Zone != nil && *l.Zone != zone || l.Region != nil && *l.Region != region
		if !elsewhere {
			return l.Limit
		}
	}
	return nil
}
