package fakecloud

import (
	"errors"
	"io"
	"net"
	"strings"
	"testing"

	accountsdk "github.com/scaleway/scaleway-sdk-go/api/account/v3"
	block "github.com/scaleway/scaleway-sdk-go/api/block/v1"
	iamsdk "github.com/scaleway/scaleway-sdk-go/api/iam/v1alpha1"
	"github.com/scaleway/scaleway-sdk-go/api/instance/v1"
	v2alpha1 "github.com/scaleway/scaleway-sdk-go/api/instance/v2alpha1"
	"github.com/scaleway/scaleway-sdk-go/api/marketplace/v2"
	vpcsdk "github.com/scaleway/scaleway-sdk-go/api/vpc/v2"
	"github.com/scaleway/scaleway-sdk-go/scw"
)

// The vendor's typed client drives every route: it decodes each answer into its
// own types, with its own checks of zones, sizes, times and enumerations.
func TestEveryRouteOverTheSDK(t *testing.T) {
	a := serve(t, Options{})
	t.Run("organization", func(t *testing.T) { sdkOrganization(t, a) })
	t.Run("api keys", func(t *testing.T) { sdkAPIKeys(t, a) })
	t.Run("server", func(t *testing.T) { sdkServer(t, a) })
	t.Run("addresses", func(t *testing.T) { sdkAddresses(t, a) })
	t.Run("networks", func(t *testing.T) { sdkNetworks(t, a) })
	t.Run("groups", func(t *testing.T) { sdkGroups(t, a) })
	t.Run("volumes", func(t *testing.T) { sdkVolumes(t, a) })
	t.Run("metal", func(t *testing.T) { sdkMetal(t, a) })
	t.Run("catalogue", func(t *testing.T) { sdkCatalogue(t, a) })
	for _, rt := range routeTable() {
		if a.Requests(rt.name) == 0 {
			t.Errorf("nobody called %s", rt.name)
		}
	}
	if leaks := a.Leaks(); len(leaks) != 0 {
		t.Errorf("left behind: %+v", leaks)
	}
}

// must unwraps a call that has to succeed.
func must[T any](v T, err error) func(*testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func mustDo(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// gone wants the SDK's own error for a thing that was deleted.
func gone(t *testing.T, err error, resource string) {
	t.Helper()
	var missing *scw.ResourceNotFoundError
	if !errors.As(err, &missing) || missing.Resource != resource {
		t.Errorf("error %#v, want not found of %s", err, resource)
	}
}

func sdkOrganization(t *testing.T, a *account) {
	projects := accountsdk.NewProjectAPI(a.client)
	p := must(projects.CreateProject(&accountsdk.ProjectAPICreateProjectRequest{Name: "team", OrganizationID: DefaultOrganizationID}))(t)
	if list := must(projects.ListProjects(&accountsdk.ProjectAPIListProjectsRequest{OrganizationID: DefaultOrganizationID}, scw.WithAllPages()))(t); len(list.Projects) != 2 || list.TotalCount != 2 {
		t.Errorf("projects %+v", list.Projects)
	}
	must(projects.UpdateProject(&accountsdk.ProjectAPIUpdateProjectRequest{ProjectID: p.ID, Description: new("d")}))(t)
	if got := must(projects.GetProject(&accountsdk.ProjectAPIGetProjectRequest{ProjectID: p.ID}))(t); got.Description != "d" || got.CreatedAt == nil {
		t.Errorf("project %+v", got)
	}
	s := a.createWith(t, &instance.CreateServerRequest{Name: "n", Project: &p.ID})
	var used *scw.PreconditionFailedError
	if err := projects.DeleteProject(&accountsdk.ProjectAPIDeleteProjectRequest{ProjectID: p.ID}); !errors.As(err, &used) {
		t.Errorf("delete of a project with a server: %#v", err)
	}
	a.remove(t, s)
	mustDo(t, projects.DeleteProject(&accountsdk.ProjectAPIDeleteProjectRequest{ProjectID: p.ID}))

	api := iamsdk.NewAPI(a.client)
	if sets := must(api.ListPermissionSets(&iamsdk.ListPermissionSetsRequest{OrganizationID: DefaultOrganizationID}, scw.WithAllPages()))(t); len(sets.PermissionSets) != len(permissionSets) {
		t.Errorf("%d permission sets, want %d", len(sets.PermissionSets), len(permissionSets))
	}
	key := must(api.CreateSSHKey(&iamsdk.CreateSSHKeyRequest{Name: "me", PublicKey: sampleSSHKey, ProjectID: DefaultProjectID}))(t)
	must(api.UpdateSSHKey(&iamsdk.UpdateSSHKeyRequest{SSHKeyID: key.ID, Disabled: new(true)}))(t)
	if got := must(api.GetSSHKey(&iamsdk.GetSSHKeyRequest{SSHKeyID: key.ID}))(t); !got.Disabled || got.Fingerprint == "" {
		t.Errorf("SSH key %+v", got)
	}
	if list := must(api.ListSSHKeys(&iamsdk.ListSSHKeysRequest{ProjectID: new(DefaultProjectID)}, scw.WithAllPages()))(t); len(list.SSHKeys) != 1 {
		t.Errorf("SSH keys %+v", list.SSHKeys)
	}
	mustDo(t, api.DeleteSSHKey(&iamsdk.DeleteSSHKeyRequest{SSHKeyID: key.ID}))
	_, err := api.GetSSHKey(&iamsdk.GetSSHKeyRequest{SSHKeyID: key.ID})
	gone(t, err, "ssh_key")
}

// remove deletes a stopped server with its network volumes.
func (a *account) remove(t *testing.T, s *instance.Server) {
	t.Helper()
	mustDo(t, a.instance.DeleteServer(&instance.DeleteServerRequest{ServerID: s.ID}))
	for _, v := range s.Volumes {
		mustDo(t, a.block.DeleteVolume(&block.DeleteVolumeRequest{VolumeID: v.ID}))
	}
}

func sdkAPIKeys(t *testing.T, a *account) {
	api := iamsdk.NewAPI(a.client)
	app := must(api.CreateApplication(&iamsdk.CreateApplicationRequest{Name: "app", OrganizationID: DefaultOrganizationID, Tags: []string{"x"}}))(t)
	must(api.UpdateApplication(&iamsdk.UpdateApplicationRequest{ApplicationID: app.ID, Description: new("d")}))(t)
	if list := must(api.ListApplications(&iamsdk.ListApplicationsRequest{OrganizationID: DefaultOrganizationID, Tag: new("x")}, scw.WithAllPages()))(t); len(list.Applications) != 1 || list.Applications[0].Description != "d" {
		t.Errorf("applications %+v", list.Applications)
	}

	rules := []*iamsdk.RuleSpecs{inProjects([]string{"InstancesReadOnly"}, DefaultProjectID)}
	policy := must(api.CreatePolicy(&iamsdk.CreatePolicyRequest{Name: "p", OrganizationID: DefaultOrganizationID, ApplicationID: &app.ID, Rules: rules}))(t)
	if policy.NbRules != 0 {
		t.Errorf("the answer that makes a policy counts %d rules", policy.NbRules)
	}
	must(api.UpdatePolicy(&iamsdk.UpdatePolicyRequest{PolicyID: policy.ID, Tags: &[]string{"t"}}))(t)
	rules = append(rules, &iamsdk.RuleSpecs{PermissionSetNames: &[]string{"ProjectReadOnly"}, OrganizationID: new(DefaultOrganizationID)})
	must(api.SetRules(&iamsdk.SetRulesRequest{PolicyID: policy.ID, Rules: rules}))(t)
	if list := must(api.ListRules(&iamsdk.ListRulesRequest{PolicyID: policy.ID}, scw.WithAllPages()))(t); len(list.Rules) != 2 || list.Rules[1].PermissionSetsScopeType != iamsdk.PermissionSetScopeTypeOrganization {
		t.Errorf("rules %+v", list.Rules)
	}
	if got := must(api.GetPolicy(&iamsdk.GetPolicyRequest{PolicyID: policy.ID}))(t); got.NbRules != 2 || *got.ApplicationID != app.ID {
		t.Errorf("policy %+v", got)
	}
	if list := must(api.ListPolicies(&iamsdk.ListPoliciesRequest{OrganizationID: DefaultOrganizationID, ApplicationIDs: []string{app.ID}}, scw.WithAllPages()))(t); len(list.Policies) != 1 {
		t.Errorf("policies %+v", list.Policies)
	}

	key := must(api.CreateAPIKey(&iamsdk.CreateAPIKeyRequest{ApplicationID: &app.ID, Description: "k"}))(t)
	if key.SecretKey == nil {
		t.Fatal("a new key has no secret")
	}
	must(a.as(t, key.AccessKey, *key.SecretKey).instance.ListServers(&instance.ListServersRequest{}))(t)
	must(api.UpdateAPIKey(&iamsdk.UpdateAPIKeyRequest{AccessKey: key.AccessKey, Description: new("l")}))(t)
	if got := must(api.GetAPIKey(&iamsdk.GetAPIKeyRequest{AccessKey: key.AccessKey}))(t); got.SecretKey != nil || got.Description != "l" || *got.ApplicationID != app.ID {
		t.Errorf("key %+v", got)
	}
	if list := must(api.ListAPIKeys(&iamsdk.ListAPIKeysRequest{OrganizationID: new(DefaultOrganizationID), BearerID: &app.ID}, scw.WithAllPages()))(t); len(list.APIKeys) != 1 {
		t.Errorf("keys %+v", list.APIKeys)
	}
	if got := must(api.GetApplication(&iamsdk.GetApplicationRequest{ApplicationID: app.ID}))(t); got.NbAPIKeys != 1 {
		t.Errorf("application %+v", got)
	}

	mustDo(t, api.DeleteAPIKey(&iamsdk.DeleteAPIKeyRequest{AccessKey: key.AccessKey}))
	_, err := api.GetAPIKey(&iamsdk.GetAPIKeyRequest{AccessKey: key.AccessKey})
	gone(t, err, "access_key")
	mustDo(t, api.DeletePolicy(&iamsdk.DeletePolicyRequest{PolicyID: policy.ID}))
	mustDo(t, api.DeleteApplication(&iamsdk.DeleteApplicationRequest{ApplicationID: app.ID}))
	_, err = api.GetApplication(&iamsdk.GetApplicationRequest{ApplicationID: app.ID})
	gone(t, err, "application")
}

func sdkServer(t *testing.T, a *account) {
	s := a.create(t, "n", "t")
	mustDo(t, a.instance.SetServerUserData(&instance.SetServerUserDataRequest{ServerID: s.ID, Key: "cloud-init", Content: strings.NewReader("#!/bin/sh\n")}))
	text := must(io.ReadAll(must(a.instance.GetServerUserData(&instance.GetServerUserDataRequest{ServerID: s.ID, Key: "cloud-init"}))(t)))(t)
	if string(text) != "#!/bin/sh\n" {
		t.Errorf("user data %q", text)
	}
	if keys := must(a.instance.ListServerUserData(&instance.ListServerUserDataRequest{ServerID: s.ID}))(t); len(keys.UserData) != 1 {
		t.Errorf("user data keys %q", keys.UserData)
	}
	mustDo(t, a.instance.DeleteServerUserData(&instance.DeleteServerUserDataRequest{ServerID: s.ID, Key: "cloud-init"}))
	must(a.instance.UpdateServer(&instance.UpdateServerRequest{ServerID: s.ID, Tags: &[]string{"u"}, Protected: new(true)}))(t)
	if got := must(a.instance.ListServers(&instance.ListServersRequest{Tags: []string{"u"}}, scw.WithAllPages()))(t); len(got.Servers) != 1 || !got.Servers[0].Protected {
		t.Errorf("servers %+v", got.Servers)
	}
	mustDo(t, a.instance.ServerActionAndWait(&instance.ServerActionAndWaitRequest{ServerID: s.ID, Action: instance.ServerActionPoweron}))
	if got := must(a.instance.ListServerActions(&instance.ListServerActionsRequest{ServerID: s.ID}))(t); len(got.Actions) != 1 {
		t.Errorf("a protected server takes %v", got.Actions)
	}
	var protected *scw.PreconditionFailedError
	if err := a.act(s.ID, instance.ServerActionTerminate); !errors.As(err, &protected) || protected.Precondition != "protected_resource" {
		t.Errorf("terminate of a protected server: %#v", err)
	}
	must(a.instance.UpdateServer(&instance.UpdateServerRequest{ServerID: s.ID, Protected: new(false)}))(t)
	mustDo(t, a.instance.ServerActionAndWait(&instance.ServerActionAndWaitRequest{ServerID: s.ID, Action: instance.ServerActionPoweroff}))
	a.remove(t, s)
	_, err := a.instance.GetServer(&instance.GetServerRequest{ServerID: s.ID})
	gone(t, err, "instance_server")
}

func sdkAddresses(t *testing.T, a *account) {
	s := a.create(t, "n")
	ip := must(a.instance.CreateIP(&instance.CreateIPRequest{Type: instance.IPTypeRoutedIPv4, Tags: []string{"t"}}))(t).IP
	must(a.instance.UpdateIP(&instance.UpdateIPRequest{IP: ip.ID, Server: &instance.NullableStringValue{Value: s.ID}}))(t)
	if got := must(a.instance.GetIP(&instance.GetIPRequest{IP: ip.Address.String()}))(t).IP; got.Server == nil || got.State != instance.IPStateAttached {
		t.Errorf("attached address %+v", got)
	}
	if got := a.get(t, s.ID); len(got.PublicIPs) != 1 || got.PublicIPs[0].Dynamic || !got.PublicIPs[0].Address.Equal(ip.Address) {
		t.Errorf("the server's addresses %+v", got.PublicIPs)
	}
	must(a.instance.UpdateIP(&instance.UpdateIPRequest{IP: ip.ID, Server: &instance.NullableStringValue{Null: true}}))(t)
	if list := must(a.instance.ListIPs(&instance.ListIPsRequest{Tags: []string{"t"}}, scw.WithAllPages()))(t); len(list.IPs) != 1 || list.IPs[0].Server != nil {
		t.Errorf("addresses %+v", list.IPs)
	}
	mustDo(t, a.instance.DeleteIP(&instance.DeleteIPRequest{IP: ip.ID}))
	_, err := a.instance.GetIP(&instance.GetIPRequest{IP: ip.ID})
	gone(t, err, "instance_ip")
	a.remove(t, s)
}

func sdkNetworks(t *testing.T, a *account) {
	api := vpcsdk.NewAPI(a.client)
	n := must(api.CreatePrivateNetwork(&vpcsdk.CreatePrivateNetworkRequest{Region: scw.RegionFrPar, Name: "pn", ProjectID: DefaultProjectID}))(t)
	if len(n.Subnets) != 2 || n.Region != scw.RegionFrPar {
		t.Errorf("network %+v", n)
	}
	must(api.UpdatePrivateNetwork(&vpcsdk.UpdatePrivateNetworkRequest{Region: scw.RegionFrPar, PrivateNetworkID: n.ID, Tags: &[]string{"t"}}))(t)
	if list := must(api.ListPrivateNetworks(&vpcsdk.ListPrivateNetworksRequest{Region: scw.RegionFrPar, Tags: []string{"t"}}, scw.WithAllPages()))(t); len(list.PrivateNetworks) != 1 {
		t.Errorf("networks %+v", list.PrivateNetworks)
	}
	vpcs := must(api.ListVPCs(&vpcsdk.ListVPCsRequest{Region: scw.RegionFrPar, IsDefault: new(true)}, scw.WithAllPages()))(t).Vpcs
	if len(vpcs) != 1 || must(api.GetVPC(&vpcsdk.GetVPCRequest{Region: scw.RegionFrPar, VpcID: n.VpcID}))(t).ID != vpcs[0].ID {
		t.Errorf("VPCs %+v, the network's %s", vpcs, n.VpcID)
	}

	s := a.create(t, "n")
	nic := must(a.instance.CreatePrivateNIC(&instance.CreatePrivateNICRequest{ServerID: s.ID, PrivateNetworkID: n.ID}))(t).PrivateNic
	must(a.instance.UpdatePrivateNIC(&instance.UpdatePrivateNICRequest{ServerID: s.ID, PrivateNicID: nic.ID, Tags: &[]string{"t"}}))(t)
	if got := must(a.instance.GetPrivateNIC(&instance.GetPrivateNICRequest{ServerID: s.ID, PrivateNicID: nic.ID}))(t).PrivateNic; got.PrivateNetworkID != n.ID || len(got.Tags) != 1 {
		t.Errorf("NIC %+v", got)
	}
	if list := must(a.instance.ListPrivateNICs(&instance.ListPrivateNICsRequest{ServerID: s.ID}, scw.WithAllPages()))(t); len(list.PrivateNics) != 1 {
		t.Errorf("NICs %+v", list.PrivateNics)
	}
	var used *scw.PreconditionFailedError
	if err := api.DeletePrivateNetwork(&vpcsdk.DeletePrivateNetworkRequest{Region: scw.RegionFrPar, PrivateNetworkID: n.ID}); !errors.As(err, &used) || used.Precondition != "resource_still_in_use" {
		t.Errorf("delete of a network in use: %#v", err)
	}
	if err := instancev2(a).DeletePrivateNetworkInterface(&v2alpha1.DeletePrivateNetworkInterfaceRequest{PrivateNetworkInterfaceID: nic.ID}); !errors.As(err, &used) {
		t.Errorf("v2alpha1 deletes an attached interface: %#v", err)
	}
	mustDo(t, a.instance.DeletePrivateNIC(&instance.DeletePrivateNICRequest{ServerID: s.ID, PrivateNicID: nic.ID}))
	mustDo(t, api.DeletePrivateNetwork(&vpcsdk.DeletePrivateNetworkRequest{Region: scw.RegionFrPar, PrivateNetworkID: n.ID}))
	_, err := api.GetPrivateNetwork(&vpcsdk.GetPrivateNetworkRequest{Region: scw.RegionFrPar, PrivateNetworkID: n.ID})
	gone(t, err, "private_network")
	a.remove(t, s)
}

func instancev2(a *account) *v2alpha1.API { return v2alpha1.NewAPI(a.client) }

func sdkGroups(t *testing.T, a *account) {
	g := must(a.instance.CreateSecurityGroup(&instance.CreateSecurityGroupRequest{Name: "g", Stateful: true, EnableDefaultSecurity: new(true),
		InboundDefaultPolicy: instance.SecurityGroupPolicyDrop, OutboundDefaultPolicy: instance.SecurityGroupPolicyAccept}))(t).SecurityGroup
	must(a.instance.UpdateSecurityGroup(&instance.UpdateSecurityGroupRequest{SecurityGroupID: g.ID, Description: new("d")}))(t)
	_, all, err := net.ParseCIDR("0.0.0.0/0")
	mustDo(t, err)
	rule := must(a.instance.CreateSecurityGroupRule(&instance.CreateSecurityGroupRuleRequest{
		SecurityGroupID: g.ID, Protocol: instance.SecurityGroupRuleProtocolTCP, Direction: instance.SecurityGroupRuleDirectionInbound,
		Action: instance.SecurityGroupRuleActionAccept, IPRange: scw.IPNet{IPNet: *all}, DestPortFrom: new(uint32(22)),
	}))(t).Rule
	must(a.instance.UpdateSecurityGroupRule(&instance.UpdateSecurityGroupRuleRequest{SecurityGroupID: g.ID, SecurityGroupRuleID: rule.ID, DestPortFrom: new(uint32(80))}))(t)
	if got := must(a.instance.GetSecurityGroupRule(&instance.GetSecurityGroupRuleRequest{SecurityGroupID: g.ID, SecurityGroupRuleID: rule.ID}))(t).Rule; *got.DestPortFrom != 80 || got.Position != 7 || !got.Editable {
		t.Errorf("rule %+v", got)
	}
	builtin := must(a.instance.ListDefaultSecurityGroupRules(&instance.ListDefaultSecurityGroupRulesRequest{}))(t).Rules
	list := must(a.instance.ListSecurityGroupRules(&instance.ListSecurityGroupRulesRequest{SecurityGroupID: g.ID}, scw.WithAllPages()))(t).Rules
	if len(builtin) != 6 || len(list) != 7 || list[6].ID != rule.ID {
		t.Errorf("%d built-in rules, %d in all", len(builtin), len(list))
	}
	mustDo(t, a.instance.DeleteSecurityGroupRule(&instance.DeleteSecurityGroupRuleRequest{SecurityGroupID: g.ID, SecurityGroupRuleID: rule.ID}))
	_, err = a.instance.GetSecurityGroupRule(&instance.GetSecurityGroupRuleRequest{SecurityGroupID: g.ID, SecurityGroupRuleID: rule.ID})
	gone(t, err, "instance_security_group_rule")
	var wrong *scw.InvalidArgumentsError
	if _, err := a.instance.CreateSecurityGroupRule(&instance.CreateSecurityGroupRuleRequest{SecurityGroupID: g.ID, Protocol: "SCTP"}); !errors.As(err, &wrong) || len(wrong.Details) != 4 {
		t.Errorf("a rule with four mistakes: %#v", err)
	}
	if got := must(a.instance.SetSecurityGroupRules(&instance.SetSecurityGroupRulesRequest{SecurityGroupID: g.ID, Rules: []*instance.SetSecurityGroupRulesRequestRule{
		{Protocol: "UDP", Direction: "inbound", Action: "drop", IPRange: scw.IPNet{IPNet: *all}, Editable: new(true)},
		{Protocol: "TCP", Direction: "outbound", Action: "drop", IPRange: scw.IPNet{IPNet: *all}, Editable: new(false)},
	}}))(t).Rules; len(got) != 7 || got[6].Protocol != instance.SecurityGroupRuleProtocolUDP {
		t.Errorf("rules %+v", got)
	}
	if list := must(a.instance.ListSecurityGroups(&instance.ListSecurityGroupsRequest{Name: new("g")}, scw.WithAllPages()))(t); len(list.SecurityGroups) == 0 {
		t.Error("no security groups")
	}
	must(a.instance.GetSecurityGroup(&instance.GetSecurityGroupRequest{SecurityGroupID: g.ID}))(t)
	mustDo(t, a.instance.DeleteSecurityGroup(&instance.DeleteSecurityGroupRequest{SecurityGroupID: g.ID}))

	p := must(a.instance.CreatePlacementGroup(&instance.CreatePlacementGroupRequest{Name: "p", PolicyMode: instance.PlacementGroupPolicyModeEnforced}))(t).PlacementGroup
	s := a.createWith(t, &instance.CreateServerRequest{Name: "n", PlacementGroup: &p.ID})
	must(a.instance.UpdatePlacementGroup(&instance.UpdatePlacementGroupRequest{PlacementGroupID: p.ID, Name: new("q")}))(t)
	if got := a.get(t, s.ID); got.PlacementGroup == nil || got.PlacementGroup.Name != "q" {
		t.Errorf("the server's group %+v", got.PlacementGroup)
	}
	if got := must(a.instance.GetPlacementGroupServers(&instance.GetPlacementGroupServersRequest{PlacementGroupID: p.ID}))(t); len(got.Servers) != 1 || got.Servers[0].ID != s.ID {
		t.Errorf("the group's servers %+v", got.Servers)
	}
	must(a.instance.UpdateServer(&instance.UpdateServerRequest{ServerID: s.ID, PlacementGroup: &instance.NullableStringValue{Null: true}}))(t)
	a.mustAct(t, s.ID, instance.ServerActionPoweron)
	if _, err := a.instance.UpdateServer(&instance.UpdateServerRequest{ServerID: s.ID, PlacementGroup: &instance.NullableStringValue{Value: p.ID}}); err == nil {
		t.Error("a running server was put into a group")
	}
	a.mustAct(t, s.ID, instance.ServerActionPoweroff)
	must(a.instance.UpdateServer(&instance.UpdateServerRequest{ServerID: s.ID, PlacementGroup: &instance.NullableStringValue{Value: p.ID}}))(t)
	if list := must(a.instance.ListPlacementGroups(&instance.ListPlacementGroupsRequest{}, scw.WithAllPages()))(t); len(list.PlacementGroups) != 1 {
		t.Errorf("groups %+v", list.PlacementGroups)
	}
	mustDo(t, a.instance.DeletePlacementGroup(&instance.DeletePlacementGroupRequest{PlacementGroupID: p.ID}))
	_, err = a.instance.GetPlacementGroup(&instance.GetPlacementGroupRequest{PlacementGroupID: p.ID})
	gone(t, err, "instance_placement_group")
	if got := a.get(t, s.ID); got.PlacementGroup != nil {
		t.Errorf("the server is still in %+v", got.PlacementGroup)
	}
	a.remove(t, s)
}

func sdkVolumes(t *testing.T, a *account) {
	s := a.create(t, "n")
	v := must(a.block.CreateVolume(&block.CreateVolumeRequest{Name: "v", ProjectID: DefaultProjectID, FromEmpty: &block.CreateVolumeRequestFromEmpty{Size: 20 * scw.GB}}))(t)
	must(a.block.UpdateVolume(&block.UpdateVolumeRequest{VolumeID: v.ID, Tags: &[]string{"t"}, Size: new(30 * scw.GB)}))(t)
	must(a.instance.AttachServerVolume(&instance.AttachServerVolumeRequest{ServerID: s.ID, VolumeID: v.ID, VolumeType: instance.AttachServerVolumeRequestVolumeTypeSbsVolume}))(t)
	if got := must(a.block.GetVolume(&block.GetVolumeRequest{VolumeID: v.ID}))(t); got.Status != block.VolumeStatusInUse || len(got.References) != 1 || got.Size != 30*scw.GB {
		t.Errorf("attached volume %+v", got)
	}
	var used *scw.PreconditionFailedError
	if err := a.block.DeleteVolume(&block.DeleteVolumeRequest{VolumeID: v.ID}); !errors.As(err, &used) {
		t.Errorf("delete of an attached volume: %#v", err)
	}
	_, err := a.instance.GetVolume(&instance.GetVolumeRequest{VolumeID: v.ID})
	gone(t, err, "instance_volume")

	snapshot := must(a.block.CreateSnapshot(&block.CreateSnapshotRequest{VolumeID: v.ID, Name: "s", ProjectID: DefaultProjectID, Tags: []string{"t"}}))(t)
	must(a.block.UpdateSnapshot(&block.UpdateSnapshotRequest{SnapshotID: snapshot.ID, Name: new("s2")}))(t)
	if got := must(a.block.GetSnapshot(&block.GetSnapshotRequest{SnapshotID: snapshot.ID}))(t); got.Status != block.SnapshotStatusAvailable || got.ParentVolume == nil || got.ParentVolume.ID != v.ID {
		t.Errorf("snapshot %+v", got)
	}
	if list := must(a.block.ListSnapshots(&block.ListSnapshotsRequest{VolumeID: &v.ID}, scw.WithAllPages()))(t); len(list.Snapshots) != 1 {
		t.Errorf("snapshots %+v", list.Snapshots)
	}
	image := a.get(t, s.ID).Image.RootVolume.ID
	var denied *scw.PermissionsDeniedError
	if _, err := a.block.GetSnapshot(&block.GetSnapshotRequest{SnapshotID: image}); !errors.As(err, &denied) {
		t.Errorf("the snapshot of a public image: %#v", err)
	}
	from := must(a.block.CreateVolume(&block.CreateVolumeRequest{Name: "w", ProjectID: DefaultProjectID, FromSnapshot: &block.CreateVolumeRequestFromSnapshot{SnapshotID: snapshot.ID}}))(t)
	if from.ParentSnapshotID == nil || *from.ParentSnapshotID != snapshot.ID || from.Size != 30*scw.GB {
		t.Errorf("volume from a snapshot %+v", from)
	}

	must(a.instance.DetachServerVolume(&instance.DetachServerVolumeRequest{ServerID: s.ID, VolumeID: v.ID}))(t)
	for _, id := range []string{v.ID, from.ID} {
		mustDo(t, a.block.DeleteVolume(&block.DeleteVolumeRequest{VolumeID: id}))
	}
	if got := must(a.block.GetSnapshot(&block.GetSnapshotRequest{SnapshotID: snapshot.ID}))(t); got.ParentVolume != nil {
		t.Errorf("the parent of a snapshot is gone, yet shown: %+v", got.ParentVolume)
	}
	mustDo(t, a.block.DeleteSnapshot(&block.DeleteSnapshotRequest{SnapshotID: snapshot.ID}))
	_, err = a.block.GetSnapshot(&block.GetSnapshotRequest{SnapshotID: snapshot.ID})
	gone(t, err, "snapshot")
	must(a.block.ListVolumes(&block.ListVolumesRequest{}, scw.WithAllPages()))(t)
	must(a.block.ListVolumeTypes(&block.ListVolumeTypesRequest{}, scw.WithAllPages()))(t)
	a.remove(t, s)

	local := must(a.instance.CreateVolume(&instance.CreateVolumeRequest{Name: "l", VolumeType: instance.VolumeVolumeTypeLSSD, Size: new(scw.GB)}))(t).Volume
	must(a.instance.UpdateVolume(&instance.UpdateVolumeRequest{VolumeID: local.ID, Name: new("m")}))(t)
	if list := must(a.instance.ListVolumes(&instance.ListVolumesRequest{}, scw.WithAllPages()))(t); len(list.Volumes) != 1 || list.Volumes[0].Name != "m" {
		t.Errorf("local volumes %+v", list.Volumes)
	}
	mustDo(t, a.instance.DeleteVolume(&instance.DeleteVolumeRequest{VolumeID: local.ID}))
}

func sdkCatalogue(t *testing.T, a *account) {
	types := must(a.instance.ListServersTypes(&instance.ListServersTypesRequest{}, scw.WithAllPages()))(t).Servers
	available := must(a.instance.GetServerTypesAvailability(&instance.GetServerTypesAvailabilityRequest{}, scw.WithAllPages()))(t).Servers
	if len(types) < 100 || len(types) != len(available) || types["PLAY2-NANO"].Ncpus != 2 {
		t.Errorf("%d types, availability of %d", len(types), len(available))
	}
	images := must(a.instance.ListImages(&instance.ListImagesRequest{}, scw.WithAllPages()))(t).Images
	must(a.instance.GetImage(&instance.GetImageRequest{ImageID: images[0].ID}))(t)
	api := marketplace.NewAPI(a.client)
	shop := must(api.ListImages(&marketplace.ListImagesRequest{}, scw.WithAllPages()))(t).Images
	must(api.GetImage(&marketplace.GetImageRequest{ImageID: shop[0].ID}))(t)
	zonal := must(api.ListLocalImages(&marketplace.ListLocalImagesRequest{ImageLabel: new("ubuntu_noble"), Zone: new(zone)}, scw.WithAllPages()))(t).LocalImages
	must(api.GetLocalImage(&marketplace.GetLocalImageRequest{LocalImageID: zonal[0].ID}))(t)
}
