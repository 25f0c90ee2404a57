package provider

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/google/uuid"

	"bigfleet-providers/provider/internal/cloud/scaleway"
	"bigfleet-providers/provider/internal/cloud/scaleway/elasticmetal"
	"bigfleet-providers/provider/internal/fakecloud"
	"bigfleet-providers/provider/internal/machine"
	"bigfleet-providers/provider/internal/store"
)

// restoreMetal is restore for dedicated servers.
func (w *fakeWorld) restoreMetal(cfg *Config, st *store.Store, userData func(machineID string) ([]byte, error)) error {
	var errs []error
	st.Records(func(rec machine.Record) bool {
		server, there := w.metalOf(cfg, rec)
		if !there {
			return true
		}
		var err error
		if server.UserData, err = userData(rec.ID); err == nil {
			err = w.cloud.RestoreMetal(server)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("machine %s: %w", rec.ID, err))
		}
		return true
	})
	return errors.Join(errs...)
}

// metalOf is the server of a machine, if it has one.
func (w *fakeWorld) metalOf(cfg *Config, rec machine.Record) (fakecloud.Existing, bool) {
	ref, cluster, installed := rec.Host, "", true
	switch op := rec.Op; {
	case op != nil && op.Kind == machine.Create:
		ref, installed = op.Ref, slices.Contains([]string{"power-on", "boot", "first-contact", "scrub"}, op.Step)
		if ref == "" && elasticmetal.Doubtful(op.Notes) {
			// An order that the real cloud would have got. Its answer is lost.
			ref = cfg.Zone + "/" + uuid.NewString()
		}
	case op != nil:
		ref = op.Ref
	case rec.Leftover != nil:
		ref = rec.Leftover.Ref
	}
	if rec.State == machine.Configured || rec.State == machine.Draining {
		cluster = rec.Cluster
	}
	zone, id, ok := strings.Cut(ref, "/")
	name := scaleway.ServerName(rec.ID, rec.History.Create)
	return fakecloud.Existing{
		ID: id, Zone: zone, Project: w.projectID, CommercialType: rec.Offer.InstanceType,
		Name: name, Hostname: name, Installed: installed,
		Tags: scaleway.Tags{Owner: cfg.Provider, Machine: rec.ID, Operation: rec.History.Create, Cluster: cluster}.List(),
	}, ok
}
