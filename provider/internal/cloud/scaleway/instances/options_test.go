package instances_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	block "github.com/scaleway/scaleway-sdk-go/api/block/v1"
	"github.com/scaleway/scaleway-sdk-go/api/instance/v1"
	"github.com/scaleway/scaleway-sdk-go/api/vpc/v2"
	"github.com/scaleway/scaleway-sdk-go/scw"

	"bigfleet-providers/provider/internal/cloud"
	"bigfleet-providers/provider/internal/cloud/scaleway/instances"
	"bigfleet-providers/provider/internal/fakecloud"
)

// nowhere is the id of nothing.
const nowhere = "99999999-9999-4999-8999-999999999999"

// everyOption makes what options name.
func (w *world) everyOption(t *testing.T) cloud.Options {
	t.Helper()
	client := w.client(t)
	api, networks := instance.NewAPI(client), vpc.NewAPI(client)
	group, err := api.CreateSecurityGroup(&instance.CreateSecurityGroupRequest{
		Zone: zone, Name: "g", InboundDefaultPolicy: instance.SecurityGroupPolicyDrop, OutboundDefaultPolicy: instance.SecurityGroupPolicyAccept,
	})
	must(t, err)
	place, err := api.CreatePlacementGroup(&instance.CreatePlacementGroupRequest{Zone: zone, Name: "p"})
	must(t, err)
	o := cloud.Options{
		Image:          "debian_bookworm",
		RootVolume:     &cloud.RootVolume{Type: cloud.VolumeBlock, SizeGB: 40, IOPS: 15000},
		SecurityGroup:  group.SecurityGroup.ID,
		PlacementGroup: place.PlacementGroup.ID,
		PublicIP:       cloud.PublicIPv6,
		Tags:           []string{"team=data", "batch"},
	}
	for _, name := range []string{"a", "b"} {
		n, err := networks.CreatePrivateNetwork(&vpc.CreatePrivateNetworkRequest{Region: scw.RegionFrPar, Name: name, ProjectID: fakecloud.DefaultProjectID})
		must(t, err)
		o.PrivateNetworks = append(o.PrivateNetworks, n.ID)
	}
	return o
}

// bodies records what is sent on a route.
func (w *world) bodies(route string) func() []map[string]any {
	var sent []map[string]any
	w.Inject(fakecloud.Fault{Route: route, Times: -1, Match: func(r fakecloud.Request) bool {
		var body map[string]any
		if json.Unmarshal(r.Body, &body) == nil {
			sent = append(sent, body)
		}
		return false
	}})
	return func() []map[string]any { return sent }
}

func (w *world) networksOf(t *testing.T, ref string) []string {
	t.Helper()
	resp, err := instance.NewAPI(w.client(t)).ListPrivateNICs(&instance.ListPrivateNICsRequest{Zone: zone, ServerID: id(ref)})
	must(t, err)
	var list []string
	for _, nic := range resp.PrivateNics {
		list = append(list, nic.PrivateNetworkID)
	}
	slices.Sort(list)
	return list
}

// Every option reaches the cloud, before the first boot.
func TestEveryOptionReachesTheCloud(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		o := w.everyOption(t)
		orders := w.bodies(fakecloud.RouteCreateServer)
		op := operation("m-1")
		op.Spec.Options = o.Encode()
		must(t, op.Run(within(t), w.connect(t).Create()))

		order := orders()[0]
		want := map[string]any{"0": map[string]any{"size": 40e9, "volume_type": "sbs_volume"}}
		if diff := cmp.Diff(want, order["volumes"]); diff != "" {
			t.Errorf("volumes of the order (-want +got):\n%s", diff)
		}
		for field, want := range map[string]any{"security_group": o.SecurityGroup, "placement_group": o.PlacementGroup, "dynamic_ip_required": false} {
			if order[field] != want {
				t.Errorf("%s of the order is %v, want %v", field, order[field], want)
			}
		}
		tags := append([]string{"bigfleet=scaleway-fr-par-1", "bigfleet-machine=m-1", "bigfleet-operation=op-of-m-1"}, o.Tags...)
		s := w.Servers()[0]
		if diff := cmp.Diff(slices.Insert(slices.Clone(tags), 3, "bigfleet-life=op-of-m-1"), s.Tags); diff != "" {
			t.Errorf("tags of the server (-want +got):\n%s", diff)
		}

		client := w.client(t)
		server, err := instance.NewAPI(client).GetServer(&instance.GetServerRequest{Zone: zone, ServerID: s.ID})
		must(t, err)
		if name := server.Server.Image.Name; !strings.Contains(name, "Debian 12") {
			t.Errorf("image %q", name)
		}
		if ips := server.Server.PublicIPs; len(ips) != 1 || ips[0].Family != instance.ServerIPIPFamilyInet6 {
			t.Errorf("addresses %+v, want one IPv6", ips)
		}
		volume, err := block.NewAPI(client).GetVolume(&block.GetVolumeRequest{Zone: zone, VolumeID: server.Server.Volumes["0"].ID})
		must(t, err)
		if volume.Specs.PerfIops == nil || *volume.Specs.PerfIops != 15000 || volume.Size != 40*scw.GB {
			t.Errorf("root volume of %d bytes with %+v", volume.Size, volume.Specs)
		}
		if diff := cmp.Diff(tags, volume.Tags); diff != "" {
			t.Errorf("tags of the volume (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff(slices.Sorted(slices.Values(o.PrivateNetworks)), w.networksOf(t, op.Ref)); diff != "" {
			t.Errorf("networks (-want +got):\n%s", diff)
		}

		// The order of the steps is what makes the guest see all of it.
		var routes []string
		for _, call := range w.Calls() {
			for _, route := range []string{fakecloud.RouteCreateIP, fakecloud.RouteCreatePrivateNIC, fakecloud.RouteSetUserData, fakecloud.RouteServerAction} {
				if call.Route == route {
					routes = append(routes, route)
				}
			}
		}
		if diff := cmp.Diff([]string{
			fakecloud.RouteCreateIP, fakecloud.RouteCreatePrivateNIC, fakecloud.RouteCreatePrivateNIC, fakecloud.RouteSetUserData, fakecloud.RouteServerAction,
		}, routes); diff != "" {
			t.Errorf("calls (-want +got):\n%s", diff)
		}

		del := op.Teardown()
		must(t, del.Run(within(t), w.connect(t).Delete()))
		if left := w.remains(); len(left) > 0 {
			t.Errorf("left behind: %q", left)
		}
	})
}

// Whichever answer is lost, the server has one interface in each network and one
// address.
func TestNetworksAreConnectedOnce(t *testing.T) {
	for _, route := range []string{fakecloud.RouteCreateIP, fakecloud.RouteCreatePrivateNIC} {
		for skip := range 2 {
			t.Run(route, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					w := newWorld(t)
					o := w.everyOption(t)
					w.Inject(fakecloud.Fault{Route: route, Skip: skip, Commit: true, Hangup: true})
					op := operation("m-1")
					op.Spec.Options = o.Encode()
					must(t, op.Run(within(t), w.connect(t).Create()))
					if diff := cmp.Diff(slices.Sorted(slices.Values(o.PrivateNetworks)), w.networksOf(t, op.Ref)); diff != "" {
						t.Errorf("networks (-want +got):\n%s", diff)
					}
					ips, err := instance.NewAPI(w.client(t)).ListIPs(&instance.ListIPsRequest{Zone: zone})
					must(t, err)
					if len(ips.IPs) != 1 || ips.IPs[0].Server == nil {
						t.Errorf("addresses %+v, want one, attached", ips.IPs)
					}
				})
			})
		}
	}
}

// What an order names and the API does not have is told by the option's name.
func TestOptionsThatNameNothing(t *testing.T) {
	for name, o := range map[string]cloud.Options{
		"security_group_id":   {SecurityGroup: nowhere},
		"placement_group_id":  {PlacementGroup: nowhere},
		"private_network_ids": {PrivateNetworks: []string{nowhere}},
		"image":               {Image: nowhere},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				c := w.connect(t)
				op := operation("m-1")
				op.Spec.Options = o.Encode()
				err := op.Run(within(t), c.Create())
				if !errors.Is(err, cloud.ErrInvalid) || !strings.Contains(err.Error(), name+": ") && !strings.Contains(err.Error(), name+" ") || !strings.Contains(err.Error(), nowhere) {
					t.Errorf("Create = %v, want ErrInvalid with %s and the id", err, name)
				}
				must(t, op.Teardown().Run(within(t), c.Discard()))
				if left := w.remains(); len(left) > 0 {
					t.Errorf("left behind: %q", left)
				}
			})
		})
	}
}

// A record of a later release is not half understood.
func TestUnknownOptionsAreRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		op := operation("m-1")
		op.Spec.Options = `{"boot_from":"net"}`
		if err := op.Run(within(t), w.connect(t).Create()); !errors.Is(err, cloud.ErrInvalid) || w.Requests(fakecloud.RouteCreateServer) != 0 {
			t.Errorf("Create = %v after %d orders", err, w.Requests(fakecloud.RouteCreateServer))
		}
	})
}

func TestRootVolumes(t *testing.T) {
	for name, tc := range map[string]struct {
		typ, image string
		root       *cloud.RootVolume
		want       string // type and size
	}{
		"block on a type with disks": {localType, "ubuntu_noble", &cloud.RootVolume{Type: cloud.VolumeBlock}, "sbs_volume 10"},
		"local":                      {localType, "ubuntu_noble", &cloud.RootVolume{Type: cloud.VolumeLocal, SizeGB: 15}, "l_ssd 15"},
		"GPU image":                  {"L4-1-24G", "ubuntu_noble_gpu_os_12", &cloud.RootVolume{Type: cloud.VolumeBlock, IOPS: 5000}, "sbs_volume 125"},
		"arm":                        {"BASIC2-A2C-4G", "debian_trixie", &cloud.RootVolume{Type: cloud.VolumeBlock, SizeGB: 30}, "sbs_volume 30"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				c := w.connect(t)
				op := operation("m-1")
				o := cloud.Options{Image: tc.image, RootVolume: tc.root}
				op.Spec.Type, op.Spec.Options = tc.typ, o.Encode()
				_, err := c.Types(within(t))
				must(t, err)
				must(t, c.Fit(within(t), tc.typ, o))
				must(t, op.Run(within(t), c.Create()))
				v := w.Volumes()[0]
				if got := fmt.Sprintf("%s %d", v.Type, v.Size/1e9); got != tc.want {
					t.Errorf("root volume %s, want %s", got, tc.want)
				}
			})
		})
	}
}

// What can never be made is found out without an order, and the error names the
// option to change.
func TestFit(t *testing.T) {
	w := newWorld(t)
	c := w.connect(t)
	_, err := c.Types(within(t))
	must(t, err)
	local := func(gb int) *cloud.RootVolume { return &cloud.RootVolume{Type: cloud.VolumeLocal, SizeGB: gb} }
	onBlock := func(gb int) *cloud.RootVolume { return &cloud.RootVolume{Type: cloud.VolumeBlock, SizeGB: gb} }
	uuidOf := func(typ string) string {
		op := operation("probe-" + typ)
		op.Spec.Type = typ
		must(t, op.RunTo(within(t), c.Create(), 1))
		resp, err := instance.NewAPI(w.client(t)).GetServer(&instance.GetServerRequest{Zone: zone, ServerID: id(op.Ref)})
		must(t, err)
		return resp.Server.Image.ID
	}
	blockImage, localImage := uuidOf(blockType), uuidOf(localType)
	before := w.Requests(fakecloud.RouteCreateServer)
	for name, tc := range map[string]struct {
		typ  string
		o    cloud.Options
		want []string // nothing: fits
	}{
		"plain":                        {blockType, cloud.Options{}, nil},
		"plain, local":                 {localType, cloud.Options{}, nil},
		"arm":                          {"BASIC2-A2C-4G", cloud.Options{}, nil},
		"local root of a block type":   {blockType, cloud.Options{RootVolume: local(20)}, []string{"root_volume.type", blockType}},
		"local root is too large":      {localType, cloud.Options{RootVolume: local(21)}, []string{"root_volume.size_gb: 21", "has 20"}},
		"local root is as large":       {localType, cloud.Options{RootVolume: local(20)}, nil},
		"GPU root is too small":        {"L4-1-24G", cloud.Options{Image: "ubuntu_noble_gpu_os_12", RootVolume: onBlock(124)}, []string{"root_volume.size_gb: 124", "125"}},
		"GPU type, plain image":        {"L4-1-24G", cloud.Options{}, []string{`image "ubuntu_noble"`, "_gpu_os_"}},
		"GPU image, plain type":        {blockType, cloud.Options{Image: "ubuntu_noble_gpu_os_12"}, []string{`image "ubuntu_noble_gpu_os_12"`}},
		"no such label":                {blockType, cloud.Options{Image: "ubuntu_noblesse"}, []string{`image "ubuntu_noblesse"`, "no such label"}},
		"no such id":                   {blockType, cloud.Options{Image: nowhere}, []string{"image " + nowhere}},
		"id of another architecture":   {"BASIC2-A2C-4G", cloud.Options{Image: blockImage}, []string{"image: " + blockImage, "x86_64", "arm64"}},
		"id of a block image, local":   {localType, cloud.Options{Image: blockImage, RootVolume: local(20)}, []string{"image: " + blockImage, "root_volume.type"}},
		"id of a local image, block":   {localType, cloud.Options{Image: localImage, RootVolume: onBlock(20)}, []string{"image: " + localImage, "root_volume.type"}},
		"id of a local image, no disk": {blockType, cloud.Options{Image: localImage}, []string{"image: " + localImage, blockType}},
		"id that fits":                 {blockType, cloud.Options{Image: blockImage}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			err := c.Fit(within(t), tc.typ, tc.o)
			if len(tc.want) == 0 {
				must(t, err)
				return
			}
			if !errors.Is(err, cloud.ErrInvalid) {
				t.Fatalf("Fit = %v, want ErrInvalid", err)
			}
			for _, want := range tc.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("Fit = %v, want %q in it", err, want)
				}
			}
			if strings.Contains(err.Error(), "\n") {
				t.Errorf("Fit tells one fault twice: %v", err)
			}
		})
	}
	if after := w.Requests(fakecloud.RouteCreateServer); after != before {
		t.Errorf("Fit sent %d orders", after-before)
	}
}

// An API that cannot be asked says nothing against an offering.
func TestFitWithoutAnAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.Inject(fakecloud.Fault{Route: fakecloud.RouteListLocalImages, Times: -1, Reply: fakecloud.Unavailable()})
		c := w.connect(t, func(cfg *instances.Config) { cfg.Timing.Images = time.Minute })
		if err := c.Fit(within(t), blockType, cloud.Options{}); err == nil || errors.Is(err, cloud.ErrInvalid) {
			t.Errorf("Fit = %v, want an error that is not ErrInvalid", err)
		}
	})
}
