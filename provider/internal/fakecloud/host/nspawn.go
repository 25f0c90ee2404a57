package host

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"bigfleet-providers/provider/internal/fakecloud"
	"bigfleet-providers/provider/internal/fakecloud/nspawn"
)

// NspawnOptions set up NewNspawn.
type NspawnOptions struct {
	// Dir holds a folder with the disk of each server. It must exist; disks stay
	// after Close, except for servers that are gone.
	Dir string
	// Layers are the read-only trees under every disk, the topmost first; the
	// last is a Debian root, see nspawn.CheckRoot.
	Layers []string
	// Prepare may change a guest before its first start: its options, and the
	// files on its disk; nil changes nothing.
	Prepare func(fakecloud.Guest, *nspawn.Options) error
	// Log receives boots, halts and failures; nil discards them.
	Log *slog.Logger
}

// Nspawn are hosts that boot a real Debian in a container of this machine. What
// a guest knows of itself it gets from the metadata service, by cloud-init's own
// Scaleway source: so they need a Cloud to Attach to.
type Nspawn struct {
	*Hosts
	opts    NspawnOptions
	network *nspawn.Network

	attached chan struct{} // closed by Attach
	cloud    Metadata
	served   sync.WaitGroup
	server   *http.Server

	mu     sync.Mutex // guards guests
	guests map[string]*nspawn.Guest
}

// Metadata is what guests need of a fakecloud.Cloud.
type Metadata interface {
	MetadataHandler() http.Handler
	MapGuest(address, serverID string) error
}

const (
	// shutdownTime is how long a guest may take to go down before its power is cut.
	shutdownTime = 10 * time.Second
	// maxMachineName is what Linux takes for a host name.
	maxMachineName = 64
)

// NewNspawn makes the network of the hosts. It fails when this machine lacks
// what is needed, and says all of it.
func NewNspawn(opts NspawnOptions) (*Nspawn, error) {
	if len(opts.Layers) == 0 {
		return nil, errors.New("hosts: no Debian root; make one with make debian-root")
	}
	dir, err := filepath.Abs(opts.Dir)
	if err := errors.Join(err, nspawn.CheckRoot(opts.Layers[len(opts.Layers)-1])); err != nil {
		return nil, fmt.Errorf("hosts: %w", err)
	}
	opts.Dir = dir
	h := &Nspawn{
		Hosts: newHosts(opts.Log, nil), opts: opts,
		attached: make(chan struct{}), guests: map[string]*nspawn.Guest{},
	}
	if h.network, err = nspawn.OpenNetwork(h.log); err != nil {
		return nil, fmt.Errorf("hosts: %w", err)
	}
	h.newMachine = func(serverID string) machine {
		return &container{hosts: h, serverID: serverID, log: h.log.With("server_id", serverID)}
	}
	h.tree = func(serverID string) string { return filepath.Join(treeOf(opts.Dir, serverID), "disk") }
	h.atClose = h.closeNetwork
	return h, nil
}

// Attach serves the cloud's metadata to the guests. It is called once; guests
// boot only afterwards.
func (h *Nspawn) Attach(cloud Metadata) error {
	listener, err := h.network.Listen(context.Background(), nspawn.MetadataAddr)
	if err != nil {
		return fmt.Errorf("hosts: metadata service: %w", err)
	}
	h.cloud = cloud
	h.server = &http.Server{Handler: cloud.MetadataHandler(), ReadHeaderTimeout: 10 * time.Second}
	h.served.Go(func() {
		if err := h.server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			h.log.Error("the metadata service ended", "error", err)
		}
	})
	close(h.attached)
	return nil
}

func (h *Nspawn) closeNetwork() {
	var errs []error
	if h.server != nil {
		errs = append(errs, h.server.Close())
		h.served.Wait()
	}
	if err := errors.Join(append(errs, h.network.Close())...); err != nil {
		h.log.Error("the hosts' network is left", "error", err)
	}
}

// Network is where this machine and the guests reach each other.
func (h *Nspawn) Network() *nspawn.Network { return h.network }

// Guest is the machine of a server, nil before its first boot and once it is
// gone.
func (h *Nspawn) Guest(serverID string) *nspawn.Guest {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.guests[serverID]
}

// container is a machine that boots.
type container struct {
	hosts    *Nspawn
	serverID string
	log      *slog.Logger
	guest    *nspawn.Guest
}

func (m *container) up(ctx context.Context, g fakecloud.Guest) {
	select {
	case <-m.hosts.attached:
	case <-ctx.Done():
		return
	}
	if err := m.make(g); err != nil {
		m.log.Error("the host cannot be made", "error", err)
		return
	}
	for m.run(ctx) {
		m.log.Info("the guest boots again")
	}
	<-ctx.Done()
}

// run is one boot of the guest; it tells whether another is asked for.
func (m *container) run(ctx context.Context) (again bool) {
	if err := m.guest.Start(ctx); err != nil {
		if ctx.Err() == nil {
			m.log.Error("the host does not boot", "error", err)
		}
		return false
	}
	leader, err := m.guest.Leader()
	m.log.Info("the guest boots", "addr", m.guest.Addr(), "pid", leader, "error", err)
	reboot, err := m.guest.Wait(ctx)
	if err == nil && !reboot {
		m.log.Info("the guest went off by itself")
	}
	if err := m.guest.Stop(shutdownTime); err != nil {
		m.log.Error("the host does not go off", "error", err)
		return false
	}
	return reboot
}

// make makes the guest, at its first boot.
func (m *container) make(g fakecloud.Guest) error {
	if m.guest != nil {
		return nil
	}
	opts := nspawn.Options{
		Name:   g.Hostname[:min(len(g.Hostname), maxMachineName)],
		Dir:    treeOf(m.hosts.opts.Dir, g.ServerID),
		Layers: m.hosts.opts.Layers,
	}
	// cloud-init takes a machine with this file for one of Scaleway
	// (DataSourceScaleway.py, on_scaleway).
	marker := filepath.Join(m.hosts.opts.Dir, "scaleway")
	if err := os.WriteFile(marker, nil, 0o600); err != nil {
		return err
	}
	opts.Binds = []nspawn.Bind{{Source: marker, Target: "/run/scaleway", ReadOnly: true}}
	if m.hosts.opts.Prepare != nil {
		if err := os.MkdirAll(filepath.Join(opts.Dir, "disk"), 0o755); err != nil { //nolint:gosec // as NewGuest makes it
			return err
		}
		if err := m.hosts.opts.Prepare(g, &opts); err != nil {
			return err
		}
	}
	guest, err := m.hosts.network.NewGuest(opts)
	if err != nil {
		return err
	}
	if err := m.hosts.cloud.MapGuest(guest.Addr().String(), m.serverID); err != nil {
		return err
	}
	m.guest = guest
	m.hosts.mu.Lock()
	defer m.hosts.mu.Unlock()
	m.hosts.guests[m.serverID] = guest
	return nil
}

func (m *container) erase() {
	m.hosts.mu.Lock()
	delete(m.hosts.guests, m.serverID)
	m.hosts.mu.Unlock()
	if m.guest == nil {
		return
	}
	if err := m.guest.Erase(); err != nil {
		m.log.Error("the host's disk stays", "error", err)
	}
}
