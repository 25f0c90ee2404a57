package fakecloud

import (
	"cmp"
	"maps"
	"math"
	"net/http"
	"slices"
	"strings"
)

// switchesView is every switch as it stands.
type switchesView struct {
	Scale          float64           `json:"scale"`
	Delays         map[string]string `json:"delays"`
	ListLag        string            `json:"list_lag"`
	GetLag         string            `json:"get_lag"`
	PageShift      int               `json:"page_shift"`
	KeyFlap        string            `json:"key_flap"`
	Stock          []stockView       `json:"stock"`
	Quotas         map[string]int    `json:"quotas"`
	QuotaBody      QuotaBody         `json:"quota_body"`
	LegacyRefusals bool              `json:"legacy_refusals"`
	MetadataBusy   int               `json:"metadata_busy"`
}

type stockView struct {
	Zone  string `json:"zone"`
	Type  string `json:"type"`
	Stock Stock  `json:"stock"`
}

func (c *Cloud) controlShowSwitches(*http.Request) (int, any, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	v := switchesView{
		Scale: c.scale, Delays: map[string]string{}, ListLag: c.listLag.String(), GetLag: c.getLag.String(),
		PageShift: c.pageShift, KeyFlap: c.keyFlap.String(), Stock: []stockView{}, Quotas: maps.Clone(c.quotas),
		QuotaBody: c.quotaBody, LegacyRefusals: c.legacy, MetadataBusy: c.busyMeta,
	}
	for _, f := range c.delays.fields() {
		v.Delays[f.name] = f.value.String()
	}
	for at, stock := range c.stock {
		v.Stock = append(v.Stock, stockView{at.zone, at.name, stock})
	}
	slices.SortFunc(v.Stock, func(a, b stockView) int {
		return cmp.Or(strings.Compare(a.Zone, b.Zone), strings.Compare(a.Type, b.Type))
	})
	return http.StatusOK, v, nil
}

// controlSetSwitches changes the switches that the body names, and servers by
// hand; a mistake in any of it changes nothing.
func (c *Cloud) controlSetSwitches(r *http.Request) (int, any, error) {
	s, err := controlScript(r)
	if err != nil {
		return 0, nil, err
	}
	if err := c.applySwitches(s); err != nil {
		return 0, nil, err
	}
	return c.controlShowSwitches(r)
}

func (c *Cloud) applySwitches(s *script) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	next := c.switches
	next.stock, next.quotas = maps.Clone(c.stock), maps.Clone(c.quotas)
	s.read("scale", &next.scale)
	if next.scale < 0 || math.IsInf(next.scale, 0) || math.IsNaN(next.scale) {
		s.refuse("scale", "%g: must be a number of at least 0", next.scale)
	}
	s.duration("list_lag", &next.listLag)
	s.duration("get_lag", &next.getLag)
	s.duration("key_flap", &next.keyFlap)
	s.read("page_shift", &next.pageShift)
	s.read("legacy_refusals", &next.legacy)
	s.read("metadata_busy", &next.busyMeta)
	if body := s.oneOf("quota_body", string(QuotaBodyFlat), string(QuotaBodyStandard), string(QuotaBodyLegacy)); body != "" {
		next.quotaBody = QuotaBody(body)
	}
	if in := s.object("delays"); in != nil {
		for _, f := range next.delays.fields() {
			in.duration(f.name, f.value)
		}
		in.end()
	}
	c.readStock(s, next.stock)
	c.readQuotas(s, next.quotas)
	edits := c.readServers(s)
	s.end()
	if err := s.err(); err != nil {
		return err
	}
	c.switches = next
	for _, edit := range edits {
		edit()
	}
	return nil
}

func (c *Cloud) readStock(s *script, into map[zoneType]Stock) {
	for _, in := range s.list("stock") {
		at := zoneType{in.text("zone"), in.text("type")}
		_, metal := findMetalOffer(at.zone, func(o metalOffer) bool { return o.name == at.name })
		if !metal && c.types.find(at.zone, at.name) == nil {
			in.refuse("type", "%q is not sold in zone %q", at.name, at.zone)
		}
		if !in.has("stock") {
			in.refuse("stock", "required")
		}
		into[at] = Stock(in.oneOf("stock", string(Available), string(Scarce), string(Shortage)))
		in.end()
	}
}

func (c *Cloud) readQuotas(s *script, into map[string]int) {
	var quotas map[string]*int
	s.read("quotas", &quotas)
	for name, n := range quotas {
		switch {
		case !slices.ContainsFunc(c.types.all, func(p *product) bool { return p.name == name }):
			s.refuse("quotas."+name, "there is no such type")
		case n == nil || *n < 0:
			delete(into, name)
		default:
			into[name] = *n
		}
	}
}

// readServers returns what to do to servers once everything is found good.
func (c *Cloud) readServers(s *script) (edits []func()) {
	states := []string{StateRunning, StateStopped, StateStoppedInPlace, StateStarting, StateStopping, StateLocked}
	for _, in := range s.list("servers") {
		id := in.text("id")
		if metal := c.inv.metal[id]; metal != nil {
			if status := in.oneOf("state", metalStatuses...); status != "" {
				edits = append(edits, func() { c.forceMetal(metal, status) })
			}
			var protected bool
			if in.read("protected", &protected) {
				edits = append(edits, func() { metal.protected = protected })
			}
			in.end()
			continue
		}
		server := c.inv.servers[id]
		if server == nil {
			in.refuse("id", "there is no server %q", id)
			in.fields = nil
			continue
		}
		state, detail := in.oneOf("state", states...), in.text("detail")
		if state != "" {
			edits = append(edits, func() { c.forceState(server, state, detail) })
		} else if detail != "" {
			edits = append(edits, func() { server.detail = detail })
		}
		var protected bool
		if in.read("protected", &protected) {
			edits = append(edits, func() { server.protected = protected })
		}
		var shutdown bool
		in.read("guest_shutdown", &shutdown)
		if shutdown {
			if server.state != StateRunning {
				in.refuse("guest_shutdown", "the server is %q: only a guest that runs shuts down", server.state)
			}
			edits = append(edits, func() { c.guestShutdown(server) })
		}
		in.end()
	}
	return edits
}
