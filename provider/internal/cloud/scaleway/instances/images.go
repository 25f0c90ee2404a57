package instances

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/scaleway/scaleway-sdk-go/api/instance/v1"
	"github.com/scaleway/scaleway-sdk-go/api/marketplace/v2"
	"github.com/scaleway/scaleway-sdk-go/scw"
	"github.com/scaleway/scaleway-sdk-go/validation"

	"bigfleet-providers/provider/internal/cloud"
	"bigfleet-providers/provider/internal/cloud/scaleway"
)

// maxImages bounds how many names the cache remembers.
const maxImages = 256

// imageCache turns the name of an image into the UUID that fits a type. The
// SDK's own look-up inside CreateServer ignores the caller's context, reads one
// page only and panics on some volume maps, so it is never reached: servers are
// always ordered by UUID.
type imageCache struct {
	api  *marketplace.API
	zone scw.Zone
	ttl  time.Duration

	mu     sync.Mutex
	labels map[string]*cachedLabel
	images map[string]cachedImage // by UUID
}

// cachedLabel is what a label stands for in the zone. Its lock is held while it
// is asked for, so that a burst of creates asks once.
type cachedLabel struct {
	mu    sync.Mutex
	local []*marketplace.LocalImage
	read  time.Time
}

type cachedImage struct {
	image *instance.Image
	read  time.Time
}

func newImageCache(api *marketplace.API, zone scw.Zone, ttl time.Duration) *imageCache {
	c := &imageCache{api: api, zone: zone, ttl: ttl}
	c.forget()
	return c
}

// resolve returns the UUID of the image for the commercial type and the kind of
// root volume, "" for any. A label stands for several images, one for each
// architecture and kind of root volume; the first that fits the type is the
// vendor's own choice.
func (c *imageCache) resolve(ctx context.Context, name, commercialType string, root cloud.VolumeType) (string, error) {
	if validation.IsUUID(name) {
		return name, nil
	}
	local, err := c.list(ctx, name)
	if err != nil {
		return "", err
	}
	otherwise := false // the image fits the type, on another kind of volume
	for _, image := range local {
		if !slices.Contains(image.CompatibleCommercialTypes, strings.ToUpper(commercialType)) {
			continue
		}
		if root == "" || image.Type == localImageType(root) {
			return image.ID, nil
		}
		otherwise = true
	}
	if otherwise {
		return "", fmt.Errorf("%w: root_volume.type: image %q has no variant that boots type %q from a volume of type %q; use the other type of volume",
			cloud.ErrInvalid, name, commercialType, root)
	}
	return "", fmt.Errorf("%w: image %q has no variant for type %q in zone %s: the type is misspelt, not sold there, or needs another image (GPU types need a *_gpu_os_* label)",
		cloud.ErrInvalid, name, commercialType, c.zone)
}

func localImageType(root cloud.VolumeType) marketplace.LocalImageType {
	if root == cloud.VolumeLocal {
		return marketplace.LocalImageTypeInstanceLocal
	}
	return marketplace.LocalImageTypeInstanceSbs
}

// forget makes the next look-up ask again: an image that was resolved is gone.
func (c *imageCache) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.labels, c.images = map[string]*cachedLabel{}, map[string]cachedImage{}
}

func (c *imageCache) list(ctx context.Context, label string) ([]*marketplace.LocalImage, error) {
	c.mu.Lock()
	l := c.labels[label]
	if l == nil {
		if len(c.labels) >= maxImages {
			clear(c.labels)
		}
		l = &cachedLabel{}
		c.labels[label] = l
	}
	c.mu.Unlock()

	l.mu.Lock()
	defer l.mu.Unlock()
	if l.local != nil && time.Since(l.read) < c.ttl {
		return l.local, nil
	}
	asked := time.Now()
	resp, err := c.api.ListLocalImages(&marketplace.ListLocalImagesRequest{
		ImageLabel: &label, Zone: &c.zone,
	}, scw.WithContext(ctx), scw.WithAllPages())
	err = scaleway.Explain(err)
	switch {
	case errors.Is(err, cloud.ErrNotFound):
		return nil, fmt.Errorf("%w: image %q: the marketplace has no such label; check --image and the offering's image", cloud.ErrInvalid, label)
	case err != nil:
		return nil, fmt.Errorf("resolve image %q: %w", label, err)
	case len(resp.LocalImages) == 0:
		return nil, fmt.Errorf("%w: image %q is not offered in zone %s; check --image and the offering's image", cloud.ErrInvalid, label, c.zone)
	}
	l.local, l.read = resp.LocalImages, asked
	return l.local, nil
}

// read reads an image by its UUID.
func (c *imageCache) read(ctx context.Context, api *instance.API, id string) (*instance.Image, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if known, ok := c.images[id]; ok && time.Since(known.read) < c.ttl {
		return known.image, nil
	}
	asked := time.Now()
	resp, err := api.GetImage(&instance.GetImageRequest{Zone: c.zone, ImageID: id}, scw.WithContext(ctx))
	switch err = scaleway.Explain(err); {
	case errors.Is(err, cloud.ErrNotFound):
		return nil, fmt.Errorf("%w: image %s is not in zone %s; ids of marketplace images change every few months: use a label", cloud.ErrInvalid, id, c.zone)
	case err != nil:
		return nil, fmt.Errorf("read image %s: %w", id, err)
	case resp.Image == nil:
		return nil, fmt.Errorf("read image %s: %w", id, scaleway.ErrEmptyAnswer)
	}
	if len(c.images) >= maxImages {
		clear(c.images)
	}
	c.images[id] = cachedImage{image: resp.Image, read: asked}
	return resp.Image, nil
}
