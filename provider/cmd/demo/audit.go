package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	pb "bigfleet-providers/proto/bigfleet/v1alpha1"
)

// inventory is what the fake cloud holds, by its own word.
type inventory struct {
	Servers int
	Leaks   []string // what no server owns: volumes, addresses
}

// audit asks the three that can know, provider, cloud and operating system,
// what is left, and stops the provider to see that it leaves cleanly.
func (p *play) audit(ctx context.Context) (string, error) {
	list, err := p.shard.client.List(ctx, &pb.ListFilter{})
	if err != nil {
		return "", fmt.Errorf("list: %w", err)
	}
	var errs []error
	for _, m := range list.GetMachines() {
		if m.GetState() != pb.MachineState_MACHINE_STATE_SPECULATIVE || m.GetHost().GetRef() != "" || m.GetCluster() != "" {
			errs = append(errs, fmt.Errorf("the provider lists %s as %s, host %q, cluster %q; want a free slot",
				m.GetId(), word(m.GetState()), m.GetHost().GetRef(), m.GetCluster()))
		}
	}
	count, err := p.count(ctx)
	if err != nil {
		return "", err
	}
	errs = append(errs, count.empty())
	gone := p.until(ctx, "the hosts' processes to end", func() (bool, error) {
		left, err := p.stage.hosts()
		return len(left) == 0, err
	})
	if err := errors.Join(append(errs, gone)...); err != nil {
		return "", err
	}

	provider := p.stage.provider
	p.stage.provider = nil
	if err := provider.stop(); err != nil {
		return "", err
	}
	return fmt.Sprintf("provider: %d free slots; cloud: 0 servers, 0 volumes, 0 addresses; this machine: 0 host processes", len(list.GetMachines())), nil
}

// empty returns an error that names what is left.
func (i inventory) empty() error {
	var errs []error
	if i.Servers != 0 {
		errs = append(errs, fmt.Errorf("the cloud still has %d servers", i.Servers))
	}
	if len(i.Leaks) != 0 {
		errs = append(errs, fmt.Errorf("the cloud still has, and bills: %s", strings.Join(i.Leaks, ", ")))
	}
	return errors.Join(errs...)
}

// fetch reads one of the fake cloud's debug pages.
func (p *play) fetch(ctx context.Context, page string, into any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+p.stage.cloudAddr+"/debug/"+page, http.NoBody)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("GET %s: %s", req.URL, resp.Status)
	}
	if err := json.NewDecoder(resp.Body).Decode(into); err != nil {
		return fmt.Errorf("GET %s: %w", req.URL, err)
	}
	return nil
}

// count asks the cloud what it has.
func (p *play) count(ctx context.Context) (inventory, error) {
	var servers []json.RawMessage
	var leaks []string
	err := errors.Join(p.fetch(ctx, "servers", &servers), p.fetch(ctx, "leaks", &leaks))
	return inventory{Servers: len(servers), Leaks: leaks}, err
}

// cloudReady waits until the fake cloud answers.
func (p *play) cloudReady(ctx context.Context) error {
	tick := time.NewTicker(frame)
	defer tick.Stop()
	for {
		if err := p.stage.check(); err != nil {
			return err
		}
		_, err := p.count(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("waited for the fake cloud: %w", err)
		}
	}
}
