package fakecloud

import (
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
)

// server finds the server that the path names.
func (c *Cloud) server(q *request) (*server, error) {
	s := c.inv.servers[q.id]
	if s == nil || s.zone != q.zone || !q.caller.sees(s.project) {
		return nil, notFound(resServer, q.id)
	}
	return s, nil
}

// project resolves the project that a create names: an organization stands for
// its default project.
func (q *request) project(project, organization string) (string, error) {
	switch {
	case project == "" && organization == "":
		return "", invalid(required("project"))
	case project != "" && organization != "":
		return "", invalid(constraint("project", "give either project or organization"))
	case project == "":
		project = organization
	}
	if uuid.Validate(project) != nil {
		return "", invalid(errorDetail{ArgumentName: "project", Reason: "format", HelpMessage: "value must be a valid UUID"})
	}
	if !q.caller.sees(project) {
		return "", permissionDenied("project", "read")
	}
	return project, nil
}

func (c *Cloud) getServer(q *request) (*response, error) {
	s, err := c.server(q)
	if err != nil {
		return nil, err
	}
	if c.getLag > 0 && time.Since(s.created) < c.getLag {
		return nil, notFound(resServer, q.id)
	}
	return ok(c.serverEnvelope(s))
}

func (c *Cloud) listServers(q *request) (*response, error) {
	w := pageWindow(q.query, "per_page", 50)
	w.shift = c.pageShift
	list := c.inv.in(q.zone).servers.withTags(commaList(q.query, "tags"))
	keep := c.serverFilter(q)
	seq := newestFirst(list, keep)
	if q.query.Get("order") == "creation_date_asc" {
		seq = oldestFirst(list, keep)
	}
	found, total := cut(w, seq)
	body := struct {
		Servers []serverBody `json:"servers"`
	}{[]serverBody{}}
	for _, s := range found {
		body.Servers = append(body.Servers, c.serverView(s))
	}
	return &response{status: http.StatusOK, header: w.headers(q.pagePath(), q.query, total), body: body}, nil
}

// serverFilter is every filter of ListServers but tags. Without a state all
// states are listed, whatever the SDK's comment says.
func (c *Cloud) serverFilter(q *request) func(*server) bool {
	get := q.query.Get
	ids := commaList(q.query, "servers")
	networks := append(commaList(q.query, "private_networks"), commaList(q.query, "private_network")...)
	withIP, _ := netip.ParseAddr(get("with_ip")) // one that does not parse matches no server
	return func(s *server) bool {
		onNetwork := func(n *privateNIC) bool { return slices.Contains(networks, n.network.id) }
		hasMAC := func(n *privateNIC) bool { return n.mac == get("private_nic_mac_address") }
		hasIP := func(a *address) bool { return a.ip == withIP }
		switch {
		case !q.caller.visible(&s.object, get("project"), get("organization"), get("name")),
			c.listLag > 0 && time.Since(s.created) < c.listLag,
			get("commercial_type") != "" && s.product.name != get("commercial_type"),
			get("state") != "" && s.state != get("state"),
			len(ids) > 0 && !slices.Contains(ids, s.id),
			len(networks) > 0 && !slices.ContainsFunc(s.nics, onNetwork),
			get("private_nic_mac_address") != "" && !slices.ContainsFunc(s.nics, hasMAC),
			get("without_ip") == "true" && len(s.addresses()) > 0,
			get("with_ip") != "" && !slices.ContainsFunc(s.addresses(), hasIP):
			return false
		}
		return true
	}
}

// deleteServer needs a stopped server, protected or not, and keeps every
// volume of it.
func (c *Cloud) deleteServer(q *request) (*response, error) {
	s, err := c.server(q)
	switch {
	case err != nil:
		return nil, err
	case s.state == StateLocked:
		return nil, locked(s.id)
	case s.state != StateStopped && c.switches.legacy:
		return nil, legacyInvalid("instance should be powered off")
	case s.state != StateStopped:
		return nil, stillInUse("instance should be powered off")
	}
	c.haltGuest(s)
	c.removeServer(s, false)
	return noContent()
}

type taskBody struct {
	ID           string  `json:"id"`
	Description  string  `json:"description"`
	Status       string  `json:"status"`
	HrefFrom     string  `json:"href_from"`
	HrefResult   string  `json:"href_result"`
	StartedAt    stamp   `json:"started_at"`
	TerminatedAt *string `json:"terminated_at"`
	Progress     int     `json:"progress"`
	Zone         string  `json:"zone"`
}

var actionVerbs = map[string]string{
	"poweron": "Start", "reboot": "Start", "poweroff": "Stop", "stop_in_place": "Stop", "terminate": "Delete",
}

// serverAction answers with the dummy task that the API gives since mid-2026:
// only the server itself tells how the action goes.
func (c *Cloud) serverAction(q *request) (*response, error) {
	action := actionIn(q.body)
	verb := actionVerbs[action]
	if verb == "" {
		verb = "Write"
	}
	if err := q.caller.require(permission{"Instances", "Server", verb}); err != nil {
		return nil, err
	}
	s, err := c.server(q)
	if err != nil {
		return nil, err
	}
	if action == "" {
		return nil, invalid(required("action"))
	}
	if err := c.act(s, action, q.outcome); err != nil {
		return nil, err
	}
	return &response{status: http.StatusAccepted, body: struct {
		Task taskBody `json:"task"`
	}{taskBody{
		ID: uuid.Nil.String(), Description: "fake task", Status: "pending",
		HrefFrom: "/servers/" + q.id + "/action", HrefResult: "/servers/" + q.id,
		StartedAt: stamp(time.Now()), Zone: q.zone,
	}}}, nil
}

func (c *Cloud) listServerActions(q *request) (*response, error) {
	s, err := c.server(q)
	if err != nil {
		return nil, err
	}
	return ok(struct {
		Actions []string `json:"actions"`
	}{s.allowedActions()})
}

// hostname is the slug of a name.
func hostname(name string) string {
	return strings.NewReplacer("_", "-", " ", "-").Replace(strings.ToLower(name))
}
