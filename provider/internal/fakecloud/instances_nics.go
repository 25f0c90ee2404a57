package fakecloud

import (
	"net/http"
	"slices"
	"time"

	"github.com/google/uuid"
)

// maxNICs is the quota of private NICs an instance.
const maxNICs = 8

// privateNIC joins a server to a Private Network of its region.
type privateNIC struct {
	id       string
	network  *privateNetwork
	mac      string
	tags     []string
	ipamIDs  []string
	created  time.Time
	modified time.Time
}

type nicBody struct {
	ID        string   `json:"id"`
	NetworkID string   `json:"private_network_id"`
	ServerID  string   `json:"server_id"`
	MAC       string   `json:"mac_address"`
	State     string   `json:"state"`
	Created   stamp    `json:"creation_date"`
	Modified  stamp    `json:"modification_date"`
	Zone      string   `json:"zone"`
	Tags      []string `json:"tags"`
	IPAMIDs   []string `json:"ipam_ip_ids"`
}

type nicEnvelope struct {
	NIC nicBody `json:"private_nic"`
}

func nicView(n *privateNIC, s *server) nicBody {
	return nicBody{
		ID: n.id, NetworkID: n.network.id, ServerID: s.id, MAC: n.mac, State: "available",
		Created: stamp(n.created), Modified: stamp(n.modified), Zone: s.zone, Tags: n.tags, IPAMIDs: n.ipamIDs,
	}
}

func (c *Cloud) nic(q *request) (*server, *privateNIC, error) {
	s, err := c.server(q)
	if err != nil {
		return nil, nil, err
	}
	id := q.PathValue("nic")
	i := slices.IndexFunc(s.nics, func(n *privateNIC) bool { return n.id == id })
	if i < 0 {
		return nil, nil, notFound(resNIC, id)
	}
	return s, s.nics[i], nil
}

func (c *Cloud) listNICs(q *request) (*response, error) {
	s, err := c.server(q)
	if err != nil {
		return nil, err
	}
	tags := commaList(q.query, "tags")
	w := pageWindow(q.query, "per_page", 50)
	found, total := cut(w, oldestFirst(s.nics, func(n *privateNIC) bool { return containsAll(n.tags, tags) }))
	body := struct {
		NICs []nicBody `json:"private_nics"`
	}{[]nicBody{}}
	for _, n := range found {
		body.NICs = append(body.NICs, nicView(n, s))
	}
	return &response{status: http.StatusOK, header: w.headers(q.pagePath(), q.query, total), body: body}, nil
}

func (c *Cloud) createNIC(q *request) (*response, error) {
	s, err := c.server(q)
	if err != nil {
		return nil, err
	}
	var in struct {
		NetworkID string `json:"private_network_id"`
		Tags      []string
		IPAMIDs   []string `json:"ipam_ip_ids"`
	}
	if err := q.decode(&in); err != nil {
		return nil, err
	}
	switch {
	case in.NetworkID == "":
		return nil, invalid(required("private_network_id"))
	case uuid.Validate(in.NetworkID) != nil:
		return nil, invalid(errorDetail{ArgumentName: "private_network_id", Reason: "format", HelpMessage: "value must be a valid UUID"})
	case len(s.nics) >= maxNICs:
		return nil, quotaExceeded("instance_private_nics", maxNICs, len(s.nics))
	}
	network, err := c.privateNetwork(q, regionOf(s.zone), in.NetworkID)
	if err != nil {
		return nil, err
	}
	if len(in.IPAMIDs) == 0 {
		in.IPAMIDs = []string{uuid.NewString(), uuid.NewString()}
	}
	now := time.Now()
	n := &privateNIC{
		id: uuid.NewString(), network: network, mac: randomMAC("02:00:00"),
		tags: nonNil(in.Tags), ipamIDs: in.IPAMIDs, created: now, modified: now,
	}
	network.users++
	s.nics = append(s.nics, n)
	return created(nicEnvelope{nicView(n, s)})
}

func (c *Cloud) getNIC(q *request) (*response, error) {
	s, n, err := c.nic(q)
	if err != nil {
		return nil, err
	}
	return ok(nicEnvelope{nicView(n, s)})
}

// updateNIC answers without an envelope: the SDK decodes it so.
func (c *Cloud) updateNIC(q *request) (*response, error) {
	s, n, err := c.nic(q)
	if err != nil {
		return nil, err
	}
	var in struct{ Tags *[]string }
	if err := q.decode(&in); err != nil {
		return nil, err
	}
	if in.Tags != nil {
		n.tags, n.modified = nonNil(*in.Tags), time.Now()
	}
	return ok(nicView(n, s))
}

// deleteNIC works while it is attached and the server runs.
func (c *Cloud) deleteNIC(q *request) (*response, error) {
	s, n, err := c.nic(q)
	if err != nil {
		return nil, err
	}
	s.nics = slices.DeleteFunc(s.nics, func(x *privateNIC) bool { return x == n })
	c.leave(n)
	return noContent()
}

// leave frees the network of a NIC that is gone, after the time for which the
// network still counts as used.
func (c *Cloud) leave(n *privateNIC) {
	c.after(c.delays.NetworkRelease, func() { n.network.users-- })
}

// deleteInterface is the same call of Instances v2alpha1, which wants the
// interface detached first. There is nothing here that detaches one, so that
// it is always refused.
func (c *Cloud) deleteInterface(q *request) (*response, error) {
	for _, s := range c.inv.in(q.zone).servers.all {
		attached := slices.ContainsFunc(s.nics, func(n *privateNIC) bool { return n.id == q.id })
		if attached && q.caller.sees(s.project) {
			return nil, precondition(http.StatusPreconditionFailed, "resource_still_in_use",
				"Can't delete a private network interface attached to a server")
		}
	}
	return nil, notFound("private_network_interface", q.id)
}
