package statedir

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const (
	uuidA = "11111111-2222-3333-4444-555555555555"
	uuidB = "99999999-2222-3333-4444-555555555555"
)

func open(t *testing.T, path string, o Owner, unmarked string) (*Dir, *bytes.Buffer) {
	t.Helper()
	var log bytes.Buffer
	d, err := Open(path, o, unmarked, slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() }) // closed already by some tests
	return d, &log
}

func write(t *testing.T, d *Dir, name, text string) {
	t.Helper()
	if err := d.Write(name, []byte(text)); err != nil {
		t.Fatal(err)
	}
}

func listed(t *testing.T, pattern ...string) []string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(pattern...))
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// A host takes up its own state whatever changed about it, and no other's.
func TestWhoseStateItIs(t *testing.T) {
	a := Owner{MachineID: "m-1", Hardware: uuidA, Instance: "i-1", System: "s-1"}
	for name, tt := range map[string]struct {
		before, now Owner
		foreign     bool
	}{
		"the same":                            {a, a, false},
		"another machine":                     {a, Owner{"m-2", uuidA, "i-1", "s-1"}, true},
		"a copied disk":                       {a, Owner{"m-1", uuidB, "i-1", "s-1"}, true},
		"a copied disk, no hardware id":       {Owner{"m-1", "", "i-1", "s-1"}, Owner{"m-1", "", "i-2", "s-1"}, true},
		"a copied disk, in a container":       {Owner{"m-1", "", "", "s-1"}, Owner{"m-1", "", "", "s-2"}, true},
		"a system id that each boot makes":    {a, Owner{"m-1", uuidA, "i-1", "s-2"}, false},
		"a cloud that did not answer":         {a, Owner{"m-1", uuidA, "", "s-1"}, false},
		"the same, and more is known":         {Owner{MachineID: "m-1", System: "s-1"}, a, false},
		"nothing in common to tell them by":   {Owner{MachineID: "m-1", Hardware: uuidA}, Owner{MachineID: "m-1", System: "s-1"}, false},
		"nothing in common, another machine":  {Owner{MachineID: "m-1", Hardware: uuidA}, Owner{MachineID: "m-2", System: "s-1"}, true},
		"nothing known of the host but of it": {Owner{MachineID: "m-1"}, Owner{MachineID: "m-1"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			at := t.TempDir()
			d, _ := open(t, at, tt.before, "")
			write(t, d, "host-id", "secret")
			write(t, d, "journal.json", "records")
			if err := d.Close(); err != nil {
				t.Fatal(err)
			}
			if got := Foreign(at, tt.now); got != tt.foreign {
				t.Errorf("foreign: %t, want %t", got, tt.foreign)
			}
			d, log := open(t, at, tt.now, "")
			_, err := d.Read("host-id")
			if got := os.IsNotExist(err); got != tt.foreign {
				t.Errorf("the id is gone: %t, want %t; %v", got, tt.foreign, err)
			}
			aside := listed(t, at, "foreign-*", "*")
			if got := len(aside) == 3; got != tt.foreign {
				t.Errorf("set aside: %q", aside)
			}
			if strings.Contains(log.String(), "level=WARN") != tt.foreign {
				t.Errorf("log: %s", log)
			}
			if err := d.Close(); err != nil {
				t.Fatal(err)
			}
			now, err := readOwner(at)
			if diff := cmp.Diff(tt.now, now); diff != "" || err != nil {
				t.Errorf("the mark: %s, %v", diff, err)
			}
			if Foreign(at, tt.now) {
				t.Error("foreign after it was settled")
			}
		})
	}
}

// What an agent before marks left is taken up, unless it is known to be of
// another machine.
func TestUnmarked(t *testing.T) {
	for unmarked, foreign := range map[string]bool{"": false, "m-1": false, "m-2": true} {
		at := t.TempDir()
		if err := os.WriteFile(filepath.Join(at, "host-id"), []byte("secret"), 0o600); err != nil {
			t.Fatal(err)
		}
		d, _ := open(t, at, Owner{MachineID: "m-1"}, unmarked)
		if _, err := d.Read("host-id"); os.IsNotExist(err) != foreign {
			t.Errorf("state of %q: %v", unmarked, err)
		}
	}
}

// While it cannot be set aside, another's state is neither read nor written over.
func TestForeignStateOnAFullDisk(t *testing.T) {
	at := t.TempDir()
	d, _ := open(t, at, Owner{MachineID: "m-1"}, "")
	write(t, d, "journal.json", "records of m-1")
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	full := func(string) (string, error) { return "", syscall.ENOSPC }
	d = &Dir{path: at, owner: Owner{MachineID: "m-2"}, log: slog.New(slog.DiscardHandler), setAside: full}
	for range 2 {
		if err := d.Write("journal.json", nil); !errors.Is(err, syscall.ENOSPC) {
			t.Errorf("Write: %v", err)
		}
		if body, err := d.Read("journal.json"); !os.IsNotExist(err) {
			t.Errorf("read %q, %v", body, err)
		}
	}
	t.Cleanup(func() { _ = d.Close() }) // the first one is closed
	d.setAside = setAside
	write(t, d, "journal.json", "records of m-2")
	if body, err := d.Read("journal.json"); string(body) != "records of m-2" {
		t.Errorf("read %q, %v", body, err)
	}
	if kept := listed(t, at, "foreign-*", "journal.json"); len(kept) != 1 {
		t.Errorf("set aside: %q", kept)
	}
}

// A run that was cut short in setting aside is followed by another; few are kept.
func TestSetAsideAgain(t *testing.T) {
	at := t.TempDir()
	for _, machine := range []string{"m-1", "m-2", "m-3", "m-4", "m-5"} {
		d, _ := open(t, at, Owner{MachineID: machine}, "")
		if _, err := d.Read("host-id"); !os.IsNotExist(err) {
			t.Errorf("%s has an id: %v", machine, err)
		}
		write(t, d, "host-id", machine)
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
	}
	kept := listed(t, at, "foreign-*", "host-id")
	if len(kept) != keepAside {
		t.Fatalf("kept: %q", kept)
	}
	if body, err := os.ReadFile(kept[1]); string(body) != "m-4" {
		t.Errorf("the last one is of %q, %v", body, err)
	}
}

func TestThisHost(t *testing.T) {
	for name, tt := range map[string]struct {
		files map[string]string
		want  Owner
	}{
		"all": {
			map[string]string{"sys/class/dmi/id/product_uuid": "ABCDEF00-2222-3333-4444-555555555555\n", "var/lib/cloud/data/instance-id": "i-1\n", "etc/machine-id": "s-1\n"},
			Owner{"m", "abcdef00-2222-3333-4444-555555555555", "i-1", "s-1"},
		},
		"none": {nil, Owner{MachineID: "m"}},
		"a container": {
			map[string]string{"sys/class/dmi/id/product_uuid": uuidA, "run/systemd/container": "systemd-nspawn", "etc/machine-id": "s-1\n"},
			Owner{MachineID: "m", System: "s-1"},
		},
		"marks that tell nothing": {
			map[string]string{"sys/class/dmi/id/product_uuid": "03000200-0400-0500-0006-000700080009\n", "var/lib/cloud/data/instance-id": "iid-datasource-none\n", "etc/machine-id": "uninitialized\n"},
			Owner{MachineID: "m"},
		},
		"zeroes":        {map[string]string{"sys/class/dmi/id/product_uuid": "00000000-0000-0000-0000-000000000000"}, Owner{MachineID: "m"}},
		"ones":          {map[string]string{"sys/class/dmi/id/product_uuid": "FFFFFFFF-FFFF-FFFF-FFFF-FFFFFFFFFFFF"}, Owner{MachineID: "m"}},
		"words":         {map[string]string{"sys/class/dmi/id/product_uuid": "Not Settable"}, Owner{MachineID: "m"}},
		"empty machine": {map[string]string{"etc/machine-id": ""}, Owner{MachineID: "m"}},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			for path, text := range tt.files {
				path = filepath.Join(root, path)
				if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if diff := cmp.Diff(tt.want, ThisHost("m", root)); diff != "" {
				t.Error(diff)
			}
		})
	}
}
