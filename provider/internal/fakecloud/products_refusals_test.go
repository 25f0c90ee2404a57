package fakecloud

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

const nobody = "99999999-9999-4999-8999-999999999999"

func TestRefusalsOfSmallerProducts(t *testing.T) {
	c := New(Options{})
	defer c.Close()
	const zonal, blockAPI, vpcAPI = "/instance/v1/zones/fr-par-1", "/block/v1/zones/fr-par-1", "/vpc/v2/regions/fr-par"
	inMine := `"project":"` + DefaultProjectID + `"`
	inMineID := `"project_id":"` + DefaultProjectID + `"`
	c.directServer(t, "PLAY2-NANO", "")
	volume := c.Volumes()[0].ID
	c.mustDirect(t, http.StatusOK, "POST", blockAPI+"/snapshots", `{"name":"s","volume_id":"`+volume+`",`+inMineID+`}`)
	c.mu.Lock()
	snapshot := c.inv.zones["fr-par-1"].snapshots.all[0].id
	group := c.inv.zones["fr-par-1"].groups.all[0].id
	c.mu.Unlock()
	network := c.directNetwork(t)

	for _, tt := range []struct {
		method, path, body string
		status             int
		words              string
	}{
		{"POST", blockAPI + "/snapshots", `{"volume_id":"` + volume + `","project_id":"x"}`, 400, "valid UUID"},
		{"POST", blockAPI + "/snapshots", `{"volume_id":"` + nobody + `",` + inMineID + `}`, 404, `"resource":"volume"`},
		{"POST", blockAPI + "/snapshots", `{"volume_id":"` + volume + `","project_id":"` + nobody + `"}`, 403, `"resource":"project"`},
		{"GET", blockAPI + "/snapshots/" + nobody, "", 404, `"resource":"snapshot"`},
		{"POST", blockAPI + "/volumes", `{` + inMineID + `}`, 400, "exactly one of from_empty"},
		{"POST", blockAPI + "/volumes", `{` + inMineID + `,"from_empty":{"size":1},"from_snapshot":{"snapshot_id":"` + snapshot + `"}}`, 400, "exactly one of from_empty"},
		{"POST", blockAPI + "/volumes", `{` + inMineID + `,"from_snapshot":{"snapshot_id":"` + nobody + `"}}`, 404, `"resource":"snapshot"`},
		{"POST", blockAPI + "/volumes", `{` + inMineID + `,"from_snapshot":{"size":1,"snapshot_id":"` + snapshot + `"}}`, 400, "smaller than its snapshot"},

		{"POST", zonal + "/placement_groups", `{` + inMine + `,"policy_mode":"firm","policy_type":"near"}`, 400, `"policy_type"`},
		{"GET", zonal + "/placement_groups/x", "", 400, "placement_group"},
		{"GET", zonal + "/placement_groups/" + nobody, "", 404, "instance_placement_group"},
		{"POST", zonal + "/servers", `{"name":"n","commercial_type":"PLAY2-NANO","image":"ubuntu_noble",` + inMine + `,"placement_group":"` + nobody + `"}`, 404, "instance_placement_group"},

		{"POST", zonal + "/security_groups/" + group + "/rules", `{"protocol":"TCP","direction":"inbound","action":"accept","ip_range":"0.0.0.0/0","dest_port_from":9,"dest_port_to":8}`, 400, "dest_port_to"},
		{"GET", zonal + "/security_groups/" + nobody + "/rules", "", 404, "instance_security_group"},
		{"DELETE", zonal + "/security_groups/" + group + "/rules/" + nobody, "", 404, "instance_security_group_rule"},

		{"POST", vpcAPI + "/private-networks", `{"project_id":"x"}`, 400, "valid UUID"},
		{"POST", vpcAPI + "/private-networks", `{"project_id":"` + nobody + `"}`, 404, `"resource":"project"`},
		{"POST", vpcAPI + "/private-networks", `{` + inMineID + `,"vpc_id":"` + nobody + `"}`, 404, `"resource":"vpc"`},
		{"GET", "/vpc/v2/regions/nl-ams/private-networks/" + network, "", 404, "private_network"},
		{"GET", "/vpc/v2/regions/fr-par-1/private-networks", "", 400, "region"},
		{"GET", vpcAPI + "/vpcs/" + nobody, "", 404, `"resource":"vpc"`},
		{"DELETE", "/instance/v2alpha1/zones/fr-par-1/private-network-interfaces/" + nobody, "", 404, "private_network_interface"},

		{"POST", projects, `{}`, 400, `"argument_name":"name"`},
		{"POST", projects, `{"name":"default"}`, 409, "already_exists"},
		{"DELETE", projects + "/" + DefaultProjectID, "", 412, "protected_resource"},
		{"GET", projects + "/" + nobody, "", 404, "project_id"},
	} {
		if w := c.direct(tt.method, tt.path, tt.body); w.Code != tt.status || !strings.Contains(w.Body.String(), tt.words) {
			t.Errorf("%s %s %s: %d %s, want %d with %s", tt.method, tt.path, tt.body, w.Code, w.Body, tt.status, tt.words)
		}
	}
}

// What is being made can be neither copied nor deleted.
func TestSnapshotsTakeTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New(Options{Scale: 1})
		defer c.Close()
		const blockAPI = "/block/v1/zones/fr-par-1"
		volume, _ := c.mustDirect(t, http.StatusOK, "POST", blockAPI+"/volumes", `{"project_id":"`+DefaultProjectID+`","from_empty":{"size":1000000000}}`)
		of := `{"name":"s","volume_id":"` + volume + `","project_id":"` + DefaultProjectID + `"}`
		c.mustDirect(t, http.StatusConflict, "POST", blockAPI+"/snapshots", of)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		snapshot, _ := c.mustDirect(t, http.StatusOK, "POST", blockAPI+"/snapshots", of)
		c.mustDirect(t, http.StatusConflict, "DELETE", blockAPI+"/snapshots/"+snapshot, "")
		time.Sleep(2 * time.Second)
		synctest.Wait()
		c.mustDirect(t, http.StatusNoContent, "DELETE", blockAPI+"/snapshots/"+snapshot, "")
	})
}

// A policy moves from one principal to another, and rights with it.
func TestPolicyChangesPrincipal(t *testing.T) {
	c := New(Options{})
	defer c.Close()
	app, _ := c.mustDirect(t, http.StatusOK, "POST", iam+"/applications", `{"name":"a"}`)
	access, _ := c.mustDirect(t, http.StatusOK, "POST", iam+"/api-keys", `{"application_id":"`+app+`"}`)
	policy, _ := c.mustDirect(t, http.StatusOK, "POST", iam+"/policies", `{"name":"p","no_principal":true,"rules":[{"permission_set_names":["InstancesReadOnly"],"project_ids":["`+DefaultProjectID+`"]}]}`)
	c.mu.Lock()
	key, _ := c.inv.keys.byID(access)
	c.mu.Unlock()
	for _, step := range []struct {
		body, shows string
		status      int
	}{
		{`{}`, `"no_principal":true`, http.StatusForbidden},
		{`{"application_id":"` + app + `"}`, `"application_id":"` + app, http.StatusOK},
		{`{"user_id":"` + OwnerUserID + `"}`, `"user_id":"` + OwnerUserID, http.StatusForbidden},
		{`{"application_id":"` + app + `","no_principal":false}`, `"application_id":"` + app, http.StatusOK},
	} {
		if _, text := c.mustDirect(t, http.StatusOK, "PATCH", iam+"/policies/"+policy, step.body); !strings.Contains(text, step.shows) {
			t.Errorf("%s: %s", step.body, text)
		}
		if w := c.directAs(key.secret, "GET", serversPath); w.Code != step.status {
			t.Errorf("%s: the application's key gets %d, want %d", step.body, w.Code, step.status)
		}
	}
	c.mustDirect(t, http.StatusNoContent, "DELETE", iam+"/applications/"+app, "")
	if _, text := c.mustDirect(t, http.StatusOK, "GET", iam+"/policies/"+policy, ""); !strings.Contains(text, `"no_principal":true`) {
		t.Errorf("without its application: %s", text)
	}
}

// directAs calls with another key.
func (c *Cloud) directAs(secret, method, path string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, path, http.NoBody)
	r.Header.Set("X-Auth-Token", secret)
	return answerOf(c.Handler(), r)
}

// Which permission set opens which product.
func TestPermissionSetsOfTheOrganization(t *testing.T) {
	for set, want := range map[string]string{ // reads: IAM, projects, SSH keys, networks; then an attempt to write an application
		"IAMManager":                "200 403 403 403 200",
		"IAMReadOnly":               "200 403 403 403 403",
		"ProjectReadOnly":           "403 200 403 403 403",
		"SSHKeysReadOnly":           "403 403 200 403 403",
		"PrivateNetworksFullAccess": "403 403 403 200 403",
		"VPCReadOnly":               "403 403 403 200 403",
		"AllProductsFullAccess":     "403 403 200 200 403",
	} {
		c := New(Options{Keys: []Key{{AccessKey: DefaultAccessKey, SecretKey: DefaultSecretKey, PermissionSets: []string{set}}}})
		var got []int
		for _, path := range []string{iam + "/policies", projects, iam + "/ssh-keys", "/vpc/v2/regions/fr-par/private-networks"} {
			got = append(got, c.direct("GET", path, "").Code)
		}
		got = append(got, c.direct("POST", iam+"/applications", `{"name":"a"}`).Code)
		if fmt.Sprint(got) != "["+want+"]" {
			t.Errorf("%s: %v, want %s", set, got, want)
		}
		c.Close()
	}
}
