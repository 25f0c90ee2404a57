package scaleway

import (
	"errors"
	"fmt"

	"bigfleet-providers/provider/internal/cloud"
)

// fresh ends what is said of a refusal: permissions spread slowly.
const fresh = " (a new key or policy may take two minutes to hold)"

// Product is one of Scaleway's, in the words of those who examine a key for it.
type Product struct {
	Name       string // such as "Elastic Metal"
	Servers    string // what a list of it holds
	Permission string // the set that allows all that a provider does with it
}

// ExplainAccess adds to the error of a list of servers what to do about it. The
// result matches what the error matches; nil stays nil.
func (p Product) ExplainAccess(project string, err error) error {
	switch {
	case Unauthenticated(err):
		return fmt.Errorf("%w; check SCW_ACCESS_KEY and SCW_SECRET_KEY: both of one API key that is neither expired nor deleted%s", err, fresh)
	case errors.Is(err, cloud.ErrDenied):
		return fmt.Errorf("%w; the key is known, but may not list %s of project %s: grant its application %s there%s", err, p.Servers, project, p.Permission, fresh)
	}
	return err
}

// Findings collects what a probe finds.
type Findings []cloud.Finding

// Add adds one.
func (f *Findings) Add(v cloud.Verdict, what, format string, args ...any) {
	*f = append(*f, cloud.Finding{Verdict: v, What: what, Text: fmt.Sprintf(format, args...)})
}

// AddAccess adds what a list of servers in the zone says of the key and of the
// product; err is of ExplainAccess, nil for a list that came.
func (f *Findings) AddAccess(p Product, zone fmt.Stringer, err error) {
	const key = "credentials"
	switch {
	case err == nil:
		f.Add(cloud.Fine, key, "the API knows the key")
		f.Add(cloud.Fine, p.Name, "the key may list them in zone %s", zone)
	case Unauthenticated(err):
		f.Add(cloud.Fault, key, "%s", err)
	case errors.Is(err, cloud.ErrDenied):
		f.Add(cloud.Fine, key, "the API knows the key")
		f.Add(cloud.Fault, p.Name, "%s", err)
	case errors.Is(err, cloud.ErrNotFound):
		f.Add(cloud.Fault, p.Name, "%s; is zone %s one that has %s? check --zone and --api-url", err, zone, p.Name)
	default:
		f.Add(cloud.Fault, p.Name, "%s; check --api-url, proxy and firewall, then try again", err)
	}
}
