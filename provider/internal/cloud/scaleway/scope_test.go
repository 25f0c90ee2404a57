package scaleway_test

import (
	"errors"
	"strings"
	"testing"

	"bigfleet-providers/provider/internal/cloud"
	"bigfleet-providers/provider/internal/cloud/scaleway"
)

func newScope(t *testing.T) scaleway.Scope {
	t.Helper()
	s, err := scaleway.NewScope("fr-par-1", projectID, "p")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestScopeReportsEveryFault(t *testing.T) {
	_, err := scaleway.NewScope("paris", "mine", "")
	if err == nil {
		t.Fatal("a scope of nothing was accepted")
	}
	for _, want := range []string{`zone "paris"`, `project id "mine"`, "provider: missing"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error lacks %q: %v", want, err)
		}
	}
	if _, err := scaleway.NewScope("it-mil-7", projectID, "p"); err != nil {
		t.Errorf("a zone that was opened after the SDK: %v", err)
	}
}

// An id of another zone is no id here.
func TestRefs(t *testing.T) {
	s := newScope(t)
	if id, err := s.ID(s.Ref(serverID), "server"); id != serverID || err != nil {
		t.Errorf("the id of its own ref is %q, %v", id, err)
	}
	for _, ref := range []string{"", serverID, "fr-par-2/" + serverID, "fr-par-1/x", "fr-par-1/" + serverID + "/x"} {
		if id, err := s.ID(ref, "volume"); id != "" || !errors.Is(err, cloud.ErrInvalid) || !strings.Contains(err.Error(), "volume") {
			t.Errorf("%q names %q, %v", ref, id, err)
		}
	}
}

func TestOwns(t *testing.T) {
	s := newScope(t)
	for name, tt := range map[string]struct {
		project string
		tags    []string
		want    bool
	}{
		"ours":               {projectID, []string{"bigfleet=p", "theirs"}, true},
		"another project":    {serverID, []string{"bigfleet=p"}, false},
		"another provider":   {projectID, []string{"bigfleet=q"}, false},
		"a longer name":      {projectID, []string{"bigfleet=pp"}, false},
		"untagged":           {projectID, nil, false},
		"a machine's tag":    {projectID, []string{"bigfleet-machine=p"}, false},
		"two owners":         {projectID, []string{"bigfleet=q", "bigfleet=p"}, false},
		"a tag without sign": {projectID, []string{"bigfleet"}, false},
	} {
		if got := s.Owns(tt.project, tt.tags); got != tt.want {
			t.Errorf("%s: Owns = %t", name, got)
		}
		if err := s.MustOwn(serverID, "web", tt.project, tt.tags); (err == nil) != tt.want || err != nil && !errors.Is(err, cloud.ErrInvalid) {
			t.Errorf("%s: MustOwn = %v", name, err)
		}
	}
}

func TestCheckOrder(t *testing.T) {
	s := newScope(t)
	for _, tt := range []struct {
		spec cloud.Spec
		ok   bool
	}{
		{cloud.Spec{OperationID: "op"}, true},
		{cloud.Spec{OperationID: "op", Zone: "fr-par-1"}, true},
		{cloud.Spec{OperationID: "op", Zone: "fr-par-2"}, false},
		{cloud.Spec{Zone: "fr-par-1"}, false},
	} {
		if err := s.CheckOrder(tt.spec); (err == nil) != tt.ok || err != nil && !errors.Is(err, cloud.ErrInvalid) {
			t.Errorf("%+v: %v", tt.spec, err)
		}
	}
}
