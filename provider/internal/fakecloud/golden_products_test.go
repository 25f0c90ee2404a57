package fakecloud

import (
	"encoding/json"
	"net/http"
	"testing"
)

const sampleSSHKey = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl user@host"

const sampleRSAKey = "ssh-rsa AAAAB3NzaC1yc2EAAAADAQABAAABAQC6BxObh645dZ0FdnCccr+Mxy29D8ttvDLrlMkALb4V7Pe4mY6fqvwCczFhxVIEwKmm8fBCIvgYPGd4Qca/0Qm2awbe/W6fGZ+SNw4QU1bhjrIJVY7i7yTwGgdD90bO4v22Tpj6zLGrFVD1zEJ6bHARyfJzl/J2cRYUmSYpqdk16l7Dor3aMGass/er252lBasiiqq7JQg3/dduYUOlPuhZuF2WWp1C7U/BU3+F9tGLF3OWj0gi3tDhG/lPacdPDhzraUqbSZbKWidLplm8v+pXo4pZ1dqqKcZShLcb+gMDoZQu8Z3X5kF4EDT+Pusk6EVX9cT7bOeoyODbyl9vsrTN"

// mustDirect fails the test unless the call is answered with the status, and
// returns the body with its id.
func (c *Cloud) mustDirect(t *testing.T, status int, method, path, body string) (id, text string) {
	t.Helper()
	w := c.direct(method, path, body)
	if w.Code != status {
		t.Fatalf("%s %s: %d %s, want %d", method, path, w.Code, w.Body, status)
	}
	var in struct {
		ID        string
		AccessKey string `json:"access_key"`
	}
	if w.Body.Len() > 0 {
		if err := json.Unmarshal(w.Body.Bytes(), &in); err != nil {
			t.Fatalf("%s %s: %v", method, path, err)
		}
	}
	if in.ID == "" {
		in.ID = in.AccessKey
	}
	return in.ID, w.Body.String()
}

// The bodies of IAM and Account: what the first answer of a policy or a key
// says and later ones do not.
func TestGoldenOrganization(t *testing.T) {
	c := New(Options{})
	defer c.Close()
	show := func(name, method, path, body string) string {
		t.Helper()
		id, text := c.mustDirect(t, http.StatusOK, method, path, body)
		golden(t, name, text)
		return id
	}
	app := show("iam-application", "POST", iam+"/applications", `{"name":"nodes","organization_id":"`+DefaultOrganizationID+`","description":"d","tags":["x"]}`)
	policy := show("iam-policy-created", "POST", iam+"/policies", `{"name":"p","application_id":"`+app+`","rules":[
		{"permission_set_names":["InstancesFullAccess","BlockStorageFullAccess"],"project_ids":["`+DefaultProjectID+`"]},
		{"permission_set_names":["ProjectReadOnly"],"organization_id":"`+DefaultOrganizationID+`"}]}`)
	show("iam-policy", "GET", iam+"/policies/"+policy, "")
	show("iam-rules", "GET", iam+"/rules?policy_id="+policy, "")
	key := show("iam-api-key-created", "POST", iam+"/api-keys", `{"application_id":"`+app+`","description":"k"}`)
	show("iam-api-key", "GET", iam+"/api-keys/"+key, "")
	show("iam-ssh-key", "POST", iam+"/ssh-keys", `{"name":"me","public_key":"`+sampleSSHKey+`","project_id":"`+DefaultProjectID+`"}`)
	show("projects", "GET", projects+"?organization_id="+DefaultOrganizationID+"&name=default&order_by=created_at_asc", "")
	for name, call := range map[string]struct{ method, path, body string }{
		"iam-key-missing":     {"GET", iam + "/api-keys/SCW00000000000000000", ""},
		"iam-ssh-key-project": {"POST", iam + "/ssh-keys", `{"name":"me","public_key":"x","project_id":"nope"}`},
		"iam-policy-unknown":  {"POST", iam + "/policies", `{"name":"p","no_principal":true,"rules":[{"permission_set_names":["BareMetalFullAccess"],"project_ids":["` + DefaultProjectID + `"]}]}`},
	} {
		golden(t, name, c.direct(call.method, call.path, call.body).Body.String())
	}
}

// The bodies of the smaller products.
func TestGoldenProducts(t *testing.T) {
	c := New(Options{})
	defer c.Close()
	const zonal = "/instance/v1/zones/fr-par-1"
	show := func(status int, name, method, path, body string) string {
		t.Helper()
		id, text := c.mustDirect(t, status, method, path, body)
		golden(t, name, text)
		return id
	}
	network := show(http.StatusOK, "vpc-network", "POST", "/vpc/v2/regions/fr-par/private-networks", `{"name":"pn","project_id":"`+DefaultProjectID+`","tags":["a"]}`)
	show(http.StatusOK, "vpc-list", "GET", "/vpc/v2/regions/fr-par/vpcs?project_id="+DefaultProjectID, "")
	server := c.directServer(t, "PLAY2-NANO", "")
	c.direct("POST", serversPath+"/"+server+"/private_nics", `{"private_network_id":"`+network+`"}`)
	golden(t, "vpc-network-in-use", c.direct("DELETE", "/vpc/v2/regions/fr-par/private-networks/"+network, "").Body.String())
	show(http.StatusCreated, "placement-group", "POST", zonal+"/placement_groups", `{"name":"apart","project":"`+DefaultProjectID+`","policy_mode":"enforced"}`)
	key, _ := c.mustDirect(t, http.StatusOK, "POST", iam+"/ssh-keys", `{"name":"me","public_key":"`+sampleSSHKey+`","project_id":"`+DefaultProjectID+`"}`)
	offer, _ := findMetalOffer("fr-par-2", func(o metalOffer) bool { return o.name == "EM-A610R-NVME" && !o.monthly })
	show(http.StatusOK, "metal-offer", "GET", metalPath+"/offers/"+offer.id(), "")
	machine := show(http.StatusOK, "metal-ordered", "POST", metalPath+"/servers", `{"offer_id":"`+offer.id()+`","project_id":"`+DefaultProjectID+`","name":"m","tags":["a"],"user_data":"I3g=",
		"install":{"os_id":"`+metalSystems[0].id+`","hostname":"m","ssh_key_ids":["`+key+`"]}}`)
	show(http.StatusOK, "metal-installed", "GET", metalPath+"/servers/"+machine, "")
	golden(t, "metal-missing", c.direct("GET", metalPath+"/servers/"+nobody, "").Body.String())
	group := c.Volumes()[0].ID
	show(http.StatusOK, "block-snapshot", "POST", "/block/v1/zones/fr-par-1/snapshots", `{"name":"s","volume_id":"`+group+`","project_id":"`+DefaultProjectID+`"}`)
	golden(t, "security-rules", c.direct("GET", zonal+"/security_groups/default/rules", "").Body.String())
	golden(t, "faults-refused", c.direct("POST", "/debug/faults", `{"route":"GET /nowhere","times":-2,"delay":"soon","reply":"tea","outcome":"odd","colour":1}`).Body.String())
	golden(t, "fault-made", c.direct("POST", "/debug/faults", `{"route":"`+RouteServerAction+`","zone":"fr-par-1","action":"poweron","skip":1,"times":2,"reply":{"name":"out_of_stock","resource":"DEV1-S"}}`).Body.String())
	golden(t, "switches", c.direct("GET", "/debug/switches", "").Body.String())
}

// What a guest reads about itself, in both formats.
func TestGoldenMetadata(t *testing.T) {
	c := New(Options{})
	defer c.Close()
	c.mustDirect(t, http.StatusOK, "POST", iam+"/ssh-keys", `{"name":"me","public_key":"`+sampleSSHKey+`","project_id":"`+DefaultProjectID+`"}`)
	id := c.directServer(t, "PLAY2-NANO", `,"tags":["it's","b"]`)
	c.directAct(t, id, "poweron")
	for name, path := range map[string]string{"metadata-conf": "/conf?format=json", "metadata-conf-shell": "/conf"} {
		golden(t, name, c.asGuest("127.64.0.1:40000", http.MethodGet, path, "").Body.String())
	}
}
