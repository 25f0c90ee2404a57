package store

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	"go.etcd.io/bbolt"
	"google.golang.org/protobuf/proto"

	statev1 "bigfleet-providers/proto/bigfleet/state/v1"
)

// Owner is whose state a file is: what must stay the same from one start to the
// next. Another provider would find none of the file's servers at its cloud, and
// take its machines for lost.
type Owner struct {
	Provider  string `json:"provider"`
	Zone      string `json:"zone"`
	Substrate string `json:"substrate"`
	Project   string `json:"project"` // its id
	// Flags are how an operator sets them; no part of whose a file is, nor on disk.
	Flags OwnerFlags `json:"-"`
}

// OwnerFlags are the vendor's flags behind an Owner, such as --zone; "" where there
// is none.
type OwnerFlags struct{ Zone, Substrate, Project string }

// differences says, one for each flag, what another owner's are, by its flags.
func (o Owner) differences(other Owner) []string {
	var out []string
	for _, f := range []struct{ flag, have, want string }{
		{"--provider", o.Provider, other.Provider},
		{cmp.Or(other.Flags.Zone, "zone"), o.Zone, other.Zone},
		{cmp.Or(other.Flags.Substrate, "substrate"), o.Substrate, other.Substrate},
		{cmp.Or(other.Flags.Project, "project"), o.Project, other.Project},
	} {
		if f.have != f.want {
			out = append(out, fmt.Sprintf("%s %q and not %q", f.flag, f.have, f.want))
		}
	}
	return out
}

// refuse returns why the file is not for the owner, nil when it is, or when it
// does not say whose it is.
func (o Owner) refuse(other Owner) error {
	if o == (Owner{}) || other == (Owner{}) {
		return nil
	}
	if d := o.differences(other); len(d) > 0 {
		back := "give the flag its former value back"
		if len(d) > 1 {
			back = "give the flags their former values back"
		}
		return fmt.Errorf("belongs to %s; "+back+", or name another --state: each provider needs its own", strings.Join(d, ", "))
	}
	return nil
}

// owner reads whose state an open file is; zero if it does not say so.
func (f *file) owner() (o Owner, err error) {
	err = f.guard(func() error {
		return f.db.View(func(tx *bbolt.Tx) error {
			o, err = readOwner(tx)
			return err
		})
	})
	return o, err
}

func readOwner(tx *bbolt.Tx) (Owner, error) {
	if tx.Bucket([]byte(metaBucket)).Get([]byte(ownerKey)) == nil {
		return Owner{}, nil
	}
	v, err := metaValue(tx, ownerKey)
	if err != nil {
		return Owner{}, err
	}
	var p statev1.Owner
	if err := proto.Unmarshal(v, &p); err != nil {
		return Owner{}, damaged("meta record %q: %w", ownerKey, err)
	}
	return Owner{Provider: string(p.Provider), Zone: string(p.Zone), Substrate: string(p.Substrate), Project: string(p.Project)}, nil
}

// belongTo makes a file that does not say whose it is the owner's.
func (f *file) belongTo(o Owner) error {
	have, err := f.owner()
	if err != nil || o == (Owner{}) || have != (Owner{}) {
		return err
	}
	v, err := seal(metaBucket, ownerKey, &statev1.Owner{
		Provider: []byte(o.Provider), Zone: []byte(o.Zone), Substrate: []byte(o.Substrate), Project: []byte(o.Project),
	})
	if err != nil {
		return err
	}
	err = f.guard(func() error {
		return f.db.Update(func(tx *bbolt.Tx) error { return tx.Bucket([]byte(metaBucket)).Put([]byte(ownerKey), v) })
	})
	if err != nil && !errors.Is(err, errDamaged) {
		return fmt.Errorf("cannot be written: %w", err)
	}
	return err
}
