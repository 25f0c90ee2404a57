package store

import (
	"context"

	"go.etcd.io/bbolt"
	"google.golang.org/protobuf/proto"

	statev1 "bigfleet-providers/proto/bigfleet/state/v1"
	"bigfleet-providers/provider/internal/machine"
)

// Ownership returns what SetOwnership made durable; zero for a state that is new
// or was restored, and for one of a release that knew no owner epochs.
func (s *Store) Ownership() machine.Ownership {
	if o := s.ownership.Load(); o != nil {
		return *o
	}
	return machine.Ownership{}
}

// SetOwnership makes the ownership durable. The error is that of Do.
func (s *Store) SetOwnership(ctx context.Context, o machine.Ownership) error {
	_, err := s.submit(ctx, s.urgent, &request{
		ownership: &o,
		mutate:    func([]machine.Record) ([]machine.Next, error) { return nil, nil },
	})
	return err
}

func putOwnership(meta *bbolt.Bucket, o machine.Ownership) error {
	v, err := seal(metaBucket, ownershipKey, &statev1.Ownership{Number: o.Number, Holder: o.Holder, LostTo: o.LostTo})
	if err != nil {
		return err
	}
	return meta.Put([]byte(ownershipKey), v)
}

func readOwnership(tx *bbolt.Tx, s *Store) error {
	if tx.Bucket([]byte(metaBucket)).Get([]byte(ownershipKey)) == nil {
		return nil
	}
	v, err := metaValue(tx, ownershipKey)
	if err != nil {
		return err
	}
	var p statev1.Ownership
	if err := proto.Unmarshal(v, &p); err != nil {
		return damaged("meta record %q: %w", ownershipKey, err)
	}
	s.ownership.Store(&machine.Ownership{Number: p.Number, Holder: p.Holder, LostTo: p.LostTo})
	return nil
}
