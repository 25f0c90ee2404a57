package instances

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/scaleway/scaleway-sdk-go/api/marketplace/v2"
	"github.com/scaleway/scaleway-sdk-go/scw"
	"github.com/scaleway/scaleway-sdk-go/validation"

	"bigfleet-providers/provider/internal/cloud"
	"bigfleet-providers/provider/internal/cloud/scaleway"
)

// imageCache turns the configured image into the UUID that fits a type. The
// SDK's own look-up inside CreateServer ignores the caller's context, reads one
// page only and panics on some volume maps, so it is never reached: servers are
// always ordered by UUID.
type imageCache struct {
	api   *marketplace.API
	zone  scw.Zone
	image string
	ttl   time.Duration

	mu    sync.Mutex
	local []*marketplace.LocalImage // what the label stands for in the zone
	read  time.Time
}

func newImageCache(api *marketplace.API, zone scw.Zone, image string, ttl time.Duration) *imageCache {
	return &imageCache{api: api, zone: zone, image: image, ttl: ttl}
}

// resolve returns the UUID of the image for the commercial type. A label stands
// for several images, one for each architecture and kind of root volume; the
// first that fits the type is the vendor's own choice.
func (c *imageCache) resolve(ctx context.Context, commercialType string) (string, error) {
	if validation.IsUUID(c.image) {
		return c.image, nil
	}
	local, err := c.list(ctx)
	if err != nil {
		return "", err
	}
	for _, image := range local {
		if slices.Contains(image.CompatibleCommercialTypes, strings.ToUpper(commercialType)) {
			return image.ID, nil
		}
	}
	return "", fmt.Errorf("%w: image %q has no variant for type %q in zone %s: the type is misspelt, not sold there, or needs another image (GPU types need a *_gpu_os_* label)",
		cloud.ErrInvalid, c.image, commercialType, c.zone)
}

// forget makes the next resolve ask again: an image that was resolved is gone.
func (c *imageCache) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.local = nil
}

// list holds the lock while it asks, so that a burst of creates asks once.
func (c *imageCache) list(ctx context.Context) ([]*marketplace.LocalImage, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.local != nil && time.Since(c.read) < c.ttl {
		return c.local, nil
	}
	resp, err := c.api.ListLocalImages(&marketplace.ListLocalImagesRequest{
		ImageLabel: &c.image, Zone: &c.zone,
	}, scw.WithContext(ctx), scw.WithAllPages())
	err = scaleway.Explain(err)
	switch {
	case errors.Is(err, cloud.ErrNotFound):
		return nil, fmt.Errorf("%w: image %q: the marketplace has no such label; check --image", cloud.ErrInvalid, c.image)
	case err != nil:
		return nil, fmt.Errorf("resolve image %q: %w", c.image, err)
	case len(resp.LocalImages) == 0:
		return nil, fmt.Errorf("%w: image %q is not offered in zone %s; check --image", cloud.ErrInvalid, c.image, c.zone)
	}
	c.local, c.read = resp.LocalImages, time.Now()
	return c.local, nil
}
