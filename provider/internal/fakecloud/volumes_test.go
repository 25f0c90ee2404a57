package fakecloud

import (
	"errors"
	"fmt"
	"testing"
	"time"

	block "github.com/scaleway/scaleway-sdk-go/api/block/v1"
	blockalpha "github.com/scaleway/scaleway-sdk-go/api/block/v1alpha1"
	"github.com/scaleway/scaleway-sdk-go/api/instance/v1"
	"github.com/scaleway/scaleway-sdk-go/scw"
)

// What root volume a create makes, by what it asks for.
func TestRootVolumes(t *testing.T) {
	type volumes = map[string]*instance.VolumeServerTemplate
	tests := []struct {
		name, commercialType, image string
		volumes                     volumes
		want                        string
	}{
		{"network image", "PLAY2-NANO", "ubuntu_noble", nil, "sbs_volume 10 Ubuntu 24.04 Noble Numbat_sbs_volume_0"},
		{"local image takes the type's maximum", "DEV1-S", "ubuntu_noble", nil, "l_ssd 20 Ubuntu 24.04 Noble Numbat"},
		{"kind follows the image", "DEV1-M", "ubuntu_noble", volumes{"0": {Boot: new(false)}}, "l_ssd 40 Ubuntu 24.04 Noble Numbat"},
		{"a size of its own", "DEV1-M", "ubuntu_noble", volumes{"0": {Size: new(30 * scw.GB), VolumeType: "l_ssd"}}, "l_ssd 30 Ubuntu 24.04 Noble Numbat"},
		{"network on a type with local storage", "DEV1-M", "ubuntu_noble", volumes{"0": {Size: new(30 * scw.GB), VolumeType: "sbs_volume"}},
			"sbs_volume 30 Ubuntu 24.04 Noble Numbat_sbs_volume_0"},
		{"GPU image", "L4-1-24G", "ubuntu_noble_gpu_os_12", nil, "sbs_volume 125 Ubuntu Noble GPU OS 12_sbs_volume_0"},
		{"arm", "BASIC2-A2C-4G", "debian_trixie", nil, "sbs_volume 10 Debian 13 Trixie_sbs_volume_0"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			a := serve(t, Options{})
			s := a.createWith(t, &instance.CreateServerRequest{Name: "n", CommercialType: tt.commercialType, Image: &tt.image, Volumes: tt.volumes})
			v := a.Volumes()[0]
			if got := fmt.Sprint(v.Type, " ", v.Size/gigabyte, " ", v.Name); got != tt.want {
				t.Errorf("%s, want %s", got, tt.want)
			}
			if len(v.Tags) != 0 || v.ServerID != s.ID || s.Volumes["0"].ID != v.ID {
				t.Errorf("volume %+v of server %s with %+v", v, s.ID, s.Volumes)
			}
			if string(s.Arch) != a.types.byName[tt.commercialType].arch {
				t.Errorf("arch %s", s.Arch)
			}
		})
	}
}

// Each plane answers 404 for what lives on the other, even while it is attached.
func TestTwoPlanes(t *testing.T) {
	a := serve(t, Options{})
	local := a.createWith(t, &instance.CreateServerRequest{Name: "l", CommercialType: "DEV1-S"}).Volumes["0"].ID
	network := a.create(t, "n").Volumes["0"].ID
	alpha := blockalpha.NewAPI(a.client)

	if v, err := a.instance.GetVolume(&instance.GetVolumeRequest{VolumeID: local}); err != nil || v.Volume.Server.Name != "l" {
		t.Errorf("local on its plane: %v, %v", v, err)
	}
	if v, err := a.block.GetVolume(&block.GetVolumeRequest{VolumeID: network}); err != nil || v.Status != block.VolumeStatusInUse || v.References[0].Status != block.ReferenceStatusAttached {
		t.Errorf("network on its plane: %+v, %v", v, err)
	}
	if v, err := alpha.GetVolume(&blockalpha.GetVolumeRequest{VolumeID: network}); err != nil || v.Specs.Class != "sbs" {
		t.Errorf("network on v1alpha1: %+v, %v", v, err)
	}
	var missing *scw.ResourceNotFoundError
	if _, err := a.instance.GetVolume(&instance.GetVolumeRequest{VolumeID: network}); !errors.As(err, &missing) || missing.Resource != "instance_volume" {
		t.Errorf("network on the instance plane: %#v", err)
	}
	if _, err := a.block.GetVolume(&block.GetVolumeRequest{VolumeID: local}); !errors.As(err, &missing) || missing.Resource != "volume" {
		t.Errorf("local on the block plane: %#v", err)
	}
	list, err := a.instance.ListVolumes(&instance.ListVolumesRequest{}, scw.WithAllPages())
	if err != nil || len(list.Volumes) != 1 || list.Volumes[0].ID != local {
		t.Errorf("instance plane lists %v, %v", list, err)
	}
	if err := a.instance.DeleteVolume(&instance.DeleteVolumeRequest{VolumeID: local}); err == nil {
		t.Error("an attached local volume was deleted")
	}
}

func TestBlockVolumes(t *testing.T) {
	a := serve(t, Options{})
	v, err := a.block.CreateVolume(&block.CreateVolumeRequest{Name: "data", FromEmpty: &block.CreateVolumeRequestFromEmpty{Size: 20 * scw.GB}, PerfIops: new(uint32(15000))})
	if err != nil || v.Status != block.VolumeStatusCreating || v.Type != "sbs_15k" {
		t.Fatalf("created %+v, %v", v, err)
	}
	v, err = a.block.UpdateVolume(&block.UpdateVolumeRequest{VolumeID: v.ID, Tags: &[]string{"op=1"}, Size: new(30 * scw.GB), Name: new("bulk")})
	if err != nil || v.Size != 30*scw.GB || v.Name != "bulk" || v.Status != block.VolumeStatusAvailable {
		t.Fatalf("updated %+v, %v", v, err)
	}
	if _, err := a.block.UpdateVolume(&block.UpdateVolumeRequest{VolumeID: v.ID, Size: new(scw.GB)}); err == nil {
		t.Error("a volume shrank")
	}
	s := a.create(t, "n")
	if _, err := a.instance.AttachServerVolume(&instance.AttachServerVolumeRequest{ServerID: s.ID, VolumeID: v.ID, VolumeType: "sbs_volume"}); err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		req  block.ListVolumesRequest
		want int
	}{
		"tag":    {block.ListVolumesRequest{Tags: []string{"op=1"}}, 1},
		"server": {block.ListVolumesRequest{ProductResourceID: &s.ID}, 2},
		"name":   {block.ListVolumesRequest{Name: new("bul")}, 1},
		"ids":    {block.ListVolumesRequest{VolumeIDs: []string{v.ID}}, 1},
		"type":   {block.ListVolumesRequest{VolumeType: new("sbs_5k")}, 1},
		"order":  {block.ListVolumesRequest{OrderBy: block.ListVolumesRequestOrderByNameDesc}, 2},
	} {
		list, err := a.block.ListVolumes(&tt.req, scw.WithAllPages())
		if err != nil || len(list.Volumes) != tt.want {
			t.Errorf("by %s: %v, %v, want %d", name, list, err, tt.want)
		} else if name == "order" && list.Volumes[0].Name != "bulk" {
			t.Errorf("by name, descending: %s first", list.Volumes[0].Name)
		}
	}
	types, err := a.block.ListVolumeTypes(&block.ListVolumeTypesRequest{Zone: scw.ZoneFrPar3}, scw.WithAllPages())
	if err != nil || len(types.VolumeTypes) != 2 || types.VolumeTypes[0].Pricing.Nanos != 177_000 {
		t.Errorf("types %+v, %v", types, err)
	}
}

func TestAttachAndDetach(t *testing.T) {
	a := serve(t, Options{Scale: 1})
	a.SetDelays(Delays{VolumeMake: time.Hour, DetachLive: time.Hour})
	s := a.createWith(t, &instance.CreateServerRequest{Name: "n", CommercialType: "DEV1-S", Volumes: map[string]*instance.VolumeServerTemplate{
		"0": {Size: new(10 * scw.GB), VolumeType: "sbs_volume"},
	}})
	root := s.Volumes["0"].ID
	attach := func(id string) error {
		_, err := a.instance.AttachServerVolume(&instance.AttachServerVolumeRequest{ServerID: s.ID, VolumeID: id})
		return err
	}
	fresh, err := a.block.CreateVolume(&block.CreateVolumeRequest{Name: "data", FromEmpty: &block.CreateVolumeRequestFromEmpty{Size: scw.GB}})
	if err != nil {
		t.Fatal(err)
	}
	var busy *scw.TransientStateError
	if err := attach(fresh.ID); !errors.As(err, &busy) || busy.CurrentState != "creating" {
		t.Errorf("attach of a volume that is being made: %#v", err)
	}
	if err := attach(root); !errors.As(err, &busy) {
		t.Errorf("attach of a volume in use: %#v", err)
	}
	detach := func() error {
		_, err := a.instance.DetachServerVolume(&instance.DetachServerVolumeRequest{ServerID: s.ID, VolumeID: root})
		return err
	}
	if err := detach(); err != nil {
		t.Fatal(err)
	}
	wantErr(t, detach(), "volume_id does not respect constraint, Volume "+root+" is not attached to this server")
	if err := a.block.DeleteVolume(&block.DeleteVolumeRequest{VolumeID: root}); !errors.As(err, &busy) {
		t.Errorf("delete while it is being detached: %#v", err)
	}
	if n := len(a.get(t, s.ID).Volumes); n != 0 {
		t.Errorf("the server still shows %d volumes", n)
	}

	local, err := a.instance.CreateVolume(&instance.CreateVolumeRequest{Name: "l", VolumeType: "l_ssd", Size: new(scw.GB)})
	if err != nil {
		t.Fatal(err)
	}
	if err := attach(local.Volume.ID); err != nil {
		t.Errorf("attach of a local volume to a stopped server: %v", err)
	}
	big, err := a.instance.CreateVolume(&instance.CreateVolumeRequest{Name: "l", VolumeType: "l_ssd", Size: new(20 * scw.GB)})
	if err != nil {
		t.Fatal(err)
	}
	wantErr(t, attach(big.Volume.ID), "DEV1-S takes at most 20000000000 bytes of l_ssd, 21000000000 asked for")
	setVolumes := func(ids map[string]string) error {
		volumes := map[string]*instance.VolumeServerTemplate{}
		for slot, id := range ids {
			volumes[slot] = &instance.VolumeServerTemplate{ID: &id}
		}
		_, err := a.instance.UpdateServer(&instance.UpdateServerRequest{ServerID: s.ID, Volumes: &volumes})
		return err
	}
	wantErr(t, setVolumes(map[string]string{"0": local.Volume.ID, "1": local.Volume.ID}), "named twice")
	wantErr(t, setVolumes(map[string]string{"0": local.Volume.ID, "1": big.Volume.ID}), "21000000000 asked for")
	wantErr(t, setVolumes(map[string]string{"0": ""}), "volumes.0.id")
	wantErr(t, setVolumes(map[string]string{"0": s.ID}), "instance_volume")
	if err := setVolumes(map[string]string{"3": big.Volume.ID}); err != nil {
		t.Errorf("one volume in place of another: %v", err)
	}
	if err := a.ForceState(s.ID, StateRunning, ""); err != nil {
		t.Fatal(err)
	}
	wantErr(t, setVolumes(nil), "instance should be powered off")
	wantErr(t, attach(local.Volume.ID), "instance should be powered off")
	if err := a.ForceState(s.ID, StateStopped, ""); err != nil {
		t.Fatal(err)
	}
	if err := setVolumes(nil); err != nil {
		t.Fatal(err)
	}
	if v, err := a.instance.GetVolume(&instance.GetVolumeRequest{VolumeID: local.Volume.ID}); err != nil || v.Volume.Server != nil {
		t.Errorf("after all volumes were taken off: %+v, %v", v, err)
	}
	if _, err := a.instance.UpdateVolume(&instance.UpdateVolumeRequest{VolumeID: local.Volume.ID, Name: new("kept"), Tags: &[]string{"t"}}); err != nil {
		t.Fatal(err)
	}
	list, err := a.instance.ListVolumes(&instance.ListVolumesRequest{Tags: []string{"t"}, Name: new("kep")})
	if err != nil || len(list.Volumes) != 1 {
		t.Errorf("by its new tag and name: %v, %v", list, err)
	}
	if err := a.instance.DeleteVolume(&instance.DeleteVolumeRequest{VolumeID: local.Volume.ID}); err != nil {
		t.Error(err)
	}
}

// A volume that exists can be the root, or a second one beside the image's.
func TestExistingVolumes(t *testing.T) {
	a := serve(t, Options{})
	v, err := a.block.CreateVolume(&block.CreateVolumeRequest{Name: "data", FromEmpty: &block.CreateVolumeRequestFromEmpty{Size: 20 * scw.GB}})
	if err != nil {
		t.Fatal(err)
	}
	img := a.create(t, "probe").Image.ID
	s := a.createWith(t, &instance.CreateServerRequest{Name: "n", Image: &img, Volumes: map[string]*instance.VolumeServerTemplate{"1": {ID: &v.ID, VolumeType: "sbs_volume"}}})
	twice := map[string]*instance.VolumeServerTemplate{"1": {ID: &v.ID}, "2": {ID: &v.ID}}
	if _, err := a.instance.CreateServer(&instance.CreateServerRequest{CommercialType: "PLAY2-NANO", Image: &img, Volumes: twice}); err == nil {
		t.Error("one volume in two places")
	}
	if len(s.Volumes) != 2 || s.Volumes["1"].ID != v.ID {
		t.Errorf("volumes %+v, want a root from the image and the named one", s.Volumes)
	}
}
