package fakecloud

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	block "github.com/scaleway/scaleway-sdk-go/api/block/v1"
	"github.com/scaleway/scaleway-sdk-go/api/instance/v1"
	"github.com/scaleway/scaleway-sdk-go/api/marketplace/v2"
	"github.com/scaleway/scaleway-sdk-go/scw"
)

func TestPagesOf205Servers(t *testing.T) {
	a := serve(t, Options{})
	img := a.create(t, "probe").Image.ID // saves a look-up a server
	for i := range 204 {
		a.createWith(t, &instance.CreateServerRequest{Name: fmt.Sprintf("node-%d", i), Image: &img, Tags: []string{"fleet", fmt.Sprintf("half=%d", i%2)}})
	}

	all, err := a.instance.ListServers(&instance.ListServersRequest{}, scw.WithAllPages())
	if err != nil {
		t.Fatal(err)
	}
	if len(all.Servers) != 205 || all.TotalCount != 205 {
		t.Fatalf("%d servers, total %d, want 205", len(all.Servers), all.TotalCount)
	}
	if all.Servers[0].Name != "node-203" || all.Servers[204].Name != "probe" {
		t.Errorf("order %s … %s, want newest first", all.Servers[0].Name, all.Servers[204].Name)
	}
	if n := a.Requests(RouteListServers); n != 5 {
		t.Errorf("%d pages of 50, want 5", n)
	}
	if n := a.Requests(RouteMetadata); n != 1 {
		t.Errorf("%d calls of /metadata, want 1: the SDK keeps a good answer", n)
	}

	half, err := a.instance.ListServers(&instance.ListServersRequest{Tags: []string{"fleet", "half=1"}}, scw.WithAllPages())
	if err != nil || len(half.Servers) != 102 {
		t.Errorf("by two tags: %d, %v, want 102", len(half.Servers), err)
	}
	one, err := a.instance.ListServers(&instance.ListServersRequest{PerPage: new(uint32(1000)), Page: new(int32(3))})
	if err != nil || len(one.Servers) != 5 || one.TotalCount != 205 {
		t.Errorf("third page of at most 100: %d of %d, %v, want 5 of 205", len(one.Servers), one.TotalCount, err)
	}
	byName, err := a.instance.ListServers(&instance.ListServersRequest{Name: new("node-10")}, scw.WithAllPages())
	if err != nil || len(byName.Servers) != 11 {
		t.Errorf("the name filter finds %d, %v, want 11: it matches parts", len(byName.Servers), err)
	}

	// Each server has a volume, paged in the body.
	volumes, err := a.block.ListVolumes(&block.ListVolumesRequest{}, scw.WithAllPages())
	if err != nil || len(volumes.Volumes) != 205 || volumes.TotalCount != 205 {
		t.Errorf("%d volumes, %v, want 205", len(volumes.Volumes), err)
	}
}

func TestPagesOf148Types(t *testing.T) {
	a := serve(t, Options{})
	open := a.as(t, "SCWNOSUCHKEY00000000", "99999999-9999-4999-8999-999999999999")
	types, err := open.instance.ListServersTypes(&instance.ListServersTypesRequest{}, scw.WithAllPages())
	if err != nil || len(types.Servers) != 148 {
		t.Fatalf("%d types, %v, want 148 without a valid key", len(types.Servers), err)
	}
	if n := a.Requests(RouteListServerTypes); n != 3 {
		t.Errorf("%d pages, want 3", n)
	}
	dev := types.Servers["DEV1-S"]
	if dev == nil || dev.HourlyPrice != 0.008976 || dev.Ncpus != 2 || dev.RAM != 2<<30 || dev.VolumesConstraint.MaxSize != 20*scw.GB {
		t.Errorf("DEV1-S: %+v", dev)
	}
	if l4 := types.Servers["L4-2-24G"]; *l4.Gpu != 2 || l4.GpuInfo.GpuMemory != 24<<30 {
		t.Errorf("L4-2-24G: %+v", l4)
	}

	a.SetStock("fr-par-1", "L4-1-24G", Shortage)
	stock, err := open.instance.GetServerTypesAvailability(&instance.GetServerTypesAvailabilityRequest{}, scw.WithAllPages())
	if err != nil || len(stock.Servers) != 148 {
		t.Fatalf("%d availabilities, %v, want 148", len(stock.Servers), err)
	}
	if got := stock.Servers["L4-1-24G"].Availability; got != "shortage" {
		t.Errorf("L4-1-24G %s, want shortage", got)
	}
	if got := stock.Servers["DEV1-S"].Availability; got != "available" {
		t.Errorf("DEV1-S %s, want available", got)
	}
}

func TestLinkHeaders(t *testing.T) {
	c := New(Options{})
	defer c.Close()
	for range 3 {
		c.directServer(t, "PLAY2-NANO", "")
	}
	tests := []struct{ query, count, link string }{
		{"?per_page=2&name=n", "3", `</servers?page=2&per_page=2&name=n>; rel="next",</servers?page=2&per_page=2&name=n>; rel="last"`},
		{"?per_page=2&page=2", "3", `</servers?page=2&per_page=2>; rel="last"`},
		{"", "3", `</servers?page=1&per_page=50>; rel="last"`},
		{"?name=absent", "0", `</servers?page=0&per_page=50&name=absent>; rel="last"`},
	}
	for _, tt := range tests {
		h := c.direct("GET", serversPath+tt.query, "").Header()
		if diff := cmp.Diff([]string{tt.count, tt.link}, []string{h.Get("X-Total-Count"), h.Get("Link")}); diff != "" {
			t.Errorf("%q (-want +got):\n%s", tt.query, diff)
		}
	}
}

func TestServerFilters(t *testing.T) {
	a := serve(t, Options{})
	first := a.createWith(t, &instance.CreateServerRequest{Name: "first", Tags: []string{"a", "b", "a"}})
	second := a.createWith(t, &instance.CreateServerRequest{Name: "second", CommercialType: "DEV1-S", Tags: []string{"b,c"}, DynamicIPRequired: new(true)})
	a.mustAct(t, second.ID, instance.ServerActionPoweron)
	network := a.directNetwork(t)
	if _, err := a.instance.CreatePrivateNIC(&instance.CreatePrivateNICRequest{ServerID: first.ID, PrivateNetworkID: network}); err != nil {
		t.Fatal(err)
	}
	running := instance.ServerStateRunning
	tests := []struct {
		name string
		req  instance.ListServersRequest
		want []string
	}{
		{"all", instance.ListServersRequest{}, []string{"second", "first"}},
		{"oldest first", instance.ListServersRequest{Order: instance.ListServersRequestOrderCreationDateAsc}, []string{"first", "second"}},
		{"one tag", instance.ListServersRequest{Tags: []string{"a"}}, []string{"first"}},
		{"part of a tag", instance.ListServersRequest{Tags: []string{"b"}}, []string{"first"}},
		{"a comma splits", instance.ListServersRequest{Tags: []string{"b,c"}}, nil},
		{"state", instance.ListServersRequest{State: &running}, []string{"second"}},
		{"type", instance.ListServersRequest{CommercialType: new("DEV1-S")}, []string{"second"}},
		{"without address", instance.ListServersRequest{WithoutIP: new(true)}, []string{"first"}},
		{"ids", instance.ListServersRequest{Servers: []string{first.ID}}, []string{"first"}},
		{"network", instance.ListServersRequest{PrivateNetworks: []string{network}}, []string{"first"}},
		{"another project", instance.ListServersRequest{Project: new("99999999-9999-4999-8999-999999999999")}, nil},
		{"own project", instance.ListServersRequest{Project: new(DefaultProjectID)}, []string{"second", "first"}},
		{"another zone", instance.ListServersRequest{Zone: scw.ZoneNlAms1}, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := a.instance.ListServers(&tt.req, scw.WithAllPages())
			if err != nil {
				t.Fatal(err)
			}
			var names []string
			for _, s := range got.Servers {
				names = append(names, s.Name)
			}
			if !slices.Equal(names, tt.want) {
				t.Errorf("%v, want %v", names, tt.want)
			}
		})
	}
}

func TestMarketplace(t *testing.T) {
	a := serve(t, Options{})
	api := marketplace.NewAPI(a.client)
	list, err := api.ListLocalImages(&marketplace.ListLocalImagesRequest{
		ImageLabel: new("ubuntu_jammy"), Zone: new(zone), Type: marketplace.LocalImageTypeUnknownType, OrderBy: marketplace.ListLocalImagesRequestOrderByTypeAsc,
	})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, img := range list.LocalImages {
		got = append(got, fmt.Sprint(img.Type, " ", img.Arch, " ", len(img.CompatibleCommercialTypes)))
	}
	if want := []string{"instance_local x86_64 21", "instance_sbs arm64 27", "instance_sbs x86_64 104"}; !slices.Equal(got, want) {
		t.Errorf("variants %v, want %v", got, want)
	}

	for _, tt := range []struct {
		label, commercialType string
		kind                  marketplace.LocalImageType
		want                  string // what the image's root is made as, or the error
	}{
		{"ubuntu_noble", "DEV1-S", marketplace.LocalImageTypeUnknownType, "l_ssd"},
		{"ubuntu_noble", "DEV1-S", marketplace.LocalImageTypeInstanceSbs, "sbs_snapshot"},
		{"ubuntu_noble", "pro2-s", marketplace.LocalImageTypeUnknownType, "sbs_snapshot"},
		{"ubuntu_noble", "BASIC2-A2C-4G", marketplace.LocalImageTypeUnknownType, "sbs_snapshot"},
		{"ubuntu_noble_gpu_os_12", "L4-1-24G", marketplace.LocalImageTypeUnknownType, "sbs_snapshot"},
		{"ubuntu_noble", "L4-1-24G", marketplace.LocalImageTypeUnknownType, "couldn't find a local image"},
		{"plan_9", "DEV1-S", marketplace.LocalImageTypeUnknownType, "resource MarketplaceImage with ID plan_9 is not found"},
	} {
		img, err := api.GetLocalImageByLabel(&marketplace.GetLocalImageByLabelRequest{ImageLabel: tt.label, Zone: zone, CommercialType: tt.commercialType, Type: tt.kind})
		if err != nil {
			wantErr(t, err, tt.want)
			continue
		}
		full, err := a.instance.GetImage(&instance.GetImageRequest{ImageID: img.ID})
		if err != nil || string(full.Image.RootVolume.VolumeType) != tt.want {
			t.Errorf("%s for %s: root %v, %v, want %s", tt.label, tt.commercialType, full, err, tt.want)
		}
	}

	images, err := api.ListImages(&marketplace.ListImagesRequest{})
	if err != nil || len(images.Images) != 20 || int(images.TotalCount) != len(osImages) {
		t.Errorf("%d of %d images, %v, want the 20 of page one of %d", len(images.Images), images.TotalCount, err, len(osImages))
	}
	one, err := api.GetImage(&marketplace.GetImageRequest{ImageID: images.Images[0].ID})
	if err != nil || one.Label != images.Images[0].Label {
		t.Errorf("image by id: %v, %v", one, err)
	}
	local, err := api.GetLocalImage(&marketplace.GetLocalImageRequest{LocalImageID: list.LocalImages[1].ID})
	if err != nil || local.Label != "ubuntu_jammy" {
		t.Errorf("local image by id: %v, %v", local, err)
	}
	mine, err := a.instance.ListImages(&instance.ListImagesRequest{Arch: new("arm64")}, scw.WithAllPages())
	if err != nil || len(mine.Images) != 21 {
		t.Errorf("%d arm64 images, %v, want 21", len(mine.Images), err)
	}
}
