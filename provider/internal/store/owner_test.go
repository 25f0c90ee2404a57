package store

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.etcd.io/bbolt"
	"google.golang.org/protobuf/proto"

	statev1 "bigfleet-providers/proto/bigfleet/state/v1"
	"bigfleet-providers/provider/internal/machine"
)

var ours = Owner{Provider: "p1", Zone: "fr-par-1", Substrate: "instances", Project: "project-1"}

func TestAnotherOwnerIsRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state")
	own(t, path, ours, nil)
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for flag, change := range map[string]func(*Owner){
		`--provider "p1" and not "p2"`:                                       func(o *Owner) { o.Provider = "p2" },
		`--zone "fr-par-1" and not "fr-par-2"`:                               func(o *Owner) { o.Zone = "fr-par-2" },
		`--substrate "instances" and not "metal"`:                            func(o *Owner) { o.Substrate = "metal" },
		`--project-id "project-1" and not ""`:                                func(o *Owner) { o.Project = "" },
		`--provider "p1" and not "p2", --zone "fr-par-1" and not "nl-ams-1"`: func(o *Owner) { o.Provider, o.Zone = "p2", "nl-ams-1" },
	} {
		other := ours
		change(&other)
		other.Flags = OwnerFlags{Zone: "--zone", Substrate: "--substrate", Project: "--project-id"}
		_, err := Open(Options{Path: path, Owner: other})
		if err == nil || strings.Contains(err.Error(), "\n") {
			t.Fatalf("%s: got %v", flag, err)
		}
		back := "give the flag its former value back"
		if strings.Contains(flag, ", ") {
			back = "give the flags their former values back"
		}
		for _, want := range []string{path, flag, back, "another --state"} {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("the refusal does not say %q: %v", want, err)
			}
		}
	}
	if after, err := os.ReadFile(path); err != nil || !bytes.Equal(after, before) {
		t.Errorf("the file was changed: %v", err)
	}
	own(t, path, ours, nil)
	own(t, path, Owner{}, nil) // whoever does not say who it is may look
}

// own opens a file as an owner's and closes it again.
func own(t *testing.T, path string, o Owner, use func(*Store)) {
	t.Helper()
	s, err := Open(Options{Path: path, Owner: o})
	if err != nil {
		t.Fatal(err)
	}
	if use != nil {
		use(s)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestOlderFileGetsItsOwner: files of the first releases say nothing. The first
// that opens one keeps it, through a backup and a restore too.
func TestOlderFileGetsItsOwner(t *testing.T) {
	path := fixture(t, "v1.state")
	own(t, path, ours, func(s *Store) { must(t, s, "new", to(machine.Idle)) })
	backup, restored := filepath.Join(t.TempDir(), "backup"), filepath.Join(t.TempDir(), "restored")
	c, err := Backup(path, backup)
	if err != nil {
		t.Fatal(err)
	}
	if c.Owner != ours {
		t.Errorf("inspected: %+v", c.Owner)
	}
	if _, err := Restore(backup, restored, false, time.Now()); err != nil {
		t.Fatal(err)
	}
	for _, p := range []string{path, backup, restored} {
		if _, err := Open(Options{Path: p, Owner: Owner{Provider: "p2"}}); err == nil || !strings.Contains(err.Error(), "belongs to") {
			t.Errorf("%s: got %v", filepath.Base(p), err)
		}
		own(t, p, ours, nil)
	}
}

// TestHostsNameTheirProvider: earlier releases read the same files, and show what
// is written with a host and not the owner.
func TestHostsNameTheirProvider(t *testing.T) {
	dir := t.TempDir()
	path, restored := filepath.Join(dir, "state"), filepath.Join(dir, "restored")
	own(t, path, ours, func(s *Store) {
		must(t, s, "m", func(machine.Record) (machine.Record, machine.Change, error) {
			// A restore writes it again: what is left over is kept for longer.
			return machine.Record{State: machine.Failed, Host: "r", Leftover: &machine.Leftover{Ref: "r"}}, machine.Visible, nil
		})
	})
	if _, err := Restore(path, restored, false, time.Now()); err != nil {
		t.Fatal(err)
	}
	for _, p := range []string{path, restored} {
		db, err := bbolt.Open(p, 0o600, &bbolt.Options{ReadOnly: true, Timeout: time.Second})
		if err != nil {
			t.Fatal(err)
		}
		var rec statev1.Record
		err = db.View(func(tx *bbolt.Tx) error {
			payload, err := open(machinesBucket, "m", tx.Bucket([]byte(machinesBucket)).Get([]byte("m")))
			return errors.Join(err, proto.Unmarshal(payload, &rec))
		})
		if err := errors.Join(err, db.Close()); err != nil {
			t.Fatal(err)
		}
		if h := rec.GetHost(); h.GetProvider() != ours.Provider || h.GetRef() != "r" {
			t.Errorf("%s: host %v, want provider %q", filepath.Base(p), h, ours.Provider)
		}
	}
}

// TestAnotherOwnerDoesNotUpgrade: a refused file is as it was.
func TestAnotherOwnerDoesNotUpgrade(t *testing.T) {
	path := fixture(t, "v1.state")
	own(t, path, ours, nil)
	if _, err := openFile(path, grown(1), Owner{Provider: "p2"}); err == nil || !strings.Contains(err.Error(), "belongs to") {
		t.Fatalf("got %v", err)
	}
	if c, err := Inspect(path); err != nil || c.Version != 1 {
		t.Errorf("%+v, %v", c, err)
	}
}

func TestDamagedOwnerIsRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state")
	own(t, path, ours, nil)
	edit(t, path, func(tx *bbolt.Tx) error {
		return tx.Bucket([]byte(metaBucket)).Put([]byte(ownerKey), []byte("\x00\x00\x00\x00\x0a\x02p1"))
	})
	if _, err := Open(Options{Path: path, Owner: ours}); err == nil || !strings.Contains(err.Error(), recovery) || !strings.Contains(err.Error(), `"owner"`) {
		t.Errorf("got %v", err)
	}
}
