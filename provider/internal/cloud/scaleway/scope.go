package scaleway

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"

	"github.com/scaleway/scaleway-sdk-go/scw"
	"github.com/scaleway/scaleway-sdk-go/validation"

	"bigfleet-providers/provider/internal/cloud"
)

// Scope is what an adapter may touch: one provider's things in one zone and
// project. Make one with NewScope.
type Scope struct {
	Zone     scw.Zone
	Project  string // its id
	Provider string // the provider's own name: the owner tag

	epoch *atomic.Pointer[cloud.OwnerEpoch] // see cloud.Cloud.SetEpoch
}

// NewScope checks what an operator said and reports all faults at once. The zone
// need not be one that the SDK knows: Scaleway opens zones faster.
func NewScope(zone, project, provider string) (Scope, error) {
	var faults []error
	parsed, err := parseZone(zone)
	faults = append(faults, err)
	if !validation.IsUUID(project) {
		faults = append(faults, fmt.Errorf("project id %q: not a UUID; set --project-id or SCW_DEFAULT_PROJECT_ID", project))
	}
	if provider == "" {
		faults = append(faults, errors.New("provider: missing; set --provider"))
	}
	return Scope{Zone: parsed, Project: project, Provider: provider, epoch: new(atomic.Pointer[cloud.OwnerEpoch])}, errors.Join(faults...)
}

// SetEpoch sets this process' epoch.
func (s Scope) SetEpoch(e cloud.OwnerEpoch) { s.epoch.Store(&e) }

// Epoch is this process' epoch, zero before SetEpoch.
func (s Scope) Epoch() cloud.OwnerEpoch {
	if e := s.epoch.Load(); e != nil {
		return *e
	}
	return cloud.OwnerEpoch{}
}

// Own returns the tags as this process writes them on a server.
func (s Scope) Own(t Tags) Tags {
	t.Owner = s.Provider
	if own := s.Epoch(); own != (cloud.OwnerEpoch{}) {
		t.Epoch = own.String()
	}
	return t
}

func parseZone(s string) (scw.Zone, error) {
	zone, err := scw.ParseZone(s)
	if err != nil {
		return "", fmt.Errorf("zone %q: not a Scaleway zone such as fr-par-1; set --zone", s)
	}
	return zone, nil
}

// Ref is how the rest of the program names a thing. Ids are zonal: in another
// zone the same id is a 404, which must not pass for "gone".
func (s Scope) Ref(id string) string { return s.Zone.String() + "/" + id }

// ID takes the id out of a ref. The error matches cloud.ErrInvalid, and says what
// the ref should have named.
func (s Scope) ID(ref, what string) (string, error) {
	zone, id, ok := strings.Cut(ref, "/")
	if !ok || zone != s.Zone.String() || !validation.IsUUID(id) {
		return "", fmt.Errorf("%w: %q does not name a %s in zone %s", cloud.ErrInvalid, ref, what, s.Zone)
	}
	return id, nil
}

// Owns says whether what is in the project and has the tags is the provider's.
func (s Scope) Owns(project string, tags []string) bool {
	return project == s.Project && ParseTags(tags).Owner == s.Provider
}

// MustOwn is the last barrier before anything is done to a server. The error
// matches cloud.ErrInvalid, or is a *cloud.NotOwnerError.
func (s Scope) MustOwn(serverID, name, project string, tags []string) error {
	if s.Owns(project, tags) {
		theirs, own := cloud.ParseOwnerEpoch(ParseTags(tags).Epoch), s.Epoch()
		if own != (cloud.OwnerEpoch{}) && theirs.After(own) {
			return &cloud.NotOwnerError{Ref: s.Ref(serverID), Epoch: theirs}
		}
		return nil
	}
	return fmt.Errorf("%w: server %s (%q) lacks the tag %q of this provider or is in another project; it is left alone",
		cloud.ErrInvalid, serverID, name, OwnerTag(s.Provider))
}

// CheckOrder refuses an order whose server could not be found again, or that is
// another provider's. The error matches cloud.ErrInvalid.
func (s Scope) CheckOrder(spec cloud.Spec) error {
	switch {
	case spec.OperationID == "":
		return fmt.Errorf("%w: an order needs an operation id", cloud.ErrInvalid)
	case spec.Zone != "" && spec.Zone != s.Zone.String():
		return fmt.Errorf("%w: zone %q: this provider serves %s only", cloud.ErrInvalid, spec.Zone, s.Zone)
	}
	return nil
}
