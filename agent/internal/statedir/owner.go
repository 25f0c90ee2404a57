package statedir

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

const (
	ownerFile   = "owner.json"
	asidePrefix = "foreign-"
	keepAside   = 2
)

// Owner says whose state a directory holds. Of the three marks of the host the
// first that is known on both sides decides: each is the same after a reboot, and
// another on a host that was made from this one's disk.
type Owner struct {
	// MachineID is the machine's id with the provider.
	MachineID string `json:"machine_id"`
	// Hardware is the hypervisor's or the board's UUID.
	Hardware string `json:"hardware,omitempty"`
	// Instance is the cloud's id of the server, as cloud-init found it.
	Instance string `json:"instance,omitempty"`
	// System is the installed system's id, which images often share.
	System string `json:"system,omitempty"`
}

// ThisHost is the owner for a machine on the host that this program runs on. root
// is "/", except in tests.
func ThisHost(machineID, root string) Owner {
	o := Owner{
		MachineID: machineID,
		Instance:  firstLine(root, "var/lib/cloud/data/instance-id"),
		System:    firstLine(root, "etc/machine-id"),
	}
	// A container sees the hardware of its host, which its siblings share.
	if _, err := os.Stat(filepath.Join(root, "run/systemd/container")); errors.Is(err, fs.ErrNotExist) {
		o.Hardware = strings.ToLower(firstLine(root, "sys/class/dmi/id/product_uuid"))
	}
	if !tells(o.Hardware) {
		o.Hardware = ""
	}
	// What cloud-init says where it found no cloud: also on a server whose metadata
	// service did not answer at this boot.
	if o.Instance == "iid-datasource-none" || o.Instance == "nocloud" {
		o.Instance = ""
	}
	if o.System == "uninitialized" {
		o.System = ""
	}
	return o
}

// tells says whether a UUID is more than what makers of boards leave there.
func tells(uuid string) bool {
	return len(uuid) == 36 && strings.Trim(uuid, "0-") != "" && strings.Trim(uuid, "f-") != "" &&
		uuid != "03000200-0400-0500-0006-000700080009"
}

func firstLine(root, name string) string {
	body, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		return "" // not known here, as on many kinds of hosts
	}
	line, _, _ := strings.Cut(string(body), "\n")
	return strings.TrimSpace(line)
}

// differs tells by what the other owner is another than o, "" if it is the same.
func (o Owner) differs(other Owner) string {
	if o.MachineID != other.MachineID {
		return fmt.Sprintf("machine %q", other.MachineID)
	}
	for _, mark := range []struct{ name, ours, theirs string }{
		{"hardware", o.Hardware, other.Hardware},
		{"instance", o.Instance, other.Instance},
		{"system", o.System, other.System},
	} {
		if mark.ours != "" && mark.theirs != "" {
			if mark.ours != mark.theirs {
				return fmt.Sprintf("%s %q", mark.name, mark.theirs)
			}
			return ""
		}
	}
	return ""
}

// Foreign tells whether the directory at path is marked as another owner's. It
// changes nothing.
func Foreign(path string, owner Owner) bool {
	other, err := readOwner(path)
	return err == nil && owner.differs(other) != ""
}

func readOwner(path string) (Owner, error) {
	body, err := ReadFile(path, ownerFile)
	if err != nil {
		return Owner{}, err
	}
	var o Owner
	if err := json.Unmarshal(body, &o); err != nil {
		return Owner{}, err
	}
	if o.MachineID == "" {
		return Owner{}, errors.New("no machine_id")
	}
	return o, nil
}

// settle marks the directory as the owner's, after it set aside what is
// another's.
func (d *Dir) settle() error {
	if d.settled {
		return nil
	}
	other, err := readOwner(d.path)
	switch {
	case err == nil:
	case errors.Is(err, fs.ErrNotExist):
		other = Owner{MachineID: d.unmarked}
	default:
		d.log.Error("the owner of the state directory cannot be read; assuming that the state is this host's", "dir", d.path, "error", err)
		other = Owner{}
	}
	if what := d.owner.differs(other); what != "" && other.MachineID != "" {
		d.foreign = true
		aside, err := d.setAside(d.path)
		if err != nil {
			return fmt.Errorf("it holds the state of %s, which cannot be set aside: %w", what, err)
		}
		d.log.Warn("the state of another machine, from an image or a copied disk, is set aside; this host starts with none", "dir", aside, "of", what)
	}
	d.foreign = false
	if err != nil || other != d.owner {
		body, err := json.MarshalIndent(d.owner, "", " ")
		if err != nil {
			return err
		}
		if err := replace(filepath.Join(d.path, ownerFile), append(body, '\n')); err != nil {
			return err
		}
	}
	d.settled, d.unmarked = true, ""
	return nil
}

// setAside moves all that is in dir into a folder of it. The mark goes last: a
// run that is cut short is followed by another.
func setAside(dir string) (string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return "", err
	}
	aside := filepath.Join(dir, asidePrefix+time.Now().UTC().Format("20060102T150405.000Z"))
	if err := os.Mkdir(aside, 0o700); err != nil {
		return "", err
	}
	var earlier []string
	for _, e := range entries {
		switch name := e.Name(); {
		case name == lockName, name == ownerFile:
		case strings.HasPrefix(name, asidePrefix):
			earlier = append(earlier, filepath.Join(dir, name))
		default:
			if err := os.Rename(filepath.Join(dir, name), filepath.Join(aside, name)); err != nil {
				return "", err
			}
		}
	}
	if err := ignoreNotExist(os.Rename(filepath.Join(dir, ownerFile), filepath.Join(aside, ownerFile))); err != nil {
		return "", err
	}
	slices.Sort(earlier)
	for _, old := range earlier[:max(0, len(earlier)-keepAside+1)] {
		if err := os.RemoveAll(old); err != nil {
			return "", err
		}
	}
	return aside, syncDir(dir)
}
