package fakecloud

import (
	"strings"
	"testing"
)

func TestRestore(t *testing.T) {
	hosts := &recorder{}
	a := serve(t, Options{Hosts: hosts})
	e := Existing{
		ID: "3f6c2f0e-7c0b-4f65-9f0a-6f0a2b1c9d1e", Zone: "fr-par-1", Project: DefaultProjectID, Name: "old",
		CommercialType: "PLAY2-NANO", Image: "ubuntu_noble", Tags: []string{"a"}, UserData: []byte("as before"),
	}
	if err := a.Restore(e); err != nil {
		t.Fatal(err)
	}
	s := a.get(t, e.ID)
	if s.Name != "old" || string(s.State) != StateRunning || s.Location == nil || len(s.Volumes) != 1 {
		t.Errorf("restored %+v", s)
	}
	hosts.want(t, "boot 1 as before")
	wantErr(t, a.Restore(e), "it exists")
	for what, broken := range map[string]func(*Existing){
		"UUID":            func(e *Existing) { e.ID = "7" },
		"commercial_type": func(e *Existing) { e.CommercialType = "DEV9-S" },
		"instance_image":  func(e *Existing) { e.Image = "plan_9" },
	} {
		bad := e
		bad.ID = strings.Replace(e.ID, "3f", "4f", 1)
		broken(&bad)
		if err := a.Restore(bad); err == nil {
			t.Errorf("restored with a bad %s", what)
		}
	}
	if n := len(a.Servers()); n != 1 {
		t.Errorf("%d servers, want 1", n)
	}
}
