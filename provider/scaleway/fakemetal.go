package scaleway

import (
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/google/uuid"

	"bigfleet-providers/provider/internal/cloud/scaleway"
	"bigfleet-providers/provider/internal/cloud/scaleway/elasticmetal"
	"bigfleet-providers/provider/internal/fakecloud"
	"bigfleet-providers/provider/internal/machine"
)

// restoreMetal is restore for dedicated servers.
func (f *fake) restoreMetal(records iter.Seq[machine.Record], userData func(machineID, operationID string) ([]byte, error)) error {
	var errs []error
	for rec := range records {
		server, there := f.metalOf(rec)
		if !there {
			continue
		}
		var err error
		if server.UserData, err = userData(rec.ID, rec.History.Create); err == nil {
			err = f.cloud.RestoreMetal(server)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("machine %s: %w", rec.ID, err))
		}
	}
	return errors.Join(errs...)
}

// metalOf is the server of a machine, if it has one.
func (f *fake) metalOf(rec machine.Record) (fakecloud.Existing, bool) {
	ref, cluster, installed := rec.Host, "", true
	switch op := rec.Op; {
	case op != nil && op.Kind == machine.Create:
		ref, installed = op.Ref, slices.Contains([]string{"power-on", "boot", "first-contact", "scrub"}, op.Step)
		if ref == "" && elasticmetal.Doubtful(op.Notes) {
			// An order that the real cloud would have got. Its answer is lost.
			ref = f.settings.Zone + "/" + uuid.NewString()
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
		ID: id, Zone: zone, Project: f.account.ProjectID, CommercialType: rec.Offer.InstanceType,
		Name: name, Hostname: name, Installed: installed,
		Tags: f.tags(rec, cluster),
	}, ok
}
