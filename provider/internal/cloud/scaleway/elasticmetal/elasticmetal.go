// Package elasticmetal is the adapter for Scaleway Elastic Metal: it implements
// cloud.Cloud, cloud.Catalog and cloud.Keeper on the vendor's SDK. There is no
// cloud.Deleter: a physical server is paid for by the hour or the month and is
// given back by people only.
//
// An order may cost a month, and the API has no idempotency key. So an order is
// written down before it is sent, orders go out one at a time, and after an
// answer that nobody saw the server is looked for by its tag and never ordered
// again (order.go). What a failed Create leaves becomes a spare, which the next
// Create of its type takes before it orders (spare.go).
//
// A server is delivered, then installed, and only then of use; the two are steps
// of their own (install.go).
package elasticmetal

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/scaleway/scaleway-sdk-go/api/baremetal/v1"
	"github.com/scaleway/scaleway-sdk-go/api/iam/v1alpha1"
	"github.com/scaleway/scaleway-sdk-go/scw"
	"github.com/scaleway/scaleway-sdk-go/validation"

	"bigfleet-providers/provider/internal/cloud"
	"bigfleet-providers/provider/internal/cloud/scaleway"
)

// MaxUserDataBytes is the longest user data that fits: it travels as base64, of
// which other clients of the API accept 127,998 characters.
const MaxUserDataBytes = 127_998 / 4 * 3

// maxPageSize is the largest page that is asked for.
const maxPageSize = 100

// Timing is how long things take. A zero field means its default; tests against
// a fake cloud scale them down.
type Timing struct {
	// Poll is how often a server is read while something is awaited. Default 15 s.
	Poll time.Duration
	// Settle is how long after an order with no answer its server may still turn
	// up in the list. Default 150 s.
	Settle time.Duration
	// Turn is how long a turn to order lasts that its holder forgets: an order that
	// was written down is sent within it or not at all. Default Settle, but from 5 s
	// to a minute.
	Turn time.Duration
	// Patience bounds an order. It does not end with its step: an answer that nobody
	// waits for is an order in doubt. Default a minute.
	Patience time.Duration
	// Hold is how much longer the slot of such an order is kept from ordering
	// another. Default 24 times Settle, an hour.
	Hold time.Duration
	// Catalog is how long systems and SSH keys are believed. Default 10 min.
	Catalog time.Duration
}

func (t Timing) withDefaults() Timing {
	t.Poll = cmp.Or(max(t.Poll, 0), 15*time.Second)
	t.Settle = cmp.Or(max(t.Settle, 0), 150*time.Second)
	t.Turn = cmp.Or(max(t.Turn, 0), min(max(t.Settle, 5*time.Second), time.Minute))
	t.Patience = cmp.Or(max(t.Patience, 0), time.Minute)
	t.Hold = cmp.Or(max(t.Hold, 0), 24*t.Settle)
	t.Catalog = cmp.Or(max(t.Catalog, 0), 10*time.Minute)
	return t
}

// Config is what an adapter needs. Client, Zone, ProjectID, Provider and System
// are required.
type Config struct {
	Client    *scw.Client
	Zone      string
	ProjectID string
	// Provider is the provider's own name: the owner tag.
	Provider string
	// System is what is installed where options name nothing else: an id, or name
	// and version such as "Ubuntu 24.04".
	System string
	// SSHKeys are ids of IAM SSH keys that installs put on servers; none means all
	// that are enabled in the project.
	SSHKeys  []string
	PageSize int // servers asked for at once; 0 means 100
	Timing   Timing
	Log      *slog.Logger // nil discards
}

// Cloud is Elastic Metal in one zone and project. Its methods may be called from
// many goroutines.
type Cloud struct {
	client    *scw.Client
	api       *baremetal.API
	iam       *iam.API
	guard     scaleway.SRNGuard
	scope     scaleway.Scope
	system    string
	sshKeys   []string
	newState  time.Time // see HoldOrders
	pageSize  int
	timing    Timing
	log       *slog.Logger
	processID string // tells this process' notes from those of one that died
	turn      turn
	facts     facts
	given     atomic.Pointer[map[string]bool] // see Reserve
}

var (
	_ cloud.Cloud   = (*Cloud)(nil)
	_ cloud.Catalog = (*Cloud)(nil)
	_ cloud.Fitter  = (*Cloud)(nil)
	_ cloud.Keeper  = (*Cloud)(nil)
	_ cloud.Prober  = (*Cloud)(nil)
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
	if cfg.System == "" {
		faults = append(faults, errors.New("image: missing; set --image to a system's name and version, such as \"Ubuntu 24.04\", or to its id"))
	}
	for _, id := range cfg.SSHKeys {
		if !validation.IsUUID(id) {
			faults = append(faults, fmt.Errorf("SSH key %q: not the id of an IAM SSH key; see --ssh-keys", id))
		}
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
	return &Cloud{
		client:    cfg.Client,
		api:       baremetal.NewAPI(cfg.Client),
		iam:       iam.NewAPI(cfg.Client),
		scope:     scope,
		system:    cfg.System,
		sshKeys:   cfg.SSHKeys,
		pageSize:  cmp.Or(cfg.PageSize, maxPageSize),
		timing:    cfg.Timing.withDefaults(),
		log:       log.With("zone", scope.Zone.String()),
		processID: rand.Text(),
	}, nil
}

// ProviderID implements cloud.Cloud. The form is that of Scaleway's cloud
// controller manager for bare metal.
func (c *Cloud) ProviderID(ref string) string { return "scaleway://baremetal/" + ref }

// Get implements cloud.Cloud.
func (c *Cloud) Get(ctx context.Context, ref string) (cloud.Instance, error) {
	server, err := c.owned(ctx, ref)
	if err != nil {
		return cloud.Instance{}, err
	}
	return c.instance(server), nil
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

// scrubbed takes the place of user data. Nothing says that the API would take
// an empty value for "none" rather than for "as it was".
var scrubbed = []byte("#cloud-config\n")

// Scrub implements cloud.Cloud: the API cannot remove user data, so it is
// written over.
func (c *Cloud) Scrub(ctx context.Context, ref string) error {
	server, err := c.owned(ctx, ref)
	if err != nil {
		return err
	}
	if server.UserData == nil {
		return nil
	}
	_, err = c.api.UpdateServer(&baremetal.UpdateServerRequest{
		Zone: c.scope.Zone, ServerID: server.ID, UserData: &scrubbed,
	}, scw.WithContext(ctx))
	return scaleway.Explain(err)
}

// retag replaces a server's tags.
func (c *Cloud) retag(ctx context.Context, id string, tags []string) error {
	_, err := c.api.UpdateServer(&baremetal.UpdateServerRequest{
		Zone: c.scope.Zone, ServerID: id, Tags: &tags,
	}, scw.WithContext(ctx))
	return scaleway.Explain(err)
}

// get reads a server by its bare id.
func (c *Cloud) get(ctx context.Context, id string) (*baremetal.Server, error) {
	server, err := c.api.GetServer(&baremetal.GetServerRequest{Zone: c.scope.Zone, ServerID: id}, scw.WithContext(ctx))
	if err != nil {
		return nil, scaleway.Explain(err)
	}
	if server == nil || server.ID == "" {
		return nil, fmt.Errorf("read server %s: %w", id, scaleway.ErrEmptyAnswer)
	}
	return server, nil
}

// owned reads the server of a ref and refuses it when it is not ours.
func (c *Cloud) owned(ctx context.Context, ref string) (*baremetal.Server, error) {
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
func (c *Cloud) mustOwn(server *baremetal.Server) error {
	return c.scope.MustOwn(server.ID, server.Name, server.ProjectID, server.Tags)
}

func (c *Cloud) owns(server *baremetal.Server) bool {
	return c.scope.Owns(server.ProjectID, server.Tags)
}

func (c *Cloud) instance(server *baremetal.Server) cloud.Instance {
	tags := scaleway.ParseTags(server.Tags)
	in := cloud.Instance{
		Ref:         c.scope.Ref(server.ID),
		MachineID:   tags.Machine,
		OperationID: tags.Operation,
		Cluster:     tags.Cluster,
		Epoch:       cloud.ParseOwnerEpoch(tags.Epoch),
		Life:        tags.Life,
		Type:        server.OfferName,
		Zone:        c.scope.Zone.String(),
		Power:       power(server.Status),
		PowerWord:   describe(server),
		Unfinished:  !installed(server),
		Spare:       tags.Spare != "" && tags.Machine == "",
	}
	if server.CreatedAt != nil {
		in.Created = *server.CreatedAt
	}
	return in
}

// installed says that a system was put on the server and is there.
func installed(server *baremetal.Server) bool {
	return server.Install != nil && server.Install.Status == baremetal.ServerInstallStatusCompleted
}

// installing says that an install of whichever operation is under way.
func installing(server *baremetal.Server) bool {
	return server.Install != nil &&
		(server.Install.Status == baremetal.ServerInstallStatusToInstall || server.Install.Status == baremetal.ServerInstallStatusInstalling)
}

func power(status baremetal.ServerStatus) cloud.Power {
	switch status {
	case baremetal.ServerStatusReady:
		return cloud.PowerRunning
	case baremetal.ServerStatusStopped:
		return cloud.PowerStopped
	case baremetal.ServerStatusOrdered, baremetal.ServerStatusDelivering, baremetal.ServerStatusStarting, baremetal.ServerStatusStopping,
		baremetal.ServerStatusResetting, baremetal.ServerStatusMigrating, baremetal.ServerStatusDeleting:
		return cloud.PowerChanging
	case baremetal.ServerStatusLocked, baremetal.ServerStatusError:
		return cloud.PowerLocked // only Scaleway's support can help either
	default:
		return cloud.PowerUnknown
	}
}

// describe is the server's status with that of its install, for operators.
func describe(server *baremetal.Server) string {
	if server.Install == nil || server.Install.Status == baremetal.ServerInstallStatusCompleted {
		return server.Status.String()
	}
	return fmt.Sprintf("%s (%s)", server.Status, server.Install.Status)
}

// again asks for the next look after the poll interval.
func (c *Cloud) again(format string, args ...any) error {
	return cloud.Again(c.timing.Poll, fmt.Sprintf(format, args...))
}
