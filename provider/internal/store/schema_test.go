package store

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.etcd.io/bbolt"

	"bigfleet-providers/provider/internal/machine"
)

// fixture copies a stored file of an earlier release and returns the path of
// the copy. The files are never written again: what a release wrote must open
// for ever.
func fixture(t *testing.T, name string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "state")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// v1Records are what testdata/v1.state was written with, by the first release.
// Fields that came later are not in it, and stay zero.
func v1Records() []machine.Record {
	at := time.Date(2026, 3, 4, 5, 6, 7, 89, time.UTC)
	notes := map[string]string{"volume": "v-1", "raw": "\xff\x00"}
	return []machine.Record{{
		ID: "m", Slot: "slot",
		Offer: &machine.Offer{
			InstanceType: "type", Zone: "zone", Capacity: machine.Spot, PricePerHour: 1.25, Interruption: 0.5,
			Resources: map[string]string{"cpu": "1"}, Labels: map[string]string{"l": ""}, Allocatable: map[string]string{"memory": "1Gi"},
		},
		State: machine.Configuring, Since: at, Host: "r", Cluster: "c",
		Metadata:  map[string]string{"nul": "a\x00b", "empty": "", "": "no key"},
		LastError: "not \xfe UTF-8",
		Marks:     machine.Marks{}.With("s", machine.Mark{Epoch: 1<<63 - 1, Sequence: 1<<63 - 1}).With("", machine.Mark{Epoch: 1}),
		History:   machine.History{Create: "h1", Configure: "h2", Drain: "h3", Delete: "h4"},
		Op: &machine.Operation{
			ID: "op", Kind: machine.Configure, Started: at.Add(1), Deadline: at.Add(2), Step: "deliver", StepBegan: at.Add(3),
			Ref: "ref", Notes: notes, Grace: time.Minute, Sealed: []byte{0, 1, 255}, Joined: true,
		},
		Leftover: &machine.Leftover{OperationID: "lo", Ref: "lr", Notes: notes, Step: "ls", After: at.Add(4)},
		Retired:  true, Succeeded: true, Revision: 1,
	}, {ID: "bare", State: machine.Speculative, Offer: &machine.Offer{}, Revision: 2}}
}

func TestFilesOfEveryVersionOpen(t *testing.T) {
	for _, name := range []string{"v1.state"} {
		t.Run(name, func(t *testing.T) {
			s := start(t, fixture(t, name))
			if d := cmp.Diff(v1Records(), records(s)); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
			if got := must(t, s, "ghost", to(machine.Speculative)); markOf(got, "shard-1") != (machine.Mark{Epoch: 7, Sequence: 9}) {
				t.Errorf("fencing marks of an id without a machine: %v", got.Marks)
			}
		})
	}
	if n := len(schema); n != 0 {
		t.Errorf("the schema has version %d: store a file of each earlier one in testdata and name it above", firstVersion+n)
	}
}

// grown is a ladder of made-up upgrades. Each renames the machine "bare", so
// that it shows how often it ran.
func grown(steps int) ladder {
	l := make(ladder, steps)
	for i := range l {
		l[i] = func(tx *bbolt.Tx) error {
			machines := tx.Bucket([]byte(machinesBucket))
			var dec decoder
			old := "bare" + strings.Repeat("+", i)
			rec, err := dec.record(old, machines.Get([]byte(old)))
			if err != nil {
				return err
			}
			c := &change{id: old + "+", rec: rec}
			var enc encoder
			return errors.Join(enc.record(c), machines.Delete([]byte(old)), machines.Put([]byte(c.id), c.data))
		}
	}
	return l
}

func names(c *Contents) []string {
	var ids []string
	for _, m := range c.Machines {
		ids = append(ids, m.ID)
	}
	return ids
}

func TestUpgrade(t *testing.T) {
	path := fixture(t, "v1.state")
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}

	// To look at it changes nothing, and sees what the upgrade would make of it.
	c, err := inspect(path, grown(2))
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]string{"m", "bare++"}, names(c)); d != "" || c.Version != 1 {
		t.Errorf("version %d, machines (-want +got):\n%s", c.Version, d)
	}
	if now, err := os.ReadFile(path); err != nil || !bytes.Equal(now, before) {
		t.Errorf("a look changed the file: %v", err)
	}

	for range 2 { // the second finds nothing to do
		f, err := openFile(path, grown(2), Owner{})
		if err != nil {
			t.Fatal(err)
		}
		c, err := f.contents()
		if err := errors.Join(err, f.close()); err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff([]string{"m", "bare++"}, names(c)); d != "" || c.Version != 3 {
			t.Errorf("version %d, machines (-want +got):\n%s", c.Version, d)
		}
	}
	for version, want := range map[string][]string{"v1": {"m", "bare"}, "v2": {"m", "bare+"}} {
		c, err := inspect(path+"."+version, grown(int(version[1]-'1')))
		if err != nil {
			t.Fatalf("the kept copy: %v", err)
		}
		if d := cmp.Diff(want, names(c)); d != "" {
			t.Errorf("the kept copy %s (-want +got):\n%s", version, d)
		}
	}
	if files, _ := filepath.Glob(path + "*"); len(files) != 3 {
		t.Errorf("left behind: %v", files)
	}
	// The release before must refuse the file, and read the copy.
	if _, err := Open(Options{Path: path}); err == nil || !strings.Contains(err.Error(), "version 3") || !strings.Contains(err.Error(), "version 1;") {
		t.Errorf("got %v", err)
	}
	start(t, path+".v1")
}

func TestFailedUpgradeLeavesTheFileAsItWas(t *testing.T) {
	path := fixture(t, "v1.state")
	broken := append(grown(1), func(tx *bbolt.Tx) error {
		return errors.Join(tx.DeleteBucket([]byte(marksBucket)), errors.New("no way"))
	})
	_, err := openFile(path, broken, Owner{})
	if err == nil || !strings.Contains(err.Error(), "from schema version 2 to 3") || !strings.Contains(err.Error(), "no way") {
		t.Errorf("got %v", err)
	}
	c, err := inspect(path, grown(1))
	if err != nil || c.Version != 2 {
		t.Fatalf("after a failed second step: %+v, %v", c, err)
	}
	// A new try goes on from there.
	f, err := openFile(path, grown(2), Owner{})
	if err != nil {
		t.Fatal(err)
	}
	if err := f.close(); err != nil {
		t.Fatal(err)
	}
}
