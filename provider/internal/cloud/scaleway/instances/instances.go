// Package instances is the adapter for Scaleway Instances: it implements
// cloud.Cloud, cloud.Deleter and cloud.Catalog on the vendor's SDK.
//
// The API has no idempotency key and its server names are not unique. The
// operation's id is therefore a tag, given in the POST itself, and no second
// POST is sent before the tag was looked for and the settle window has passed
// (order.go). Deleting a server leaves its block volumes and, depending on how,
// its local ones; they are written down before the server is touched
// (teardown.go).
//
// The SDK's waiters are not used: they give up on the first failed read.
package instances

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	block "github.com/scaleway/scaleway-sdk-go/api/block/v1"
	"github.com/scaleway/scaleway-sdk-go/api/instance/v1"
	"github.com/scaleway/scaleway-sdk-go/api/marketplace/v2"
	"github.com/scaleway/scaleway-sdk-go/api/vpc/v2"
	"github.com/scaleway/scaleway-sdk-go/scw"

	"bigfleet-providers/provider/internal/cloud"
	"bigfleet-providers/provider/internal/cloud/scaleway"
)

// MaxUserDataBytes is the longest user data that other clients of the API
// accept; the API publishes no limit of its own.
const MaxUserDataBytes = 127_998

// userDataKey is the key that cloud-init reads.
const userDataKey = "cloud-init"

// Timing is how long things take. A zero field means its default; tests against
// a fake cloud scale them down.
type Timing struct {
	// Poll is how often a server is read while something is awaited.
	Poll time.Duration
	// Settle is how long after a POST with no answer a new server may still turn
	// up in the list. Default 150 s: longer than any list lag that was reported.
	Settle time.Duration
	// Stuck is how long a server may be in transition during a teardown before
	// it is pushed with whatever action the API still allows. Default 10 min;
	// the longest regular transition recorded took 188 s.
	Stuck time.Duration
	// Images is how long a resolved image label is believed. Default 10 min.
	Images time.Duration
}

func (t Timing) withDefaults() Timing {
	for _, f := range []struct {
		field *time.Duration
		value time.Duration
	}{
		{&t.Poll, 5 * time.Second},
		{&t.Settle, 150 * time.Second},
		{&t.Stuck, 10 * time.Minute},
		{&t.Images, 10 * time.Minute},
	} {
		if *f.field <= 0 {
			*f.field = f.value
		}
	}
	return t
}

// Config is what an adapter needs. Client, Zone, ProjectID, Provider and Image
// are required.
type Config struct {
	Client    *scw.Client
	Zone      string
	ProjectID string
	// Provider is the provider's own name: the owner tag. Two providers in one
	// project must not share it.
	Provider string
	// Image is a marketplace label such as ubuntu_noble, or an image's UUID, for
	// servers whose options name none. UUIDs of marketplace images change every
	// few months.
	Image string
	// NoPublicIP asks for servers without a dynamic public IPv4, where their
	// options do not say. First boots are minutes slower then.
	NoPublicIP bool
	// PageSize is how many servers are asked for at once; 0 means the most that
	// the API gives, 100.
	PageSize int
	Timing   Timing
	Log      *slog.Logger // nil discards
}

// Cloud is Scaleway Instances in one zone and project. Its methods may be
// called from many goroutines.
type Cloud struct {
	client    *scw.Client
	api       *instance.API
	block     *block.API
	vpc       *vpc.API
	images    *imageCache
	guard     scaleway.SRNGuard
	scope     scaleway.Scope
	label     string         // the image of whoever asks for no other
	public    cloud.PublicIP // the address of whoever asks for no other
	pageSize  int
	timing    Timing
	log       *slog.Logger
	processID string // tells this process' notes from those of one that died

	mu      sync.Mutex
	offered map[string]*instance.ServerType // what the API last said it sells; nil before it did
}

var (
	_ cloud.Cloud   = (*Cloud)(nil)
	_ cloud.Deleter = (*Cloud)(nil)
	_ cloud.Catalog = (*Cloud)(nil)

	_ cloud.ManyReader = (*Cloud)(nil)
)

// New checks the configuration and reports all its faults at once. It makes no
// call.
func New(cfg Config) (*Cloud, error) {
	var faults []error
	if cfg.Client == nil {
		faults = append(faults, errors.New("client: missing"))
	}
	scope, err := scaleway.NewScope(cfg.Zone, cfg.ProjectID, cfg.Provider)
	faults = append(faults, err)
	if cfg.Image == "" {
		faults = append(faults, errors.New("image: missing; set --image to a marketplace label such as ubuntu_noble, or to an image's UUID"))
	}
	if cfg.PageSize < 0 || cfg.PageSize > maxPageSize {
		faults = append(faults, fmt.Errorf("page size %d: it must be from 1 to %d, or 0 for %[2]d", cfg.PageSize, maxPageSize))
	}
	if err := errors.Join(faults...); err != nil {
		return nil, err
	}

	log := cfg.Log
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	timing := cfg.Timing.withDefaults()
	public := cloud.PublicDynamic
	if cfg.NoPublicIP {
		public = cloud.PublicNone
	}
	return &Cloud{
		client:    cfg.Client,
		api:       instance.NewAPI(cfg.Client),
		block:     block.NewAPI(cfg.Client),
		vpc:       vpc.NewAPI(cfg.Client),
		images:    newImageCache(marketplace.NewAPI(cfg.Client), scope.Zone, timing.Images),
		label:     cfg.Image,
		scope:     scope,
		public:    public,
		pageSize:  cmp.Or(cfg.PageSize, maxPageSize),
		timing:    timing,
		log:       log.With("zone", scope.Zone.String()),
		processID: rand.Text(),
	}, nil
}

// ProviderID implements cloud.Cloud. The form is that of Scaleway's cloud
// controller manager.
func (c *Cloud) ProviderID(ref string) string { return "scaleway://instance/" + ref }

// Get implements cloud.Cloud.
func (c *Cloud) Get(ctx context.Context, ref string) (cloud.Instance, error) {
	server, err := c.owned(ctx, ref)
	if err != nil {
		return cloud.Instance{}, err
	}
	return c.instance(server), nil
}

// GetMany implements cloud.ManyReader.
func (c *Cloud) GetMany(ctx context.Context, refs []string) ([]cloud.Instance, error) {
	ids := make([]string, len(refs))
	for i, ref := range refs {
		id, err := c.scope.ID(ref, "server")
		if err != nil {
			return nil, err
		}
		ids[i] = id
	}
	resp, err := c.api.ListServers(&instance.ListServersRequest{
		Zone: c.scope.Zone, Project: &c.scope.Project, Servers: ids, PerPage: new(uint32(maxPageSize)),
	}, scw.WithContext(ctx))
	if err != nil {
		return nil, scaleway.Explain(err)
	}
	var found []cloud.Instance
	for _, s := range resp.Servers {
		if s != nil && c.owns(s) {
			found = append(found, c.instance(s))
		}
	}
	return found, nil
}

// SetCluster implements cloud.Cloud. The API can only replace the whole list of
// tags, so it is read first; the tags of others stay.
func (c *Cloud) SetCluster(ctx context.Context, ref, cluster string) error {
	server, err := c.owned(ctx, ref)
	if err != nil {
		return err
	}
	tags, changed := scaleway.WithCluster(server.Tags, cluster)
	if !changed {
		return nil
	}
	tags, _ = scaleway.WithEpoch(tags, c.scope.Epoch())
	return c.retag(ctx, server.ID, tags)
}

// SetEpoch implements cloud.Cloud.
func (c *Cloud) SetEpoch(epoch cloud.OwnerEpoch) { c.scope.SetEpoch(epoch) }

// MarkEpoch implements cloud.Cloud.
func (c *Cloud) MarkEpoch(ctx context.Context, ref string) error {
	server, err := c.owned(ctx, ref)
	if err != nil {
		return err
	}
	tags, changed := scaleway.WithEpoch(server.Tags, c.scope.Epoch())
	if !changed {
		return nil
	}
	return c.retag(ctx, server.ID, tags)
}

// retag replaces a server's tags.
func (c *Cloud) retag(ctx context.Context, id string, tags []string) error {
	_, err := c.api.UpdateServer(&instance.UpdateServerRequest{
		Zone: c.scope.Zone, ServerID: id, Tags: &tags,
	}, scw.WithContext(ctx))
	return scaleway.Explain(err)
}

// Scrub implements cloud.Cloud.
func (c *Cloud) Scrub(ctx context.Context, ref string) error {
	server, err := c.owned(ctx, ref)
	if err != nil {
		return err
	}
	err = scaleway.Explain(c.api.DeleteServerUserData(&instance.DeleteServerUserDataRequest{
		Zone: c.scope.Zone, ServerID: server.ID, Key: userDataKey,
	}, scw.WithContext(ctx)))
	if errors.Is(err, cloud.ErrNotFound) {
		return nil
	}
	return err
}

// get reads a server by its bare id.
func (c *Cloud) get(ctx context.Context, id string) (*instance.Server, error) {
	resp, err := c.api.GetServer(&instance.GetServerRequest{Zone: c.scope.Zone, ServerID: id}, scw.WithContext(ctx))
	if err != nil {
		return nil, scaleway.Explain(err)
	}
	if resp.Server == nil {
		return nil, fmt.Errorf("read server %s: %w", id, scaleway.ErrEmptyAnswer)
	}
	return resp.Server, nil
}

// owned reads the server of a ref and refuses it when it is not ours.
func (c *Cloud) owned(ctx context.Context, ref string) (*instance.Server, error) {
	id, err := c.scope.ID(ref, "server")
	if err != nil {
		return nil, err
	}
	server, err := c.get(ctx, id)
	if err != nil {
		return nil, err
	}
	return server, c.mustOwn(server)
}

// mustOwn is the last barrier before anything is done to a server.
func (c *Cloud) mustOwn(server *instance.Server) error {
	return c.scope.MustOwn(server.ID, server.Name, server.Project, server.Tags)
}

func (c *Cloud) owns(server *instance.Server) bool { return c.scope.Owns(server.Project, server.Tags) }

func (c *Cloud) instance(server *instance.Server) cloud.Instance {
	tags := scaleway.ParseTags(server.Tags)
	in := cloud.Instance{
		Ref:         c.scope.Ref(server.ID),
		MachineID:   tags.Machine,
		OperationID: tags.Operation,
		Cluster:     tags.Cluster,
		Epoch:       cloud.ParseOwnerEpoch(tags.Epoch),
		Life:        tags.Life,
		Type:        server.CommercialType,
		Zone:        c.scope.Zone.String(),
		Power:       power(server.State),
		PowerWord:   describe(server),
	}
	if server.CreationDate != nil {
		in.Created = *server.CreationDate
	}
	return in
}

// power maps the vendor's words. "stopped in place" is a guest that shut itself
// down: still billed, but a power-on brings it back.
func power(state instance.ServerState) cloud.Power {
	switch state {
	case instance.ServerStateRunning:
		return cloud.PowerRunning
	case instance.ServerStateStopped, instance.ServerStateStoppedInPlace:
		return cloud.PowerStopped
	case instance.ServerStateStarting, instance.ServerStateStopping:
		return cloud.PowerChanging
	case instance.ServerStateLocked:
		return cloud.PowerLocked
	default:
		return cloud.PowerUnknown
	}
}

// again asks for the next look after the poll interval.
func (c *Cloud) again(format string, args ...any) error {
	return cloud.Again(c.timing.Poll, fmt.Sprintf(format, args...))
}
