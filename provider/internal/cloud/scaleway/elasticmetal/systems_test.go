package elasticmetal

import (
	"strings"
	"testing"

	"github.com/scaleway/scaleway-sdk-go/api/baremetal/v1"
	"github.com/scaleway/scaleway-sdk-go/scw"

	"bigfleet-providers/provider/internal/cloud"
)

func TestChooseSystem(t *testing.T) {
	able := func(id, name, version string) *baremetal.OS {
		return &baremetal.OS{ID: id, Name: name, Version: version, Enabled: true, Allowed: true, CloudInitSupported: true}
	}
	plain := able("4", "Ubuntu", "24.04 LTS without cloud-init")
	plain.CloudInitSupported = false
	proxmox := able("5", "Proxmox", "VE 8")
	proxmox.CloudInitSupported = false
	licensed := able("6", "Windows", "2022")
	licensed.LicenseRequired = true
	systems := []*baremetal.OS{
		able("1", "Ubuntu", "22.04 LTS (Jammy Jellyfish)"), plain, able("2", "Ubuntu", "24.04 LTS (Noble Numbat)"),
		able("3", "Debian", "12 (Bookworm)"), proxmox, licensed,
	}
	for wanted, want := range map[string]string{
		"1":                                   "1",
		"Ubuntu 24.04":                        "2", // of the two, the one that can
		"ubuntu  24.04 lts":                   "2",
		"Ubuntu 24.04 LTS (Noble Numbat)":     "2",
		"Debian 12":                           "3",
		"debian":                              "3",
		"Debian 1":                            "no such system", // no half words
		"Ubuntu":                              "several systems",
		"Proxmox VE 8":                        "does not support cloud-init",
		"5":                                   "does not support cloud-init",
		"Windows 2022":                        "licence",
		"Ubuntu 24.04 LTS without cloud-init": "does not support cloud-init",
	} {
		got, err := chooseSystem(systems, wanted)
		switch {
		case err != nil && !strings.Contains(err.Error(), want):
			t.Errorf("%q: %v, want %q", wanted, err, want)
		case err == nil && got.ID != want:
			t.Errorf("%q: system %s, want %q", wanted, got.ID, want)
		}
	}
}

func TestTypes(t *testing.T) {
	o := &baremetal.Offer{
		Name: "EM-X", PricePerHour: scw.NewMoneyFromFloat(4.11, "EUR", 3),
		CPUs:     []*baremetal.CPU{{CoreCount: 8, ThreadCount: 16}, {CoreCount: 8, ThreadCount: 16}},
		Memories: []*baremetal.Memory{{Capacity: 32 << 30}, {Capacity: 32 << 30}},
		Gpus:     []*baremetal.GPU{{Name: "NVIDIA L40S"}, {Name: "NVIDIA L40S"}},
	}
	got := typeOf(o)
	if got.Allocatable["cpu"] != "32" || got.Allocatable["memory"] != "64Gi" || got.Allocatable["nvidia.com/gpu"] != "2" ||
		got.Labels["bigfleet.io/accelerator"] != "NVIDIA-L40S" || got.PricePerHour != 4.11 || got.Currency != "EUR" {
		t.Errorf("type %+v", got)
	}
}

// TestMarks: what a note of an order proves.
func TestMarks(t *testing.T) {
	c := &Cloud{processID: "this", timing: Timing{}.withDefaults()}
	other := &Cloud{processID: "other", timing: c.timing}
	for name, tt := range map[string]struct {
		note  func() string
		doubt bool
	}{
		"none":                      {func() string { return "" }, false},
		"about to, this process":    {func() string { return markOf(c, "about") }, false},
		"about to, another process": {func() string { return markOf(other, "about") }, true},
		"sent":                      {func() string { return markOf(c, "sent") }, true},
		"sent by another":           {func() string { return markOf(other, "sent") }, true},
		"garbage":                   {func() string { return "garbage" }, true},
		"of the future":             {func() string { return "sent 99999999999999 this" }, true},
	} {
		if got := Doubtful(map[string]string{noteOrder: tt.note()}); got != (tt.note() != "") {
			t.Errorf("%s: Doubtful says %v", name, got)
		}
		task := taskWith(tt.note())
		if _, got := c.doubtful(task); got != tt.doubt {
			t.Errorf("%s: in doubt: %v, want %v", name, got, tt.doubt)
		}
	}
}

func markOf(c *Cloud, word string) string {
	task := taskWith("")
	c.setMark(task, word)
	return task.Notes[noteOrder]
}

func taskWith(note string) *cloud.Task {
	task := &cloud.Task{}
	if note != "" {
		task.Note(noteOrder, note)
	}
	return task
}
