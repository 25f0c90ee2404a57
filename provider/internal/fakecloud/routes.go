package fakecloud

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
)

// The names of the routes that tests script most, for Fault.Route, Call.Route
// and Requests. Any other route is named in the same way, by its verb and
// path. v1alpha1 of Block goes under the names of v1.
const (
	instances = "/instance/v1/zones/{zone}"
	blocks    = "/block/v1/zones/{zone}"
	vpcs      = "/vpc/v2/regions/{region}"
	metal     = "/baremetal/v1/zones/{zone}"
	iam       = "/iam/v1alpha1"
	projects  = "/account/v3/projects"

	RouteCreateServer      = "POST " + instances + "/servers"
	RouteListServers       = "GET " + instances + "/servers"
	RouteGetServer         = "GET " + instances + "/servers/{id}"
	RouteUpdateServer      = "PATCH " + instances + "/servers/{id}"
	RouteDeleteServer      = "DELETE " + instances + "/servers/{id}"
	RouteServerAction      = "POST " + instances + "/servers/{id}/action"
	RouteListUserData      = "GET " + instances + "/servers/{id}/user_data"
	RouteGetUserData       = "GET " + instances + "/servers/{id}/user_data/{key}"
	RouteSetUserData       = "PATCH " + instances + "/servers/{id}/user_data/{key}"
	RouteDeleteUserData    = "DELETE " + instances + "/servers/{id}/user_data/{key}"
	RouteAttachVolume      = "POST " + instances + "/servers/{id}/attach-volume"
	RouteDetachVolume      = "POST " + instances + "/servers/{id}/detach-volume"
	RouteCreatePrivateNIC  = "POST " + instances + "/servers/{id}/private_nics"
	RouteListLocalVolumes  = "GET " + instances + "/volumes"
	RouteGetLocalVolume    = "GET " + instances + "/volumes/{id}"
	RouteUpdateLocalVolume = "PATCH " + instances + "/volumes/{id}"
	RouteDeleteLocalVolume = "DELETE " + instances + "/volumes/{id}"
	RouteCreateIP          = "POST " + instances + "/ips"
	RouteListIPs           = "GET " + instances + "/ips"
	RouteDeleteIP          = "DELETE " + instances + "/ips/{id}"
	RouteListServerTypes   = "GET " + instances + "/products/servers"
	RouteAvailability      = "GET " + instances + "/products/servers/availability"
	RouteListBlockVolumes  = "GET " + blocks + "/volumes"
	RouteCreateBlockVolume = "POST " + blocks + "/volumes"
	RouteGetBlockVolume    = "GET " + blocks + "/volumes/{id}"
	RouteUpdateBlockVolume = "PATCH " + blocks + "/volumes/{id}"
	RouteDeleteBlockVolume = "DELETE " + blocks + "/volumes/{id}"
	RouteListLocalImages   = "GET /marketplace/v2/local-images"
	RouteMetadata          = "GET /metadata"
	RouteListMetal         = "GET " + metal + "/servers"
	RouteCreateMetal       = "POST " + metal + "/servers"
	RouteInstallMetal      = "POST " + metal + "/servers/{id}/install"
	RouteDeleteMetal       = "DELETE " + metal + "/servers/{id}"
	RouteCreateNetwork     = "POST " + vpcs + "/private-networks"
	RouteDeleteNetwork     = "DELETE " + vpcs + "/private-networks/{id}"
	RouteCreateApplication = "POST " + iam + "/applications"
	RouteCreatePolicy      = "POST " + iam + "/policies"
	RouteCreateAPIKey      = "POST " + iam + "/api-keys"
)

// serveRoutes fills the Cloud's mux.
func (c *Cloud) serveRoutes() {
	c.mux, c.routes = http.NewServeMux(), map[string]*route{}
	for _, rt := range routeTable() {
		c.routes[rt.name] = &rt
		serve := func(w http.ResponseWriter, r *http.Request) { c.serve(&rt, w, r) }
		c.mux.HandleFunc(rt.name, serve)
		if strings.Contains(rt.name, blocks) {
			c.mux.HandleFunc(strings.Replace(rt.name, "/v1/", "/v1alpha1/", 1), serve)
		}
	}
	c.serveControl()
	c.mux.HandleFunc("/", c.unknownRoute)
}

func routeTable() []route {
	instance := func(name, object, verb string, h func(*Cloud, *request) (*response, error)) route {
		return route{name: name, permission: permission{"Instances", object, verb}, spaced: true, handle: h}
	}
	block := func(name, object, verb string, h func(*Cloud, *request) (*response, error)) route {
		return route{name: name, permission: permission{"BlockStorage", object, verb}, handle: h}
	}
	open := func(name string, h func(*Cloud, *request) (*response, error)) route {
		return route{name: name, public: true, spaced: strings.Contains(name, instances), handle: h}
	}
	nic, group, placement := instances+"/servers/{id}/private_nics", instances+"/security_groups", instances+"/placement_groups"
	table := []route{
		instance(RouteCreateServer, "Server", "Create", (*Cloud).createServer),
		instance(RouteListServers, "Server", "List", (*Cloud).listServers),
		instance(RouteGetServer, "Server", "Read", (*Cloud).getServer),
		instance(RouteUpdateServer, "Server", "Write", (*Cloud).updateServer),
		instance(RouteDeleteServer, "Server", "Delete", (*Cloud).deleteServer),
		{name: RouteServerAction, permission: anyone, spaced: true, handle: (*Cloud).serverAction},
		instance("GET "+instances+"/servers/{id}/action", "Server", "Read", (*Cloud).listServerActions),
		instance(RouteAttachVolume, "Server", "Write", (*Cloud).attachVolume),
		instance(RouteDetachVolume, "Server", "Write", (*Cloud).detachVolume),
		instance(RouteListUserData, "Server", "Read", (*Cloud).listUserData),
		instance(RouteGetUserData, "Server", "Read", (*Cloud).getUserData),
		instance(RouteSetUserData, "Server", "Write", (*Cloud).setUserData),
		instance(RouteDeleteUserData, "Server", "Write", (*Cloud).deleteUserData),

		instance("GET "+nic, "PrivateNic", "List", (*Cloud).listNICs),
		instance(RouteCreatePrivateNIC, "PrivateNic", "Create", (*Cloud).createNIC),
		instance("GET "+nic+"/{nic}", "PrivateNic", "Read", (*Cloud).getNIC),
		instance("PATCH "+nic+"/{nic}", "PrivateNic", "Write", (*Cloud).updateNIC),
		instance("DELETE "+nic+"/{nic}", "PrivateNic", "Delete", (*Cloud).deleteNIC),

		instance(RouteListIPs, "Ip", "List", (*Cloud).listIPs),
		instance(RouteCreateIP, "Ip", "Create", (*Cloud).createIP),
		instance("GET "+instances+"/ips/{id}", "Ip", "Read", (*Cloud).getIP),
		instance("PATCH "+instances+"/ips/{id}", "Ip", "Write", (*Cloud).updateIP),
		instance(RouteDeleteIP, "Ip", "Delete", (*Cloud).deleteIP),

		instance(RouteListLocalVolumes, "Volume", "List", (*Cloud).listLocalVolumes),
		instance("POST "+instances+"/volumes", "Volume", "Create", (*Cloud).createLocalVolume),
		instance(RouteGetLocalVolume, "Volume", "Read", (*Cloud).getLocalVolume),
		instance(RouteUpdateLocalVolume, "Volume", "Write", (*Cloud).updateLocalVolume),
		instance(RouteDeleteLocalVolume, "Volume", "Delete", (*Cloud).deleteLocalVolume),

		instance("GET "+group, "SecurityGroup", "List", (*Cloud).listGroups),
		instance("POST "+group, "SecurityGroup", "Create", (*Cloud).createGroup),
		instance("GET "+group+"/{id}", "SecurityGroup", "Read", (*Cloud).getGroup),
		instance("PATCH "+group+"/{id}", "SecurityGroup", "Write", (*Cloud).updateGroup),
		instance("DELETE "+group+"/{id}", "SecurityGroup", "Delete", (*Cloud).deleteGroup),
		instance("GET "+group+"/default/rules", "SecurityGroup", "Read", (*Cloud).listDefaultRules),
		instance("GET "+group+"/{id}/rules", "SecurityGroup", "Read", (*Cloud).listRulesOfGroup),
		instance("POST "+group+"/{id}/rules", "SecurityGroup", "Write", (*Cloud).createGroupRule),
		instance("PUT "+group+"/{id}/rules", "SecurityGroup", "Write", (*Cloud).setGroupRules),
		instance("GET "+group+"/{id}/rules/{rule}", "SecurityGroup", "Read", (*Cloud).getGroupRule),
		instance("PATCH "+group+"/{id}/rules/{rule}", "SecurityGroup", "Write", (*Cloud).updateGroupRule),
		instance("DELETE "+group+"/{id}/rules/{rule}", "SecurityGroup", "Write", (*Cloud).deleteGroupRule),

		instance("GET "+placement, "PlacementGroup", "List", (*Cloud).listPlacements),
		instance("POST "+placement, "PlacementGroup", "Create", (*Cloud).createPlacement),
		instance("GET "+placement+"/{id}", "PlacementGroup", "Read", (*Cloud).getPlacement),
		instance("PATCH "+placement+"/{id}", "PlacementGroup", "Write", (*Cloud).updatePlacement),
		instance("DELETE "+placement+"/{id}", "PlacementGroup", "Delete", (*Cloud).deletePlacement),
		instance("GET "+placement+"/{id}/servers", "PlacementGroup", "Read", (*Cloud).listPlacementServers),

		instance("GET "+instances+"/images", "Image", "List", (*Cloud).listImages),
		instance("GET "+instances+"/images/{id}", "Image", "Read", (*Cloud).getImage),
		open(RouteListServerTypes, (*Cloud).listProducts),
		open(RouteAvailability, (*Cloud).listAvailability),

		block(RouteListBlockVolumes, "Volume", "List", (*Cloud).listBlockVolumes),
		block(RouteCreateBlockVolume, "Volume", "Create", (*Cloud).createBlockVolume),
		block(RouteGetBlockVolume, "Volume", "Read", (*Cloud).getBlockVolume),
		block(RouteUpdateBlockVolume, "Volume", "Write", (*Cloud).updateBlockVolume),
		block(RouteDeleteBlockVolume, "Volume", "Delete", (*Cloud).deleteBlockVolume),
		block("GET "+blocks+"/volume-types", "VolumeType", "List", (*Cloud).listBlockTypes),

		block("GET "+blocks+"/snapshots", "Snapshot", "List", (*Cloud).listSnapshots),
		block("POST "+blocks+"/snapshots", "Snapshot", "Create", (*Cloud).createSnapshot),
		block("GET "+blocks+"/snapshots/{id}", "Snapshot", "Read", (*Cloud).getSnapshot),
		block("PATCH "+blocks+"/snapshots/{id}", "Snapshot", "Write", (*Cloud).updateSnapshot),
		block("DELETE "+blocks+"/snapshots/{id}", "Snapshot", "Delete", (*Cloud).deleteSnapshot),

		open(RouteListLocalImages, (*Cloud).listLocalImages),
		open("GET /marketplace/v2/local-images/{id}", (*Cloud).getLocalImage),
		open("GET /marketplace/v2/images", (*Cloud).listMarketplaceImages),
		open("GET /marketplace/v2/images/{id}", (*Cloud).getMarketplaceImage),
		open(RouteMetadata, (*Cloud).metadata),
	}
	return slices.Concat(table, metalRoutes(), organizationRoutes())
}

// metalRoutes are those of Elastic Metal.
func metalRoutes() []route {
	in := func(name, object, verb string, h func(*Cloud, *request) (*response, error)) route {
		return route{name: name, permission: permission{"ElasticMetal", object, verb}, handle: h}
	}
	return []route{
		in("GET "+metal+"/offers", "Offer", "List", (*Cloud).listMetalOffers),
		in("GET "+metal+"/offers/{id}", "Offer", "Read", (*Cloud).getMetalOffer),
		in("GET "+metal+"/os", "Os", "List", (*Cloud).listMetalOS),
		in("GET "+metal+"/os/{id}", "Os", "Read", (*Cloud).getMetalOS),
		in(RouteListMetal, "Server", "List", (*Cloud).listMetal),
		in(RouteCreateMetal, "Server", "Create", (*Cloud).createMetal),
		in("GET "+metal+"/servers/{id}", "Server", "Read", (*Cloud).getMetal),
		in("PATCH "+metal+"/servers/{id}", "Server", "Write", (*Cloud).updateMetal),
		in(RouteInstallMetal, "Server", "Write", (*Cloud).installMetal),
		in("POST "+metal+"/servers/{id}/start", "Server", "Start", (*Cloud).startMetal),
		in("POST "+metal+"/servers/{id}/stop", "Server", "Stop", (*Cloud).stopMetal),
		in("POST "+metal+"/servers/{id}/reboot", "Server", "Write", (*Cloud).rebootMetal),
		in(RouteDeleteMetal, "Server", "Delete", (*Cloud).deleteMetal),
	}
}

// organizationRoutes are those outside of any zone.
func organizationRoutes() []route {
	in := func(product string) func(name, object, verb string, h func(*Cloud, *request) (*response, error)) route {
		return func(name, object, verb string, h func(*Cloud, *request) (*response, error)) route {
			return route{name: name, permission: permission{product, object, verb}, handle: h}
		}
	}
	vpc, manage, ssh, project := in("VPC"), in("IAM"), in("SSHKeys"), in("Project")
	return []route{
		{
			name:       "DELETE /instance/v2alpha1/zones/{zone}/private-network-interfaces/{id}",
			permission: permission{"Instances", "PrivateNic", "Delete"}, handle: (*Cloud).deleteInterface,
		},

		vpc("GET "+vpcs+"/vpcs", "Vpc", "List", (*Cloud).listVPCs),
		vpc("GET "+vpcs+"/vpcs/{id}", "Vpc", "Read", (*Cloud).getVPC),
		vpc("GET "+vpcs+"/private-networks", "PrivateNetwork", "List", (*Cloud).listNetworks),
		vpc(RouteCreateNetwork, "PrivateNetwork", "Create", (*Cloud).createNetwork),
		vpc("GET "+vpcs+"/private-networks/{id}", "PrivateNetwork", "Read", (*Cloud).getNetwork),
		vpc("PATCH "+vpcs+"/private-networks/{id}", "PrivateNetwork", "Write", (*Cloud).updateNetwork),
		vpc(RouteDeleteNetwork, "PrivateNetwork", "Delete", (*Cloud).deleteNetwork),

		manage("GET "+iam+"/permission-sets", "PermissionSet", "List", (*Cloud).listPermissionSets),
		manage("GET "+iam+"/applications", "Application", "List", (*Cloud).listApplications),
		manage(RouteCreateApplication, "Application", "Create", (*Cloud).createApplication),
		manage("GET "+iam+"/applications/{id}", "Application", "Read", (*Cloud).getApplication),
		manage("PATCH "+iam+"/applications/{id}", "Application", "Write", (*Cloud).updateApplication),
		manage("DELETE "+iam+"/applications/{id}", "Application", "Delete", (*Cloud).deleteApplication),
		manage("GET "+iam+"/policies", "Policy", "List", (*Cloud).listPolicies),
		manage(RouteCreatePolicy, "Policy", "Create", (*Cloud).createPolicy),
		manage("GET "+iam+"/policies/{id}", "Policy", "Read", (*Cloud).getPolicy),
		manage("PATCH "+iam+"/policies/{id}", "Policy", "Write", (*Cloud).updatePolicy),
		manage("DELETE "+iam+"/policies/{id}", "Policy", "Delete", (*Cloud).deletePolicy),
		manage("GET "+iam+"/rules", "Rule", "List", (*Cloud).listRules),
		manage("PUT "+iam+"/rules", "Rule", "Write", (*Cloud).setRules),
		manage("GET "+iam+"/api-keys", "ApiKey", "List", (*Cloud).listAPIKeys),
		manage(RouteCreateAPIKey, "ApiKey", "Create", (*Cloud).createAPIKey),
		manage("GET "+iam+"/api-keys/{id}", "ApiKey", "Read", (*Cloud).getAPIKey),
		manage("PATCH "+iam+"/api-keys/{id}", "ApiKey", "Write", (*Cloud).updateAPIKey),
		manage("DELETE "+iam+"/api-keys/{id}", "ApiKey", "Delete", (*Cloud).deleteAPIKey),

		ssh("GET "+iam+"/ssh-keys", "SshKey", "List", (*Cloud).listSSHKeys),
		ssh("POST "+iam+"/ssh-keys", "SshKey", "Create", (*Cloud).createSSHKey),
		ssh("GET "+iam+"/ssh-keys/{id}", "SshKey", "Read", (*Cloud).getSSHKey),
		ssh("PATCH "+iam+"/ssh-keys/{id}", "SshKey", "Write", (*Cloud).updateSSHKey),
		ssh("DELETE "+iam+"/ssh-keys/{id}", "SshKey", "Delete", (*Cloud).deleteSSHKey),

		project("GET "+projects, "Project", "List", (*Cloud).listProjects),
		project("POST "+projects, "Project", "Create", (*Cloud).createProject),
		project("GET "+projects+"/{id}", "Project", "Read", (*Cloud).getProject),
		project("PATCH "+projects+"/{id}", "Project", "Write", (*Cloud).updateProject),
		project("DELETE "+projects+"/{id}", "Project", "Delete", (*Cloud).deleteProject),
	}
}

// actionOf is the action that a call of the action route asks for.
func actionOf(rt *route, body []byte) string {
	if rt.name != RouteServerAction {
		return ""
	}
	return actionIn(body)
}

// actionIn is "" for a body that names none, which the handler refuses.
func actionIn(body []byte) string {
	var in struct{ Action string }
	if json.Unmarshal(body, &in) != nil {
		return ""
	}
	return in.Action
}
