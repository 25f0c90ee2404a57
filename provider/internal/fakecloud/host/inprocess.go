package host

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"time"

	"bigfleet-providers/agent"
	"bigfleet-providers/provider/internal/fakecloud"
)

// InProcessOptions set up NewInProcess. The zero value works.
type InProcessOptions struct {
	// Log receives the boots at debug level, hosts without an agent at warning
	// level, and the agents' own lines; nil discards them.
	Log *slog.Logger
	// Delay is how long a guest takes from "running" to the agent's first poll;
	// nil is no time.
	Delay func(fakecloud.Guest) time.Duration
	// Hook stands for the host's hook; nil succeeds at once. It must return soon
	// after ctx ended.
	Hook func(ctx context.Context, g fakecloud.Guest, call agent.Call) error
	// Dial is the hosts' network; nil is this machine's. It lets hosts reach a
	// provider under a name that is known to no resolver.
	Dial func(ctx context.Context, network, addr string) (net.Conn, error)
	// Agent tunes the agents: Wait, BackoffMin and so on. Its Log, HTTPClient,
	// Hook, Journal and BootID are set by the hosts.
	Agent agent.Options
}

// NewInProcess returns hosts whose agents are goroutines and keep their journals in
// memory. Each has connections of its own, as a host has: a poll that the provider
// parks takes one up.
func NewInProcess(opts InProcessOptions) *Hosts {
	h := newHosts(opts.Log, opts.Delay)
	h.newMachine = func(serverID string) machine {
		return &goroutines{
			opts: opts, journal: agent.NewMemoryJournal(),
			log: h.log.With("server_id", serverID),
		}
	}
	return h
}

// goroutines is a machine whose agent runs in this process.
type goroutines struct {
	opts    InProcessOptions
	journal agent.Journal // the disk
	log     *slog.Logger

	booted bool
	config *agent.Config // nil when the first boot found none
}

func (m *goroutines) up(ctx context.Context, g fakecloud.Guest) {
	if !m.booted {
		m.booted = true
		s, err := readSeed(g.UserData)
		report(m.log, s, err)
		if err == nil {
			m.config = &s.config
		}
	}
	if m.config == nil {
		<-ctx.Done()
		return
	}
	client, err := newClient(m.config.CAPEM, m.opts.Dial)
	if err != nil {
		m.log.Error("the agent's HTTP client cannot be made", "error", err)
		<-ctx.Done()
		return
	}
	defer client.CloseIdleConnections()
	opts := m.opts.Agent
	opts.Log, opts.HTTPClient, opts.Journal = m.log, client, m.journal
	opts.HostID = "fake host " + g.ServerID // its disk is not kept over a restart
	opts.BootID = g.ServerID + "." + strconv.Itoa(g.Boot)
	opts.Hook = agent.HookFunc(func(ctx context.Context, call agent.Call) error {
		if m.opts.Hook == nil {
			return nil
		}
		return m.opts.Hook(ctx, g, call)
	})
	if err := agent.Run(ctx, *m.config, opts); err != nil {
		m.log.Error("the agent ended", "error", err)
		<-ctx.Done()
	}
}

func (m *goroutines) erase() {}

// newClient is the agent's own client, on the hosts' network.
func newClient(ca string, dial func(ctx context.Context, network, addr string) (net.Conn, error)) (*http.Client, error) {
	client, err := agent.NewHTTPClient(ca)
	if err != nil || dial == nil {
		return client, err
	}
	transport, ok := client.Transport.(*http.Transport)
	if !ok {
		return nil, fmt.Errorf("the agent's transport is a %T", client.Transport)
	}
	transport.DialContext = dial
	transport.Proxy = nil // a network of its own has no way out through a proxy
	return client, nil
}

// report logs what came of the user data, never the data.
func report(log *slog.Logger, s seed, err error) {
	for _, what := range s.passedBy {
		log.Warn("a part of the user data is passed by", "reason", what)
	}
	if err != nil {
		log.Warn("no agent will run on this server: look at its user data", "error", err)
		return
	}
	log.Debug("the user data installs an agent", "machine_id", s.config.MachineID)
}
