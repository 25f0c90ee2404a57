package fakecloud

import (
	"log/slog"
	"net/http"
	"sync"
	"time"
)

// Options set up a Cloud. The zero value works: one built-in key, no hosts,
// every delay zero.
type Options struct {
	// Log receives one debug line a request and one info line a state change;
	// nil discards them. Secrets and user data are never logged.
	Log *slog.Logger
	// Scale multiplies every recorded delay: 1 is real time, 0.02 suits tests
	// over sockets, 0 makes every transition finish before its call is answered.
	Scale float64
	// Delays replaces recorded delays; zero fields keep theirs.
	Delays Delays
	// Keys may call the API; empty means one key, DefaultSecretKey, that may do
	// everything in DefaultProjectID.
	Keys []Key
	// Hosts are told when a server boots and when it halts; nil for no guests.
	Hosts Hosts
	// LegacyRefusals answers wrong-state actions with the older envelope
	// ("invalid_request_error"). The status, 400, and the words are the same in
	// both; which envelope is current is not recorded.
	LegacyRefusals bool
}

// Guest is what the machine behind a server knows when it boots.
type Guest struct {
	ServerID       string
	Name           string
	Hostname       string
	Zone           string
	CommercialType string
	Arch           string // "x86_64" or "arm64"
	Image          string // the image's display name
	Project        string
	Organization   string
	Tags           []string
	// UserData is the "cloud-init" user data as it was at the server's first
	// power-on: cloud-init runs once an instance, so later changes reach nobody.
	UserData []byte
	PublicIP string // its first IPv4 address, "" without one
	Boot     int    // 1 on first boot, then counting up
}

// Hosts runs something that stands for the guests.
//
// Boot, Halt and Gone are called in the order in which they happen, with the
// Cloud's lock held: they must neither block nor call back into the Cloud, other
// than from goroutines of their own.
type Hosts interface {
	// Boot is called when a server reaches "running".
	Boot(Guest)
	// Halt is called as soon as a poweroff, reboot, terminate, delete or
	// stop_in_place is accepted; the server leaves its transitional state later.
	// It may be called for a server that never booted.
	Halt(serverID string)
	// Gone is called when a server is deleted, after its last Halt: what is kept
	// of it may go.
	Gone(serverID string)
	// Close is called once by Cloud.Close, after all other calls.
	Close()
}

// Cloud is the fake. Its methods may be called from any goroutine.
type Cloud struct {
	log     *slog.Logger
	hosts   Hosts
	legacy  bool
	keys    map[string]*Key // by secret
	types   *catalog
	mux     *http.ServeMux
	faults  switchboard
	history history

	mu  sync.Mutex // guards what follows
	inv inventory
	timers
	delays    Delays
	scale     float64
	listLag   time.Duration
	getLag    time.Duration
	stock     map[zoneType]Stock
	quotas    map[string]int
	addresses addressPool
	closed    bool
}

// New makes a Cloud. It panics when a key in opts cannot be one, which is a
// mistake in the calling program.
func New(opts Options) *Cloud {
	c := &Cloud{
		log:    opts.Log,
		hosts:  opts.Hosts,
		legacy: opts.LegacyRefusals,
		keys:   keyring(opts.Keys),
		types:  loadCatalog(),
		inv:    newInventory(),
		timers: timers{pending: map[*pending]struct{}{}},
		delays: opts.Delays.orRecorded(),
		scale:  opts.Scale,
		stock:  map[zoneType]Stock{},
		quotas: map[string]int{},
	}
	if c.log == nil {
		c.log = slog.New(slog.DiscardHandler)
	}
	c.mux = c.routes()
	return c
}

// Handler serves the API and, without a key, GET /debug/servers, /debug/volumes
// and /debug/leaks.
func (c *Cloud) Handler() http.Handler { return http.HandlerFunc(c.serveHTTP) }

// Close stops every pending transition, waits for those that are running and
// closes the hosts. Calls after it are answered with 503. It may be called more
// than once.
func (c *Cloud) Close() {
	c.mu.Lock()
	first := !c.closed
	c.closed = true
	c.cancelAll()
	c.mu.Unlock()
	c.running.Wait()
	if first && c.hosts != nil {
		c.hosts.Close()
	}
}

// SetDelays replaces the delays for transitions that begin from now on; zero
// fields take the recorded value. The scale still applies.
func (c *Cloud) SetDelays(d Delays) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.delays = d.orRecorded()
}

// SetLag hides new servers from ListServers for list and from GetServer for
// get after their creation, unscaled. No lag is recorded of the real API;
// other clouds have one.
func (c *Cloud) SetLag(list, get time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.listLag, c.getLag = list, get
}

// Stock is what the availability list says of a type in a zone.
type Stock string

// The three words. With Shortage a power-on is refused as out of stock; a
// create is not, since a slot is claimed at power-on only.
const (
	Available Stock = "available"
	Scarce    Stock = "scarce"
	Shortage  Stock = "shortage"
)

type zoneType struct{ zone, name string }

// SetStock changes the stock of a type in a zone.
func (c *Cloud) SetStock(zone, commercialType string, s Stock) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stock[zoneType{zone, commercialType}] = s
}

// SetQuota limits how many servers of a type may exist, in all zones and
// states together; a negative n lifts the limit.
func (c *Cloud) SetQuota(commercialType string, n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if n < 0 {
		delete(c.quotas, commercialType)
		return
	}
	c.quotas[commercialType] = n
}
