package fakecloud

import (
	"log/slog"
	"net/http"
	"sync"
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
	// SSHKeys are public keys of DefaultProjectID from the start, as lines of an
	// authorized_keys file. Elastic Metal installs nothing without one.
	SSHKeys []string
	// LegacyRefusals answers wrong-state actions with the older envelope
	// ("invalid_request_error"). The status, 400, and the words are the same in
	// both; which envelope is current is not recorded.
	LegacyRefusals bool
}

// SampleSSHKey is a public key whose private half nobody has.
const SampleSSHKey = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl fake@localhost"

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
	// MetadataSource is the loopback address from which its calls to
	// MetadataHandler are known as its own.
	MetadataSource string
	Boot           int // 1 on first boot, then counting up
}

// Hosts runs something that stands for the guests.
//
// Boot, Halt and Gone are called in the order in which they happen, with the
// Cloud's lock held: they must neither block nor call back into the Cloud, other
// than from goroutines of their own.
type Hosts interface {
	// Boot is called when a server reaches "running", and when a dedicated one is
	// installed.
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
	opts    Options
	log     *slog.Logger
	hosts   Hosts
	types   *catalog
	routes  map[string]*route // by name
	mux     *http.ServeMux
	faults  switchboard
	history history

	mu  sync.Mutex // guards what follows
	inv inventory
	timers
	switches
	addresses addressPool
	guests    guestMap
	closed    bool
}

// New makes a Cloud. It panics when a key in opts cannot be one, which is a
// mistake in the calling program.
func New(opts Options) *Cloud {
	if len(opts.Keys) == 0 {
		opts.Keys = []Key{{AccessKey: DefaultAccessKey, SecretKey: DefaultSecretKey, ProjectIDs: []string{DefaultProjectID}}}
	}
	for _, k := range opts.Keys {
		if err := k.check(); err != nil {
			panic("fakecloud: " + err.Error())
		}
	}
	c := &Cloud{
		opts:   opts,
		log:    opts.Log,
		hosts:  opts.Hosts,
		types:  loadCatalog(),
		timers: timers{pending: map[*pending]struct{}{}},
	}
	if c.log == nil {
		c.log = slog.New(slog.DiscardHandler)
	}
	c.open()
	c.serveRoutes()
	return c
}

// open brings inventory and switches to where a new Cloud has them.
func (c *Cloud) open() {
	c.inv = newInventory()
	c.switches = newSwitches(c.opts)
	c.addresses = addressPool{}
	c.guests = guestMap{}
	c.openAccount()
	for _, line := range c.opts.SSHKeys {
		if _, err := c.addSSHKey("key", DefaultProjectID, line); err != nil {
			c.log.Error("an SSH key is left out", "error", err)
		}
	}
}

// Reset makes the Cloud as good as new: every server is halted and gone with
// all else that was made, as are faults, switches, keys and recorded calls.
// Numbers of faults and calls go on.
func (c *Cloud) Reset() {
	c.faults.clear()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cancelAll()
	if c.hosts != nil && !c.closed {
		for _, s := range bySerial(c.inv.servers) {
			c.hosts.Halt(s.id)
			c.hosts.Gone(s.id)
		}
		for _, s := range bySerial(c.inv.metal) {
			c.hosts.Halt(s.id)
			c.hosts.Gone(s.id)
		}
	}
	c.open()
	c.history.forget()
	c.log.Info("reset")
}

// Handler serves the API and, without a key, the control endpoint below /debug/
// (control.go). It must be reachable only by who may script it.
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
