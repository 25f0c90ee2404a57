package deploy

import (
	"maps"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	iam "github.com/scaleway/scaleway-sdk-go/api/iam/v1alpha1"
	"github.com/scaleway/scaleway-sdk-go/scw"
	"github.com/zclconf/go-cty/cty"

	"bigfleet-providers/provider/internal/fakecloud"
)

// apply does what Terraform would do with the module, against a Scaleway: it
// makes the three resources, in their order, from the module's own expressions.
// It returns the outputs.
func (m module) apply(t *testing.T, client *scw.Client, set map[string]cty.Value) (outputs map[string]string, err error) {
	t.Helper()
	api, s := iam.NewAPI(client), m.open(t, set)
	resource := func(name string, attributes map[string]cty.Value) {
		s.values[name] = cty.ObjectVal(map[string]cty.Value{"provider": cty.ObjectVal(attributes)})
	}

	body := m.resources["scaleway_iam_application"].Body
	app, err := api.CreateApplication(&iam.CreateApplicationRequest{
		Name: *s.text(body, "name"), Description: *s.text(body, "description"), OrganizationID: fakecloud.DefaultOrganizationID,
	})
	if err != nil {
		return nil, err
	}
	resource("scaleway_iam_application", map[string]cty.Value{"id": cty.StringVal(app.ID)})

	body = m.resources["scaleway_iam_policy"].Body
	policy := &iam.CreatePolicyRequest{
		Name: *s.text(body, "name"), Description: *s.text(body, "description"), OrganizationID: fakecloud.DefaultOrganizationID,
		ApplicationID: s.text(body, "application_id"),
	}
	for _, rule := range body.Blocks {
		if rule.Type == "rule" {
			policy.Rules = append(policy.Rules, &iam.RuleSpecs{
				PermissionSetNames: new(s.list(rule.Body, "permission_set_names")), ProjectIDs: new(s.list(rule.Body, "project_ids")),
			})
		}
	}
	if _, err := api.CreatePolicy(policy); err != nil {
		return nil, err
	}

	body = m.resources["scaleway_iam_api_key"].Body
	key, err := api.CreateAPIKey(&iam.CreateAPIKeyRequest{
		ApplicationID: s.text(body, "application_id"), DefaultProjectID: s.text(body, "default_project_id"), Description: *s.text(body, "description"),
	})
	if err != nil {
		return nil, err
	}
	resource("scaleway_iam_api_key", map[string]cty.Value{"access_key": cty.StringVal(key.AccessKey), "secret_key": cty.StringVal(*key.SecretKey)})

	outputs = map[string]string{}
	for name, block := range m.outputs {
		outputs[name] = *s.text(block.Body, "value")
	}
	return outputs, nil
}

// account is a fake Scaleway, its owner's client and its address.
func account(t *testing.T) (client *scw.Client, address string) {
	t.Helper()
	cloud := fakecloud.New(fakecloud.Options{Scale: 0.001})
	server := httptest.NewServer(cloud.Handler())
	t.Cleanup(func() {
		server.Close()
		cloud.Close()
	})
	client, err := scw.NewClient(
		scw.WithAPIURL(server.URL), scw.WithAuth(fakecloud.DefaultAccessKey, fakecloud.DefaultSecretKey),
		scw.WithDefaultOrganizationID(fakecloud.DefaultOrganizationID))
	if err != nil {
		t.Fatal(err)
	}
	return client, server.URL
}

func inputs(more map[string]cty.Value) map[string]cty.Value {
	set := map[string]cty.Value{
		"organization_id": cty.StringVal(fakecloud.DefaultOrganizationID), "project_id": cty.StringVal(fakecloud.DefaultProjectID),
		"name": cty.StringVal("bigfleet-scaleway-fr-par"),
	}
	maps.Copy(set, more)
	return set
}

// TestKeyOfTheModuleIsEnough applies the module and has the provider ask with its
// key, for offerings that use all that the module was told of.
func TestKeyOfTheModuleIsEnough(t *testing.T) {
	m := parseModule(t)
	for name, tc := range map[string]struct {
		set    map[string]cty.Value
		grants []string
	}{
		"plain":            {nil, []string{"InstancesFullAccess", "BlockStorageFullAccess"}},
		"elastic metal":    {map[string]cty.Value{"enable_elastic_metal": cty.True}, []string{"InstancesFullAccess", "BlockStorageFullAccess", "ElasticMetalFullAccess", "SSHKeysReadOnly"}},
		"private networks": {map[string]cty.Value{"enable_private_networks": cty.True}, []string{"InstancesFullAccess", "BlockStorageFullAccess", "PrivateNetworksFullAccess", "IPAMFullAccess"}},
	} {
		t.Run(name, func(t *testing.T) {
			client, address := account(t)
			outputs, err := m.apply(t, client, inputs(tc.set))
			if err != nil {
				t.Fatal(err)
			}
			rules := granted(t, client)
			if len(rules) != 1 || !slices.Equal(*rules[0].PermissionSetNames, tc.grants) || !slices.Equal(*rules[0].ProjectIDs, []string{fakecloud.DefaultProjectID}) {
				t.Errorf("rules %+v, want %q on the one project", rules, tc.grants)
			}
			for variable, output := range map[string]string{"SCW_ACCESS_KEY": "access_key", "SCW_SECRET_KEY": "secret_key", "SCW_DEFAULT_PROJECT_ID": "project_id"} {
				t.Setenv(variable, outputs[output])
			}
			t.Setenv("SCW_API_URL", address)
			t.Setenv("BIGFLEET_BOOTSTRAP_SECRET", strings.Repeat("s", 32))
			cert, key := selfSigned(t, "provider.example")
			dir := t.TempDir()
			for file, content := range map[string]string{"cert.pem": cert, "key.pem": key} {
				if err := os.WriteFile(filepath.Join(dir, file), []byte(content), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			code, out := checkConfig("--live", "--image=ubuntu_noble", "--agent-install=image", "--bootstrap-endpoint=https://provider.example:9443",
				"--bootstrap-tls-cert="+filepath.Join(dir, "cert.pem"), "--bootstrap-tls-key="+filepath.Join(dir, "key.pem"))
			if code != 0 {
				t.Errorf("exit code %d\n%s", code, out)
			}
			for _, want := range []string{`ok    credentials: `, `ok    Instances: `, `ok    Block Storage: `} {
				if !regexp.MustCompile("(?m)^" + want).MatchString(out) {
					t.Errorf("no line begins with %q:\n%s", want, out)
				}
			}
			// What the live check says that the key needs, beyond reading, is granted.
			needs := regexp.MustCompile(`the key needs ([A-Za-z, ]+) on project`).FindStringSubmatch(out)
			if needs == nil {
				t.Fatalf("it does not say what the key needs:\n%s", out)
			}
			for set := range strings.SplitSeq(needs[1], ", ") {
				if !slices.Contains(tc.grants, set) {
					t.Errorf("the provider needs %s, which the module does not grant", set)
				}
			}
		})
	}
}

// granted are the rules of all policies.
func granted(t *testing.T, client *scw.Client) []*iam.Rule {
	t.Helper()
	api := iam.NewAPI(client)
	policies, err := api.ListPolicies(&iam.ListPoliciesRequest{OrganizationID: fakecloud.DefaultOrganizationID})
	if err != nil {
		t.Fatal(err)
	}
	var rules []*iam.Rule
	for _, p := range policies.Policies {
		list, err := api.ListRules(&iam.ListRulesRequest{PolicyID: p.ID})
		if err != nil {
			t.Fatal(err)
		}
		rules = append(rules, list.Rules...)
	}
	return rules
}

// TestPermissionSetsExist: every name that the module could grant is one that
// Scaleway knows, and the name that documents have had for bare metal is not.
func TestPermissionSetsExist(t *testing.T) {
	client, _ := account(t)
	list, err := iam.NewAPI(client).ListPermissionSets(&iam.ListPermissionSetsRequest{OrganizationID: fakecloud.DefaultOrganizationID}, scw.WithAllPages())
	if err != nil {
		t.Fatal(err)
	}
	var known []string
	for _, s := range list.PermissionSets {
		known = append(known, s.Name)
	}
	s := parseModule(t).open(t, inputs(map[string]cty.Value{"enable_elastic_metal": cty.True, "enable_private_networks": cty.True}))
	for _, v := range s.values["local"].GetAttr("permission_sets").AsValueSlice() {
		if !slices.Contains(known, v.AsString()) {
			t.Errorf("there is no permission set %s", v.AsString())
		}
	}
	if slices.Contains(known, "BareMetalFullAccess") {
		t.Error("BareMetalFullAccess exists: docs/credentials.md says otherwise")
	}
}
