package instances

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	account "github.com/scaleway/scaleway-sdk-go/api/account/v3"
	block "github.com/scaleway/scaleway-sdk-go/api/block/v1"
	"github.com/scaleway/scaleway-sdk-go/api/iam/v1alpha1"
	"github.com/scaleway/scaleway-sdk-go/api/instance/v1"
	"github.com/scaleway/scaleway-sdk-go/api/vpc/v2"
	"github.com/scaleway/scaleway-sdk-go/scw"

	"bigfleet-providers/provider/internal/cloud"
	"bigfleet-providers/provider/internal/cloud/scaleway"
)

var _ cloud.Prober = (*Cloud)(nil)

// fresh ends what is said of a refusal: permissions spread slowly.
const fresh = " (a new key or policy may take two minutes to hold)"

// Access implements cloud.Prober.
func (c *Cloud) Access(ctx context.Context) error {
	_, err := c.page(ctx, nil, 1, 1)
	switch {
	case scaleway.Unauthenticated(err):
		return fmt.Errorf("%w; check SCW_ACCESS_KEY and SCW_SECRET_KEY: both of one API key that is neither expired nor deleted%s", err, fresh)
	case errors.Is(err, cloud.ErrDenied):
		return fmt.Errorf("%w; the key is known, but may not list Instances of project %s: grant its application InstancesFullAccess there%s", err, c.project, fresh)
	}
	return err
}

// Probe implements cloud.Prober.
func (c *Cloud) Probe(ctx context.Context, wanted []cloud.Wanted) []cloud.Finding {
	p := &probe{Cloud: c, ctx: ctx}
	admitted := p.credentials()
	organization := ""
	if admitted {
		organization = p.readProject()
		p.blockStorage()
		p.add(cloud.Unknown, "permission to create and delete", "reading cannot tell; the key needs %s on project %s", permissionSets(wanted), c.project)
	}
	if types := p.types(); types != nil {
		p.offerings(types, wanted)
	}
	if admitted {
		p.named(wanted)
		p.quota(organization, wanted)
	}
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
	const what, list = "credentials", "Instances"
	err := p.Access(p.ctx)
	switch {
	case err == nil:
		p.add(cloud.Fine, what, "the API knows the key")
		p.add(cloud.Fine, list, "the key may list them in zone %s", p.zone)
	case scaleway.Unauthenticated(err):
		p.add(cloud.Fault, what, "%s", err)
		return false
	case errors.Is(err, cloud.ErrDenied):
		p.add(cloud.Fine, what, "the API knows the key")
		p.add(cloud.Fault, list, "%s", err)
	case errors.Is(err, cloud.ErrNotFound):
		p.add(cloud.Fault, list, "%s; is zone %s one that has Instances? check --zone and --api-url", err, p.zone)
	default:
		p.add(cloud.Fault, list, "%s; check --api-url, proxy and firewall, then try again", err)
		return false
	}
	return true
}

// readProject returns the project's organization, "" when it cannot be read.
func (p *probe) readProject() string {
	what := "project " + p.project
	project, err := account.NewProjectAPI(p.client).GetProject(&account.ProjectAPIGetProjectRequest{ProjectID: p.project}, scw.WithContext(p.ctx))
	switch err = scaleway.Explain(err); {
	case err == nil:
		p.add(cloud.Fine, what, "it is there (%q)", project.Name)
		return project.OrganizationID
	case errors.Is(err, cloud.ErrNotFound):
		p.add(cloud.Fault, what, "%s; check SCW_DEFAULT_PROJECT_ID", err)
	case errors.Is(err, cloud.ErrDenied):
		p.add(cloud.Unknown, what, "the key may not read it, and need not (ProjectReadOnly); should it not exist, every order is refused: %s", err)
	default:
		p.add(cloud.Unknown, what, "could not be read: %s", err)
	}
	return ""
}

func (p *probe) blockStorage() {
	const what = "Block Storage"
	err := p.guard.Do(p.client, func() error {
		_, err := p.block.ListVolumes(&block.ListVolumesRequest{Zone: p.zone, ProjectID: &p.project, PageSize: new(uint32(1))}, scw.WithContext(p.ctx))
		return err
	})
	switch err = scaleway.Explain(err); {
	case err == nil:
		p.add(cloud.Fine, what, "the key may list volumes")
	case errors.Is(err, cloud.ErrDenied):
		p.add(cloud.Fault, what, "%s; grant BlockStorageFullAccess: without it every Delete leaves a volume that bills", err)
	default:
		p.add(cloud.Fault, what, "volumes cannot be listed: %s; try again", err)
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
		case err == nil && project != p.project:
			p.add(cloud.Fault, what, "it is in project %s, but servers are made in %s", project, p.project)
		case err == nil:
			p.add(cloud.Fine, what, "it is there")
		case errors.Is(err, cloud.ErrNotFound):
			p.add(cloud.Fault, what, "%s; is it in another zone, region or project?", err)
		case errors.Is(err, cloud.ErrDenied):
			p.add(cloud.Fault, what, "%s; the key may not read it, so it may not use it either", err)
		default:
			p.add(cloud.Fault, what, "could not be read: %s; try again", err)
		}
	}
	for _, w := range wanted {
		o := w.Options
		look("security_group_id", o.SecurityGroup, func() (string, error) {
			resp, err := p.api.GetSecurityGroup(&instance.GetSecurityGroupRequest{Zone: p.zone, SecurityGroupID: o.SecurityGroup}, scw.WithContext(p.ctx))
			if err != nil {
				return "", err
			}
			if resp.SecurityGroup == nil {
				return "", scaleway.ErrEmptyAnswer
			}
			return resp.SecurityGroup.Project, nil
		})
		look("placement_group_id", o.PlacementGroup, func() (string, error) {
			resp, err := p.api.GetPlacementGroup(&instance.GetPlacementGroupRequest{Zone: p.zone, PlacementGroupID: o.PlacementGroup}, scw.WithContext(p.ctx))
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
				region, err := p.zone.Region()
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
	what := "zone " + p.zone.String()
	types, err := p.listTypes(p.ctx)
	switch {
	case err != nil:
		p.add(cloud.Fault, what, "%s; check --zone and --api-url", err)
		return nil
	case len(types) == 0:
		p.add(cloud.Fault, what, "it sells no Instances; check --zone")
		return nil
	}
	p.mu.Lock()
	p.offered = types
	p.mu.Unlock()
	p.add(cloud.Fine, what, "it sells %d types of Instances", len(types))
	return types
}

// offerings judges each type, and each way to make one.
func (p *probe) offerings(types map[string]*instance.ServerType, wanted []cloud.Wanted) {
	stock, stockErr := p.stock()
	if stockErr != nil {
		p.add(cloud.Unknown, "stock", "could not be read: %s", stockErr)
	}
	judged := map[string]bool{}
	for _, w := range wanted {
		at := w.At + ": "
		st, sold := types[w.Type]
		if !sold {
			p.add(cloud.Fault, at+"type "+w.Type, "zone %s does not sell it: check the spelling, or whether it was retired", p.zone)
			continue
		}
		if !judged[w.Type] {
			judged[w.Type] = true
			p.judge(at+"type "+w.Type, st, stock[w.Type])
		}
		what := at + "image " + p.image(w.Options)
		switch err := p.Fit(p.ctx, w.Type, w.Options); {
		case err == nil:
			p.add(cloud.Fine, what, "it fits type %s%s", w.Type, rootWords(w.Options))
		case errors.Is(err, cloud.ErrInvalid):
			p.add(cloud.Fault, what, "%s", strings.ReplaceAll(err.Error(), "\n", "; "))
		default:
			p.add(cloud.Fault, what, "could not be looked up: %s; try again", err)
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
		p.add(cloud.Doubt, what, "Scaleway is about to retire it: plan for another type")
	case stock == instance.ServerTypesAvailabilityShortage:
		p.add(cloud.Doubt, what, "it is out of stock now: Creates will fail until it is back")
	case stock == instance.ServerTypesAvailabilityScarce:
		p.add(cloud.Doubt, what, "little of it is left in stock")
	default:
		p.add(cloud.Fine, what, "the zone sells it")
	}
}

// stock reads how much of each type there is, all pages of it.
func (p *probe) stock() (map[string]instance.ServerTypesAvailability, error) {
	resp, err := p.api.GetServerTypesAvailability(&instance.GetServerTypesAvailabilityRequest{
		Zone: p.zone, PerPage: new(uint32(maxPageSize)),
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
		p.add(cloud.Unknown, what, "cannot be read without the project's organization; see Organization > Quotas in the console")
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
		p.add(cloud.Unknown, what, "could not be read: %s; see Organization > Quotas in the console", scaleway.Explain(err))
		return
	}
	limits := map[string]uint64{}
	for _, q := range resp.Quota {
		if limit := limitIn(q, p.zone); limit != nil {
			limits[q.Name] = *limit
		}
	}
	for _, name := range names {
		limit, known := limits[name]
		switch {
		case !known:
			p.add(cloud.Unknown, what+" "+name, "the API names no limit")
		case uint64(counts[name]) > limit:
			p.add(cloud.Doubt, what+" "+name, "%d, but %d are offered: ask for more in the console, or offer fewer", limit, counts[name])
		default:
			p.add(cloud.Fine, what+" "+name, "%d for the %d that are offered; what else uses it is not counted here", limit, counts[name])
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
