package fakecloud

import (
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	accountsdk "github.com/scaleway/scaleway-sdk-go/api/account/v3"
	block "github.com/scaleway/scaleway-sdk-go/api/block/v1"
	iamsdk "github.com/scaleway/scaleway-sdk-go/api/iam/v1alpha1"
	"github.com/scaleway/scaleway-sdk-go/api/instance/v1"
	"github.com/scaleway/scaleway-sdk-go/scw"
)

// mint makes an application with one policy and a key for it.
func (a *account) mint(t *testing.T, rules ...*iamsdk.RuleSpecs) (*account, *iamsdk.Policy) {
	t.Helper()
	api := iamsdk.NewAPI(a.client)
	app, err := api.CreateApplication(&iamsdk.CreateApplicationRequest{Name: "nodes", OrganizationID: DefaultOrganizationID})
	if err != nil {
		t.Fatal(err)
	}
	policy, err := api.CreatePolicy(&iamsdk.CreatePolicyRequest{Name: "p", OrganizationID: DefaultOrganizationID, ApplicationID: &app.ID, Rules: rules})
	if err != nil {
		t.Fatal(err)
	}
	key, err := api.CreateAPIKey(&iamsdk.CreateAPIKeyRequest{ApplicationID: &app.ID})
	if err != nil {
		t.Fatal(err)
	}
	return a.as(t, key.AccessKey, *key.SecretKey), policy
}

func inProjects(sets []string, projects ...string) *iamsdk.RuleSpecs {
	return &iamsdk.RuleSpecs{PermissionSetNames: &sets, ProjectIDs: &projects}
}

func TestMintedKeyWorks(t *testing.T) {
	a := serve(t, Options{})
	other, err := accountsdk.NewProjectAPI(a.client).CreateProject(&accountsdk.ProjectAPICreateProjectRequest{Name: "other", OrganizationID: DefaultOrganizationID})
	if err != nil {
		t.Fatal(err)
	}
	key, policy := a.mint(t,
		inProjects([]string{"InstancesFullAccess"}, DefaultProjectID),
		inProjects([]string{"BlockStorageFullAccess"}, other.ID))

	var denied *scw.PermissionsDeniedError
	s := key.create(t, "n")
	if _, err := key.instance.CreateServer(&instance.CreateServerRequest{CommercialType: "PLAY2-NANO", Image: new("ubuntu_noble"), Project: &other.ID}); !errors.As(err, &denied) {
		t.Errorf("a server in a project where it may use volumes only: %#v", err)
	}
	volumes, err := key.block.ListVolumes(&block.ListVolumesRequest{})
	if err != nil || len(volumes.Volumes) != 0 {
		t.Errorf("volumes of a project where it may use servers only: %v, %v", volumes, err)
	}
	if _, err := key.block.CreateVolume(&block.CreateVolumeRequest{Name: "v", ProjectID: other.ID, FromEmpty: &block.CreateVolumeRequestFromEmpty{Size: scw.GB}}); err != nil {
		t.Errorf("a volume where it may: %v", err)
	}
	if _, err := iamsdk.NewAPI(key.client).ListApplications(&iamsdk.ListApplicationsRequest{OrganizationID: DefaultOrganizationID}); !errors.As(err, &denied) {
		t.Errorf("it lists applications: %#v", err)
	}

	api := iamsdk.NewAPI(a.client)
	if _, err := api.SetRules(&iamsdk.SetRulesRequest{PolicyID: policy.ID, Rules: []*iamsdk.RuleSpecs{inProjects([]string{"InstancesReadOnly"}, DefaultProjectID)}}); err != nil {
		t.Fatal(err)
	}
	key.get(t, s.ID)
	if err := key.instance.DeleteServer(&instance.DeleteServerRequest{ServerID: s.ID}); !errors.As(err, &denied) {
		t.Errorf("with new rules it still deletes: %#v", err)
	}
	if err := api.DeletePolicy(&iamsdk.DeletePolicyRequest{PolicyID: policy.ID}); err != nil {
		t.Fatal(err)
	}
	if _, err := key.instance.GetServer(&instance.GetServerRequest{ServerID: s.ID}); !errors.As(err, &denied) {
		t.Errorf("without a policy it still reads: %#v", err)
	}
	if err := api.DeleteApplication(&iamsdk.DeleteApplicationRequest{ApplicationID: *policy.ApplicationID}); err != nil {
		t.Fatal(err)
	}
	var unknown *scw.DeniedAuthenticationError
	if _, err := key.instance.GetServer(&instance.GetServerRequest{ServerID: s.ID}); !errors.As(err, &unknown) {
		t.Errorf("the key of a deleted application: %#v", err)
	}
}

// The rights of a fresh key come and go, and come back after a change.
func TestKeysFlap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New(Options{})
		defer c.Close()
		c.SetKeyFlap(2 * time.Minute)
		app, _ := c.mustDirect(t, http.StatusOK, "POST", iam+"/applications", `{"name":"a"}`)
		policy, _ := c.mustDirect(t, http.StatusOK, "POST", iam+"/policies", `{"name":"p","application_id":"`+app+`","rules":[{"permission_set_names":["InstancesFullAccess"],"project_ids":["`+DefaultProjectID+`"]}]}`)
		access, _ := c.mustDirect(t, http.StatusOK, "POST", iam+"/api-keys", `{"application_id":"`+app+`"}`)
		c.mu.Lock()
		key, _ := c.inv.keys.byID(access)
		c.mu.Unlock()
		look := func(n int) (statuses []int) {
			for range n {
				statuses = append(statuses, c.directAs(key.secret, http.MethodGet, serversPath).Code)
			}
			return statuses
		}
		want := []int{403, 200, 403, 403, 200, 403}
		if got := look(6); !slices.Equal(got, want) {
			t.Errorf("fresh: %v, want %v", got, want)
		}
		time.Sleep(2 * time.Minute)
		if got := look(3); !slices.Equal(got, []int{200, 200, 200}) {
			t.Errorf("two minutes later: %v", got)
		}
		c.mustDirect(t, http.StatusOK, "PATCH", iam+"/policies/"+policy, `{"description":"d"}`)
		if got := look(6); !slices.Equal(got, want) {
			t.Errorf("after a change of the policy: %v, want %v", got, want)
		}
		// Keys that were there from the start do not flap.
		if w := c.direct("GET", serversPath, ""); w.Code != http.StatusOK {
			t.Errorf("the first key: %d", w.Code)
		}
	})
}

func TestKeysExpireAndCountersLag(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New(Options{Scale: 1})
		defer c.Close()
		app, _ := c.mustDirect(t, http.StatusOK, "POST", iam+"/applications", `{"name":"a"}`)
		c.mustDirect(t, http.StatusOK, "POST", iam+"/api-keys", `{"application_id":"`+app+`"}`)
		policy, _ := c.mustDirect(t, http.StatusOK, "POST", iam+"/policies", `{"name":"p","no_principal":true,"rules":[{"permission_set_names":["IAMManager"],"organization_id":"`+DefaultOrganizationID+`"}]}`)
		shows := func(keys, rules string) {
			t.Helper()
			_, a := c.mustDirect(t, http.StatusOK, "GET", iam+"/applications/"+app, "")
			_, p := c.mustDirect(t, http.StatusOK, "GET", iam+"/policies/"+policy, "")
			if !strings.Contains(a, `"nb_api_keys":`+keys) || !strings.Contains(p, `"nb_rules":`+rules) {
				t.Errorf("want %s keys and %s rules: %s %s", keys, rules, a, p)
			}
		}
		shows("0", "0")
		time.Sleep(2 * time.Second)
		synctest.Wait()
		shows("1", "1")

		ends := time.Now().Add(time.Hour)
		access, _ := c.mustDirect(t, http.StatusOK, "POST", iam+"/api-keys", `{"user_id":"`+OwnerUserID+`","expires_at":"`+ends.Format(time.RFC3339)+`"}`)
		c.mu.Lock()
		key, _ := c.inv.keys.byID(access)
		c.mu.Unlock()
		for _, want := range []int{http.StatusOK, http.StatusUnauthorized} {
			if w := c.directAs(key.secret, http.MethodGet, iam+"/applications"); w.Code != want || want == http.StatusUnauthorized && !strings.Contains(w.Body.String(), "expired") {
				t.Errorf("%d %s, want %d", w.Code, w.Body, want)
			}
			time.Sleep(time.Hour)
		}
	})
}

func TestIAMRefusals(t *testing.T) {
	c := New(Options{})
	defer c.Close()
	app, _ := c.mustDirect(t, http.StatusOK, "POST", iam+"/applications", `{"name":"a"}`)
	rule := func(sets, scope string) string {
		return `{"name":"p","application_id":"` + app + `","rules":[{"permission_set_names":[` + sets + `],` + scope + `}]}`
	}
	mine := `"project_ids":["` + DefaultProjectID + `"]`
	for _, tt := range []struct {
		method, path, body string
		status             int
		words              string
	}{
		{"POST", "/applications", `{}`, 400, `"argument_name":"name"`},
		{"POST", "/applications", `{"name":"b","organization_id":"` + nobody + `"}`, 403, `"resource":"organization"`},
		{"GET", "/applications/" + nobody, "", 404, `"resource":"application"`},
		{"POST", "/policies", `{"name":"p"}`, 400, "exactly one of user_id"},
		{"POST", "/policies", `{"name":"p","no_principal":true,"application_id":"` + app + `"}`, 400, "exactly one of user_id"},
		{"POST", "/policies", `{"name":"p","group_id":"` + nobody + `"}`, 404, `"resource":"group"`},
		{"POST", "/policies", `{"name":"p","user_id":"` + nobody + `"}`, 404, `"resource":"user"`},
		{"POST", "/policies", rule(`"BareMetalFullAccess"`, mine), 400, "BareMetalFullAccess"},
		{"POST", "/policies", rule(`"IAMManager"`, mine), 400, "is for an organization"},
		{"POST", "/policies", rule(``, mine), 400, "permission_set_names"},
		{"POST", "/policies", rule(`"InstancesReadOnly"`, mine+`,"organization_id":"`+DefaultOrganizationID+`"`), 400, "exactly one of project_ids"},
		{"POST", "/policies", rule(`"InstancesReadOnly"`, `"project_ids":["`+nobody+`"]`), 404, `"resource":"project_id"`},
		{"PUT", "/rules", `{"policy_id":"` + nobody + `","rules":[]}`, 404, `"resource":"policy"`},
		{"POST", "/api-keys", `{}`, 400, "exactly one of application_id"},
		{"POST", "/api-keys", `{"application_id":"` + nobody + `"}`, 404, `"resource":"application"`},
		{"POST", "/api-keys", `{"application_id":"` + app + `","default_project_id":"` + nobody + `"}`, 404, `"resource":"project_id"`},
		{"POST", "/api-keys", `{"application_id":"` + app + `","expires_at":"2020-01-01T00:00:00Z"}`, 400, "future"},
		{"DELETE", "/api-keys/SCW00000000000000000", "", 404, `"resource":"access_key"`},
		{"POST", "/ssh-keys", `{"name":"k","public_key":"ssh-ed25519","project_id":"` + DefaultProjectID + `"}`, 400, "public_key"},
		{"POST", "/ssh-keys", `{"name":"k","public_key":"ssh-rsa AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl","project_id":"` + DefaultProjectID + `"}`, 400, "not of type ssh-rsa"},
	} {
		if w := c.direct(tt.method, iam+tt.path, tt.body); w.Code != tt.status || !strings.Contains(w.Body.String(), tt.words) {
			t.Errorf("%s %s %s: %d %s, want %d with %s", tt.method, tt.path, tt.body, w.Code, w.Body, tt.status, tt.words)
		}
	}
}

// Fingerprints as ssh-keygen -E md5 prints them.
func TestFingerprints(t *testing.T) {
	for line, want := range map[string]string{
		sampleSSHKey: "256 MD5:65:96:2d:fc:e8:d5:a9:11:64:0c:0f:ea:00:6e:5b:bd (ssh-ed25519)",
		sampleRSAKey: "2048 MD5:71:08:87:0c:53:a8:27:c9:d9:38:b1:0c:8f:15:95:22 (ssh-rsa)",
	} {
		if got, err := fingerprint(line); err != nil || got != want {
			t.Errorf("%s: %q, %v, want %q", line, got, err, want)
		}
	}
	for _, bad := range []string{"", "ssh-ed25519", "ssh-ed25519 !", "ssh-rsa AAAAB3NzaC1yc2E=", "ssh-rsa AAAAB3NzaC1yc2EAAAAA"} {
		if got, err := fingerprint(bad); err == nil {
			t.Errorf("%q has the fingerprint %s", bad, got)
		}
	}
}
