package instances

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/scaleway/scaleway-sdk-go/api/instance/v1"
	"github.com/scaleway/scaleway-sdk-go/scw"
	"github.com/scaleway/scaleway-sdk-go/validation"

	"bigfleet-providers/provider/internal/cloud"
	"bigfleet-providers/provider/internal/cloud/scaleway"
)

// Sizes of root volumes, as the vendor documents them.
const (
	minRootGB = 10
	gpuRootGB = 125 // of the images with GPU drivers
)

// gpuImage marks the labels of images with GPU drivers.
const gpuImage = "_gpu_os_"

var _ cloud.Fitter = (*Cloud)(nil)

// image is what a server with the options boots.
func (c *Cloud) image(o cloud.Options) string { return cmp.Or(o.Image, c.label) }

// publicAddress is what a server with the options has.
func (c *Cloud) publicAddress(o cloud.Options) cloud.PublicIP { return cmp.Or(o.PublicIP, c.public) }

// tags are on everything that one Create makes beside its server.
func (c *Cloud) tags(spec cloud.Spec, o cloud.Options) []string {
	own := scaleway.Tags{Owner: c.scope.Provider, Machine: spec.MachineID, Operation: spec.OperationID}.List()
	return append(own, o.Tags...)
}

func rootType(o cloud.Options) cloud.VolumeType {
	if o.RootVolume == nil {
		return ""
	}
	return o.RootVolume.Type
}

// leastRoot is the smallest root volume that the image fits into, in GB.
func leastRoot(image string) int {
	if strings.Contains(image, gpuImage) {
		return gpuRootGB
	}
	return minRootGB
}

// volumes is the map of an order: nil, which leaves it to the image, or one with
// the root volume under "0".
func volumes(image string, v *cloud.RootVolume) map[string]*instance.VolumeServerTemplate {
	if v == nil {
		return nil
	}
	kind := instance.VolumeVolumeTypeLSSD
	if v.Type == cloud.VolumeBlock {
		kind = instance.VolumeVolumeTypeSbsVolume
	}
	size := scw.Size(cmp.Or(v.SizeGB, leastRoot(image))) * scw.GB
	return map[string]*instance.VolumeServerTemplate{"0": {Size: &size, VolumeType: kind}}
}

// Fit implements cloud.Fitter. It judges by the types that Types read last, and
// leaves out what depends on one that was not read.
func (c *Cloud) Fit(ctx context.Context, commercialType string, o cloud.Options) error {
	c.mu.Lock()
	st := c.offered[commercialType]
	c.mu.Unlock()
	rootErr := fitRoot(commercialType, c.image(o), st, o.RootVolume)
	if rootErr != nil {
		o.RootVolume = nil // one fault is told once
	}
	return errors.Join(c.fitImage(ctx, commercialType, st, o), rootErr)
}

// fitRoot judges the root volume by what the type can have.
func fitRoot(commercialType, image string, st *instance.ServerType, v *cloud.RootVolume) error {
	if v == nil {
		return nil
	}
	fault := func(field, format string, args ...any) error {
		return fmt.Errorf("%w: root_volume.%s: %s", cloud.ErrInvalid, field, fmt.Sprintf(format, args...))
	}
	if least := leastRoot(image); v.SizeGB != 0 && v.SizeGB < least {
		return fault("size_gb", "%d; image %s needs %d or more", v.SizeGB, image, least)
	}
	if v.Type != cloud.VolumeLocal || st == nil || st.VolumesConstraint == nil {
		return nil
	}
	switch most := int(st.VolumesConstraint.MaxSize / scw.GB); {
	case most == 0:
		return fault("type", "%s has no local disk to boot from; use %q", commercialType, cloud.VolumeBlock)
	case v.SizeGB > most:
		return fault("size_gb", "%d; %s has %d of local disk", v.SizeGB, commercialType, most)
	}
	return nil
}

// fitImage judges the image by architecture and kind of root volume. A label is
// judged by looking for a variant; an id by reading the image.
func (c *Cloud) fitImage(ctx context.Context, commercialType string, st *instance.ServerType, o cloud.Options) error {
	name := c.image(o)
	if !validation.IsUUID(name) {
		_, err := c.images.resolve(ctx, name, commercialType, rootType(o))
		return err
	}
	image, err := c.images.read(ctx, c.api, name)
	if err != nil {
		return err
	}
	if st != nil && image.Arch != "" && st.Arch != "" && image.Arch != st.Arch {
		return fmt.Errorf("%w: image: %s is for %s, but %s is %s", cloud.ErrInvalid, name, image.Arch, commercialType, st.Arch)
	}
	if image.RootVolume == nil {
		return nil
	}
	onBlock := image.RootVolume.VolumeType == instance.VolumeVolumeTypeSbsSnapshot
	switch kind := rootType(o); {
	case kind == cloud.VolumeLocal && onBlock:
		return fmt.Errorf("%w: image: %s boots from block volumes, but root_volume.type is %q", cloud.ErrInvalid, name, kind)
	case kind == cloud.VolumeBlock && !onBlock:
		return fmt.Errorf("%w: image: %s boots from local volumes, but root_volume.type is %q", cloud.ErrInvalid, name, kind)
	case kind == "" && !onBlock && st != nil && st.VolumesConstraint != nil && st.VolumesConstraint.MaxSize == 0:
		return fmt.Errorf("%w: image: %s boots from local volumes, and %s has none", cloud.ErrInvalid, name, commercialType)
	}
	return nil
}
