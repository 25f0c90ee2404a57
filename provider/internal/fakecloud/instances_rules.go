package fakecloud

import (
	"net/http"
	"net/netip"
	"slices"

	"github.com/google/uuid"
)

// maxRules is the quota of rules a security group.
const maxRules = 500

// groupRule is one rule of a security group; positions count from 1.
type groupRule struct {
	id       string
	fields   ruleFields
	editable bool
}

type ruleFields struct {
	Protocol     string       `json:"protocol"`
	Direction    string       `json:"direction"`
	Action       string       `json:"action"`
	IPRange      netip.Prefix `json:"ip_range"`
	DestPortFrom *uint32      `json:"dest_port_from"`
	DestPortTo   *uint32      `json:"dest_port_to"`
}

type groupRuleBody struct {
	ID string `json:"id"`
	ruleFields
	Position int    `json:"position"`
	Editable bool   `json:"editable"`
	Zone     string `json:"zone"`
}

type groupRuleEnvelope struct {
	Rule groupRuleBody `json:"rule"`
}

func (f ruleFields) check() error {
	var faults []errorDetail
	for _, field := range []struct {
		name, value string
		known       []string
	}{
		{"protocol", f.Protocol, []string{"TCP", "UDP", "ICMP", "ANY"}},
		{"direction", f.Direction, []string{"inbound", "outbound"}},
		{"action", f.Action, []string{"accept", "drop"}},
	} {
		switch {
		case field.value == "":
			faults = append(faults, required(field.name))
		case !slices.Contains(field.known, field.value):
			faults = append(faults, constraint(field.name, "not a valid value"))
		}
	}
	if !f.IPRange.IsValid() {
		faults = append(faults, required("ip_range"))
	}
	if f.DestPortFrom != nil && f.DestPortTo != nil && *f.DestPortTo < *f.DestPortFrom {
		faults = append(faults, constraint("dest_port_to", "must be at least dest_port_from"))
	}
	if faults != nil {
		return invalid(faults...)
	}
	return nil
}

func (g *securityGroup) ruleView(r *groupRule) groupRuleBody {
	position := 1 + slices.IndexFunc(g.allRules(), func(x *groupRule) bool { return x.id == r.id })
	return groupRuleBody{ID: r.id, ruleFields: r.fields, Position: position, Editable: r.editable, Zone: g.zone}
}

// allRules are the rules in the order in which they apply.
func (g *securityGroup) allRules() []*groupRule {
	if !g.mailBlocked {
		return g.rules
	}
	return append(defaultRules(), g.rules...)
}

// defaultRules block mail; they are listed first and stay as they are.
func defaultRules() []*groupRule {
	var rules []*groupRule
	for _, port16 := range []uint16{25, 465, 587} {
		port := uint32(port16)
		for _, from := range []string{"0.0.0.0/0", "::/0"} {
			rules = append(rules, &groupRule{id: digestID(port16, "mail rule", from), fields: ruleFields{
				Protocol: "TCP", Direction: "outbound", Action: "drop", IPRange: netip.MustParsePrefix(from), DestPortFrom: &port,
			}})
		}
	}
	return rules
}

func groupRules(q *request, g *securityGroup) (*response, error) {
	w := pageWindow(q.query, "per_page", 50)
	page, total := cut(w, slices.Values(g.allRules()))
	views := []groupRuleBody{}
	for _, r := range page {
		views = append(views, g.ruleView(r))
	}
	return &response{status: http.StatusOK, header: w.headers(q.pagePath(), q.query, total), body: map[string]any{"rules": views}}, nil
}

func (c *Cloud) listDefaultRules(q *request) (*response, error) {
	return groupRules(q, &securityGroup{object: object{zone: q.zone}, mailBlocked: true})
}

func (c *Cloud) listRulesOfGroup(q *request) (*response, error) {
	g, err := c.group(q, q.id)
	if err != nil {
		return nil, err
	}
	return groupRules(q, g)
}

func (c *Cloud) groupRule(q *request) (*securityGroup, *groupRule, error) {
	g, err := c.group(q, q.id)
	if err != nil {
		return nil, nil, err
	}
	id := q.PathValue("rule")
	i := slices.IndexFunc(g.rules, func(r *groupRule) bool { return r.id == id })
	if i < 0 {
		return nil, nil, notFound(resSecurityRule, id)
	}
	return g, g.rules[i], nil
}

func (c *Cloud) createGroupRule(q *request) (*response, error) {
	g, err := c.group(q, q.id)
	if err != nil {
		return nil, err
	}
	var in ruleFields
	if err := q.decode(&in); err != nil {
		return nil, err
	}
	if err := in.check(); err != nil {
		return nil, err
	}
	if len(g.rules) >= maxRules {
		return nil, quotaExceeded("instance_security_group_rules", maxRules, len(g.rules))
	}
	r := &groupRule{id: uuid.NewString(), fields: in, editable: true}
	g.rules = append(g.rules, r)
	return created(groupRuleEnvelope{g.ruleView(r)})
}

func (c *Cloud) getGroupRule(q *request) (*response, error) {
	g, r, err := c.groupRule(q)
	if err != nil {
		return nil, err
	}
	return ok(groupRuleEnvelope{g.ruleView(r)})
}

func (c *Cloud) updateGroupRule(q *request) (*response, error) {
	g, r, err := c.groupRule(q)
	if err != nil {
		return nil, err
	}
	in := r.fields // what the request leaves out stays; decoding must not write through to it
	for _, port := range []**uint32{&in.DestPortFrom, &in.DestPortTo} {
		if *port != nil {
			*port = new(**port)
		}
	}
	if err := q.decode(&in); err != nil {
		return nil, err
	}
	if err := in.check(); err != nil {
		return nil, err
	}
	r.fields = in
	return ok(groupRuleEnvelope{g.ruleView(r)})
}

func (c *Cloud) deleteGroupRule(q *request) (*response, error) {
	g, r, err := c.groupRule(q)
	if err != nil {
		return nil, err
	}
	g.rules = slices.DeleteFunc(g.rules, func(x *groupRule) bool { return x == r })
	return noContent()
}

// setGroupRules replaces all rules that can be edited; the built-in ones in
// the request are passed over.
func (c *Cloud) setGroupRules(q *request) (*response, error) {
	g, err := c.group(q, q.id)
	if err != nil {
		return nil, err
	}
	var in struct {
		Rules []struct {
			ruleFields
			Editable *bool
		}
	}
	if err := q.decode(&in); err != nil {
		return nil, err
	}
	var rules []*groupRule
	for _, spec := range in.Rules {
		if spec.Editable != nil && !*spec.Editable {
			continue
		}
		if err := spec.check(); err != nil {
			return nil, err
		}
		rules = append(rules, &groupRule{id: uuid.NewString(), fields: spec.ruleFields, editable: true})
	}
	if len(rules) > maxRules {
		return nil, quotaExceeded("instance_security_group_rules", maxRules, len(rules))
	}
	g.rules = rules
	return c.listRulesOfGroup(q)
}
