package fakecloud

import (
	"crypto/sha256"
	"encoding/binary"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
)

// osImage is what the marketplace sells under one label.
type osImage struct {
	label, displayName string
	gpu, windows       bool
}

// osImages are the labels seen; kapsule images are left out, nobody boots them
// by hand.
var osImages = []osImage{
	{label: "almalinux_8", displayName: "AlmaLinux 8"},
	{label: "almalinux_9", displayName: "AlmaLinux 9"},
	{label: "centos_stream_9", displayName: "CentOS Stream 9"},
	{label: "debian_bullseye", displayName: "Debian 11 Bullseye"},
	{label: "debian_bookworm", displayName: "Debian 12 Bookworm"},
	{label: "debian_trixie", displayName: "Debian 13 Trixie"},
	{label: "docker", displayName: "Docker"},
	{label: "fedora_40", displayName: "Fedora 40"},
	{label: "fedora_41", displayName: "Fedora 41"},
	{label: "fedora_42", displayName: "Fedora 42"},
	{label: "fedora_43", displayName: "Fedora 43"},
	{label: "gitlab", displayName: "GitLab"},
	{label: "nextcloud", displayName: "Nextcloud"},
	{label: "openvpn", displayName: "OpenVPN"},
	{label: "rockylinux_8", displayName: "Rocky Linux 8"},
	{label: "rockylinux_9", displayName: "Rocky Linux 9"},
	{label: "ubuntu_focal", displayName: "Ubuntu 20.04 Focal Fossa"},
	{label: "ubuntu_jammy", displayName: "Ubuntu 22.04 Jammy Jellyfish"},
	{label: "ubuntu_noble", displayName: "Ubuntu 24.04 Noble Numbat"},
	{label: "ubuntu_resolute", displayName: "Ubuntu 26.04 Resolute Raccoon"},
	{label: "wordpress", displayName: "WordPress"},
	{label: "ubuntu_jammy_gpu_os_12", displayName: "Ubuntu Jammy GPU OS 12", gpu: true},
	{label: "ubuntu_noble_gpu_os_12", displayName: "Ubuntu Noble GPU OS 12", gpu: true},
	{label: "windows_server_2022", displayName: "Windows Server 2022", windows: true},
	{label: "windows_server_2022_core", displayName: "Windows Server 2022 Core", windows: true},
}

// image is one local image: an OS for one architecture and one kind of root
// volume in one zone. Its id is a digest of that, with its index in images at
// the end, so that a look-up needs no table; ids differ between zones and mean
// nothing to the real cloud.
type image struct {
	osImage
	arch  string
	local bool
	zone  string
	index uint16
}

// images are all variants, in the order in which the API lists those of one
// label: local for x86, network for arm, network for x86.
var images = func() []image {
	var out []image
	add := func(o osImage, arch string, local bool) {
		out = append(out, image{osImage: o, arch: arch, local: local, index: uint16(len(out))})
	}
	for _, o := range osImages {
		if !o.gpu && !o.windows {
			add(o, "x86_64", true)
			add(o, "arm64", false)
		}
		add(o, "x86_64", false)
	}
	return out
}()

// imagesPublished is the date that every image shows.
var imagesPublished = time.Date(2026, time.July, 1, 9, 0, 0, 0, time.UTC)

func imagesIn(zone string) []*image {
	out := make([]*image, len(images))
	for i, img := range images {
		img.zone = zone
		out[i] = &img
	}
	return out
}

func (img *image) id() string {
	kind := "sbs"
	if img.local {
		kind = "local"
	}
	return digestID(img.index, "image", img.zone, img.label, img.arch, kind)
}

// digestID is a UUID with a digest of the words, and the number in its last
// two bytes.
func digestID(number uint16, words ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(words, "\x00")))
	id := uuid.UUID(sum[:16])
	id[6], id[8] = id[6]&0x0f|0x40, id[8]&0x3f|0x80
	binary.BigEndian.PutUint16(id[14:], number)
	return id.String()
}

func imageByID(zone, id string) *image {
	parsed, err := uuid.Parse(id)
	if err != nil {
		return nil
	}
	n := int(binary.BigEndian.Uint16(parsed[14:]))
	if n >= len(images) {
		return nil
	}
	img := images[n]
	img.zone = zone
	if img.id() != parsed.String() {
		return nil
	}
	return &img
}

// suits says whether the marketplace lists the type as compatible.
func (img *image) suits(p *product) bool {
	switch {
	case img.gpu:
		return p.gpus > 0
	case img.windows:
		return p.windows()
	case img.arch != p.arch || p.gpus > 0 || p.windows():
		return false
	case img.local:
		return p.localMax > 0
	default:
		return p.family() != "ENT1" // gone since 2025, in no list
	}
}

// rootID is the snapshot or volume that the root is copied from.
func (img *image) rootID() string { return digestID(img.index, "root", img.zone, img.label) }

func (img *image) rootSize() uint64 {
	if img.gpu {
		return 125 * gigabyte
	}
	return 10 * gigabyte
}

// imageFor finds the image of a create. A label, which the API takes too,
// means the network variant for the type.
func (c *Cloud) imageFor(zone, ref string, p *product) (*image, error) {
	if ref == "" {
		return nil, nil
	}
	img := imageByID(zone, ref)
	if uuid.Validate(ref) != nil {
		variants := imagesIn(zone)
		if i := slices.IndexFunc(variants, func(v *image) bool { return v.label == ref && !v.local && v.suits(p) }); i >= 0 {
			img = variants[i]
		}
	}
	if img == nil {
		return nil, notFound(resImage, ref)
	}
	if img.arch != p.arch { // inferred: no recording mixes architectures
		return nil, invalid(constraint("image", "the image is for "+img.arch+", the type for "+p.arch))
	}
	return img, nil
}

type imageBody struct {
	ID                string         `json:"id"`
	Name              string         `json:"name"`
	Organization      string         `json:"organization"`
	Project           string         `json:"project"`
	RootVolume        rootVolumeBody `json:"root_volume"`
	ExtraVolumes      struct{}       `json:"extra_volumes"`
	Public            bool           `json:"public"`
	Arch              string         `json:"arch"`
	Created           stamp          `json:"creation_date"`
	Modified          stamp          `json:"modification_date"`
	DefaultBootscript *string        `json:"default_bootscript"`
	FromServer        string         `json:"from_server"`
	State             string         `json:"state"`
	Tags              []string       `json:"tags"`
	Zone              string         `json:"zone"`
}

type rootVolumeBody struct {
	VolumeType string `json:"volume_type"`
	ID         string `json:"id"`
	Size       uint64 `json:"size"`
	Name       string `json:"name"`
}

// vendorID owns the public images.
const vendorID = "51b656e3-4865-41e8-adbc-0c45bdd780db"

func (img *image) view() imageBody {
	root := rootVolumeBody{VolumeType: "sbs_snapshot", ID: img.rootID()}
	if img.local {
		root.VolumeType, root.Size, root.Name = kindLocal, img.rootSize(), img.displayName
	}
	return imageBody{
		ID: img.id(), Name: img.displayName, Organization: vendorID, Project: vendorID, RootVolume: root,
		Public: true, Arch: img.arch, Created: stamp(imagesPublished), Modified: stamp(imagesPublished),
		State: "available", Tags: []string{}, Zone: img.zone,
	}
}
