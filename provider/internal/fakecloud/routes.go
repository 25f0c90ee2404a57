package fakecloud

import (
	"encoding/json"
	"net/http"
	"strings"
)

// The names of the routes that tests script most, for Fault.Route, Call.Route
// and Requests. Any other route is named in the same way, by its verb and
// path. v1alpha1 of Block goes under the names of v1.
const (
	instances = "/instance/v1/zones/{zone}"
	blocks    = "/block/v1/zones/{zone}"

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
)

func (c *Cloud) routes() *http.ServeMux {
	mux := http.NewServeMux()
	for _, rt := range routeTable() {
		serve := func(w http.ResponseWriter, r *http.Request) { c.serve(&rt, w, r) }
		mux.HandleFunc(rt.name, serve)
		if strings.Contains(rt.name, blocks) {
			mux.HandleFunc(strings.Replace(rt.name, "/v1/", "/v1alpha1/", 1), serve)
		}
	}
	mux.HandleFunc("GET /debug/servers", c.debugServers)
	mux.HandleFunc("GET /debug/volumes", c.debugVolumes)
	mux.HandleFunc("GET /debug/leaks", c.debugLeaks)
	mux.HandleFunc("/", c.unknownRoute)
	return mux
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
	nic, group := instances+"/servers/{id}/private_nics", instances+"/security_groups"
	return []route{
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
		instance("PATCH "+instances+"/volumes/{id}", "Volume", "Write", (*Cloud).updateLocalVolume),
		instance(RouteDeleteLocalVolume, "Volume", "Delete", (*Cloud).deleteLocalVolume),

		instance("GET "+group, "SecurityGroup", "List", (*Cloud).listGroups),
		instance("POST "+group, "SecurityGroup", "Create", (*Cloud).createGroup),
		instance("GET "+group+"/{id}", "SecurityGroup", "Read", (*Cloud).getGroup),
		instance("PATCH "+group+"/{id}", "SecurityGroup", "Write", (*Cloud).updateGroup),
		instance("DELETE "+group+"/{id}", "SecurityGroup", "Delete", (*Cloud).deleteGroup),

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

		open(RouteListLocalImages, (*Cloud).listLocalImages),
		open("GET /marketplace/v2/local-images/{id}", (*Cloud).getLocalImage),
		open("GET /marketplace/v2/images", (*Cloud).listMarketplaceImages),
		open("GET /marketplace/v2/images/{id}", (*Cloud).getMarketplaceImage),
		open(RouteMetadata, (*Cloud).metadata),
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
