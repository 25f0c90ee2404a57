package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"time"

	pb "bigfleet-providers/proto/bigfleet/v1alpha1"
)

// thing is what the audit needs to know of a server, a volume or an address:
// enough to find it.
type thing struct {
	Kind string `json:"kind"`
	ID   string `json:"id"`
	Name string `json:"name"`
	Zone string `json:"zone"`
}

// inventory is what the fake cloud holds, by its own word.
type inventory struct {
	servers []thing
	volumes []thing
	leaks   []thing // what bills and belongs to no server, addresses included
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

	if err := p.takeLeave(); err != nil {
		return "", err
	}
	return "0 servers, 0 volumes, 0 addresses, 0 host processes; " + number(len(list.GetMachines()), "free slot"), nil
}

// takeLeave stops the provider and looks for secrets in what it wrote.
func (p *play) takeLeave() error {
	provider := p.stage.provider
	p.stage.provider = nil
	if err := provider.stop(); err != nil {
		return err
	}
	if err := p.stage.searchFor(map[string]string{"bootstrap secret": p.stage.secret, "join script": p.script.gate}); err != nil {
		return err
	}
	p.screen.say("no secret and no join script in the logs and the state file")
	return nil
}

// searchFor returns an error if the logs or the state file hold one of the
// texts, which are named by what they would give away.
func (s *stage) searchFor(secrets map[string]string) error {
	var errs []error
	for _, path := range append(s.logs(), s.path(stateFile)) {
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for name, text := range secrets {
			if bytes.Contains(content, []byte(text)) {
				errs = append(errs, fmt.Errorf("%s holds the %s", path, name))
			}
		}
	}
	return errors.Join(errs...)
}

// empty returns an error that names what is left.
func (i inventory) empty() error {
	var errs []error
	for _, s := range i.servers {
		errs = append(errs, fmt.Errorf("the cloud still has server %s (%s) in %s", s.Name, s.ID, s.Zone))
	}
	for _, v := range i.volumes {
		errs = append(errs, fmt.Errorf("the cloud still has volume %s (%s) in %s", v.Name, v.ID, v.Zone))
	}
	for _, l := range i.leaks {
		errs = append(errs, fmt.Errorf("the cloud bills what no server uses: %s %s (%s) in %s", l.Kind, l.Name, l.ID, l.Zone))
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
	var i inventory
	servers := "servers"
	if p.stage.metal {
		servers = "metal"
	}
	err := errors.Join(p.fetch(ctx, servers, &i.servers), p.fetch(ctx, "volumes", &i.volumes), p.fetch(ctx, "leaks", &i.leaks))
	return i, err
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
