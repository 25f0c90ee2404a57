package scaleway

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"strings"
	"time"

	"bigfleet-providers/provider"
	"bigfleet-providers/provider/internal/cloud/scaleway"
	"bigfleet-providers/provider/internal/cloud/scaleway/instances"
	"bigfleet-providers/provider/internal/fakecloud"
	"bigfleet-providers/provider/internal/fakecloud/host"
	"bigfleet-providers/provider/internal/machine"
)

// hostsDir is what fake hosts keep, in the trial's folder.
const hostsDir = "hosts"

// fake is a fake Scaleway inside the process, with its hosts.
type fake struct {
	settings *settings
	owner    string // whose servers it restores
	cloud    *fakecloud.Cloud
	account  account
	stop     func() error // of its API
}

// openFake starts the fake cloud and its hosts.
func (s *settings) openFake(ctx context.Context, c *provider.Config, o provider.Opening) (*fake, error) {
	hosts, err := s.fakeHosts(o) //nolint:contextcheck // what it runs has deadlines of its own
	if err != nil {
		return nil, fmt.Errorf("fake backend: %w", err)
	}
	quiet := slog.New(levelled{o.Log.With("part", "fakecloud").Handler(), slog.LevelWarn})
	f := &fake{
		settings: s, owner: c.Provider,
		cloud: fakecloud.New(fakecloud.Options{Log: quiet, Scale: s.FakeScale, Hosts: hosts, SSHKeys: []string{fakecloud.SampleSSHKey}}),
	}
	url, stop, err := o.Trial.Serve(ctx, f.cloud.Handler())
	if err != nil {
		f.cloud.Close()
		return nil, err
	}
	f.stop = stop
	f.account = account{
		ClientConfig: scaleway.ClientConfig{
			AccessKey: fakecloud.DefaultAccessKey, SecretKey: fakecloud.DefaultSecretKey, ProjectID: fakecloud.DefaultProjectID,
			Zone: s.Zone, APIURL: url,
		},
		timing: instances.Timing{
			Poll:   max(s.scaled(5*time.Second), 20*time.Millisecond),
			Settle: max(s.scaled(10*time.Second), 100*time.Millisecond),
		},
	}
	o.Log.Info("fake Scaleway serves", "url", url, "hosts", s.FakeHosts, "scale", s.FakeScale)
	return f, nil
}

// scaled is a delay of Scaleway's at the fake's pace.
func (s *settings) scaled(d time.Duration) time.Duration {
	return time.Duration(float64(d) * s.FakeScale)
}

// fakeHosts makes what boots when a server is powered on.
func (s *settings) fakeHosts(o provider.Opening) (fakecloud.Hosts, error) {
	mode := host.Mode(s.FakeHosts)
	if o.ReadOnly {
		mode = host.None
	}
	// Thousands of agents in the process would drown its own log.
	quiet := slog.New(levelled{o.Log.Handler(), slog.LevelWarn})
	return host.Choose(host.Choice{
		Mode: mode, Dir: o.Trial.Path(hostsDir), Agent: s.FakeAgent, Dial: o.Trial.Dial, Log: quiet,
	})
}

// levelled lets through what is of a level or above.
type levelled struct {
	slog.Handler
	least slog.Level
}

// Enabled implements slog.Handler.
func (l levelled) Enabled(ctx context.Context, level slog.Level) bool {
	return level >= l.least && l.Handler.Enabled(ctx, level)
}

// WithAttrs implements slog.Handler.
func (l levelled) WithAttrs(attrs []slog.Attr) slog.Handler {
	return levelled{l.Handler.WithAttrs(attrs), l.least}
}

// WithGroup implements slog.Handler.
func (l levelled) WithGroup(name string) slog.Handler {
	return levelled{l.Handler.WithGroup(name), l.least}
}

// restore makes the servers of the state's machines again, under their ids, and
// boots their hosts.
func (f *fake) restore(records iter.Seq[machine.Record], userData func(machineID, operationID string) ([]byte, error)) error {
	if f.settings.metal() {
		return f.restoreMetal(records, userData)
	}
	var errs []error
	for rec := range records {
		ref, cluster := rec.Host, ""
		switch {
		case rec.Op != nil:
			ref = rec.Op.Ref
		case rec.Leftover != nil:
			ref = rec.Leftover.Ref
		}
		if rec.State == machine.Configured || rec.State == machine.Draining {
			cluster = rec.Cluster
		}
		zone, id, ok := strings.Cut(ref, "/")
		if !ok {
			continue
		}
		data, err := userData(rec.ID, rec.History.Create)
		if err == nil {
			err = f.cloud.Restore(fakecloud.Existing{
				ID: id, Zone: zone, Project: f.account.ProjectID, CommercialType: rec.Offer.InstanceType, Image: f.settings.Image,
				Name:     scaleway.ServerName(rec.ID, rec.History.Create),
				Tags:     f.tags(rec, cluster),
				UserData: data,
			})
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("machine %s: %w", rec.ID, err))
		}
	}
	return errors.Join(errs...)
}

// tags are those of the server of a machine.
func (f *fake) tags(rec machine.Record, cluster string) []string {
	tags := scaleway.Tags{Owner: f.owner, Machine: rec.ID, Operation: rec.History.Create, Cluster: cluster}
	if rec.Bound {
		tags.Life = tags.Operation
	}
	return tags.List()
}

// Close stops the API, the cloud and its hosts.
func (f *fake) Close() error {
	err := f.stop()
	f.cloud.Close()
	return err
}
