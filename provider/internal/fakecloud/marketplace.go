package fakecloud

import (
	"net/http"
	"slices"
	"strings"
	"time"
)

type localImageBody struct {
	ID         string   `json:"id"`
	Arch       string   `json:"arch"`
	Zone       string   `json:"zone"`
	Compatible []string `json:"compatible_commercial_types"`
	Label      string   `json:"label"`
	Type       string   `json:"type"`
}

func (c *Cloud) localImageView(img *image) localImageBody {
	b := localImageBody{ID: img.id(), Arch: img.arch, Zone: img.zone, Label: img.label, Type: img.localType(), Compatible: []string{}}
	for _, p := range c.types.all {
		if img.suits(p) {
			b.Compatible = append(b.Compatible, p.name)
		}
	}
	slices.Sort(b.Compatible)
	return b
}

func (img *image) localType() string {
	if img.local {
		return "instance_local"
	}
	return "instance_sbs"
}

// listLocalImages resolves labels for the SDK. Without a zone it answers for
// the first one, since local images exist in zones only.
func (c *Cloud) listLocalImages(q *request) (*response, error) {
	get := q.query.Get
	zone := get("zone")
	if zone == "" {
		zone = "fr-par-1"
	}
	if !zoneFormat.MatchString(zone) {
		return nil, invalid(constraint("zone", "not a valid value"))
	}
	if label := get("image_label"); label != "" && !knownLabel(label) {
		return nil, notFound(resMarketplace, label)
	}
	if id := get("image_id"); id != "" && !slices.ContainsFunc(osImages, func(o osImage) bool { return o.marketplaceID() == id }) {
		return nil, notFound(resMarketplace, id)
	}
	kind := strings.TrimPrefix(get("type"), "unknown_type")
	page, total := cut(pageWindow(q.query, "page_size", 50), oldestFirst(imagesIn(zone), func(img *image) bool {
		return (get("image_label") == "" || img.label == get("image_label")) &&
			(get("image_id") == "" || img.marketplaceID() == get("image_id")) &&
			(get("arch") == "" || img.arch == get("arch")) &&
			(kind == "" || img.localType() == kind)
	}))
	body := struct {
		LocalImages []localImageBody `json:"local_images"`
		TotalCount  int              `json:"total_count"`
	}{[]localImageBody{}, total}
	for _, img := range page {
		body.LocalImages = append(body.LocalImages, c.localImageView(img))
	}
	return ok(body)
}

func knownLabel(label string) bool {
	return slices.ContainsFunc(osImages, func(o osImage) bool { return o.label == label })
}

// getLocalImage looks in the zones of the catalogue: the path names none.
func (c *Cloud) getLocalImage(q *request) (*response, error) {
	for zone := range c.types.byZone {
		if img := imageByID(zone, q.id); img != nil {
			return ok(c.localImageView(img))
		}
	}
	return nil, notFound(resMarketplace, q.id)
}

type marketplaceImageBody struct {
	ID          string     `json:"id"`
	Name        string     `json:"name"`
	Description string     `json:"description"`
	Logo        string     `json:"logo"`
	Categories  []string   `json:"categories"`
	CreatedAt   time.Time  `json:"created_at"`
	UpdatedAt   time.Time  `json:"updated_at"`
	ValidUntil  *time.Time `json:"valid_until"`
	Label       string     `json:"label"`
}

func (o osImage) marketplaceID() string { return digestID(0, "marketplace", o.label) }

func (o osImage) view() marketplaceImageBody {
	return marketplaceImageBody{
		ID: o.marketplaceID(), Name: o.displayName, Description: o.displayName, Categories: []string{"distribution"},
		CreatedAt: imagesPublished, UpdatedAt: imagesPublished, Label: o.label,
	}
}

func (c *Cloud) listMarketplaceImages(q *request) (*response, error) {
	page, total := cut(pageWindow(q.query, "page_size", 20), slices.Values(osImages))
	body := struct {
		Images     []marketplaceImageBody `json:"images"`
		TotalCount int                    `json:"total_count"`
	}{[]marketplaceImageBody{}, total}
	for _, o := range page {
		body.Images = append(body.Images, o.view())
	}
	return ok(body)
}

func (c *Cloud) getMarketplaceImage(q *request) (*response, error) {
	i := slices.IndexFunc(osImages, func(o osImage) bool { return o.marketplaceID() == q.id })
	if i < 0 {
		return nil, notFound(resMarketplace, q.id)
	}
	return ok(osImages[i].view())
}

func (c *Cloud) getImage(q *request) (*response, error) {
	img := imageByID(q.zone, q.id)
	if img == nil {
		return nil, notFound(resImage, q.id)
	}
	return ok(struct {
		Image imageBody `json:"image"`
	}{img.view()})
}

func (c *Cloud) listImages(q *request) (*response, error) {
	w := pageWindow(q.query, "per_page", 50)
	get := q.query.Get
	found, total := cut(w, oldestFirst(imagesIn(q.zone), func(img *image) bool {
		return (get("arch") == "" || img.arch == get("arch")) && get("public") != "false" &&
			get("project") == "" && get("organization") == "" && get("tags") == "" &&
			strings.Contains(img.displayName, get("name"))
	}))
	body := struct {
		Images []imageBody `json:"images"`
	}{[]imageBody{}}
	for _, img := range found {
		body.Images = append(body.Images, img.view())
	}
	return &response{status: http.StatusOK, header: w.headers(q.pagePath(), q.query, total), body: body}, nil
}
