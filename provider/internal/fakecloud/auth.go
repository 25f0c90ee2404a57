package fakecloud

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
)

// The built-in key and its project. They have the formats the vendor's SDK
// insists on and are no secret: they open nothing but this fake. As in a real
// account, the default project has the organization's id.
const (
	DefaultAccessKey      = "SCWFAKE0FAKE0FAKE0FA"
	DefaultSecretKey      = "11111111-1111-4111-8111-111111111111"
	DefaultOrganizationID = "22222222-2222-4222-8222-222222222222"
	DefaultProjectID      = DefaultOrganizationID
)

// Key is an API key and what it may do.
type Key struct {
	AccessKey string // SCW and 17 capitals or digits
	SecretKey string // a UUID, sent as X-Auth-Token
	// ProjectIDs it can see; empty means every project. A key that may do
	// everything also sees the projects made through the API.
	ProjectIDs []string
	// PermissionSets it holds, by their IAM names; empty means everything, IAM too.
	// Known: AllProducts…, Instances…, BlockStorage…, PrivateNetworks…, VPC…,
	// SSHKeys… with FullAccess or ReadOnly, IAMManager, IAMReadOnly,
	// ProjectManager, ProjectReadOnly, and the finer InstancesServerCreate,
	// -Delete, -List, -Read, -Start, -Stop, -Write (the same for Image, Ip,
	// Volume, PrivateNic, SecurityGroup, PlacementGroup).
	PermissionSets []string
}

var accessKeyFormat = regexp.MustCompile(`^SCW[A-Z0-9]{17}$`)

// check says why no key can look like this.
func (k Key) check() error {
	if !accessKeyFormat.MatchString(k.AccessKey) {
		return fmt.Errorf("access key %q must match %s: the vendor's SDK refuses others", k.AccessKey, accessKeyFormat)
	}
	if uuid.Validate(k.SecretKey) != nil {
		return fmt.Errorf("the secret of access key %s must be a UUID: the vendor's SDK refuses others", k.AccessKey)
	}
	return nil
}

// permission names one right: product and object as in the names of
// permission sets, and what the call does.
type permission struct {
	product string // "Instances", "BlockStorage", "IAM", …
	object  string // "Server", "Volume", …
	verb    string // Create, Read, List, Write, Delete, Start, Stop
}

// anyone marks a route that needs a key but no permission of its own, because
// its handler asks for one.
var anyone = permission{}

// sets are the permission sets that hold the right. Those of the organization
// are apart: AllProductsFullAccess covers products, not who may use them.
func (p permission) sets() []string {
	reads := p.verb == "Read" || p.verb == "List"
	switch p.product {
	case "IAM":
		if reads {
			return []string{"IAMManager", "IAMReadOnly"}
		}
		return []string{"IAMManager"}
	case "Project":
		if reads {
			return []string{"ProjectManager", "ProjectReadOnly", "OrganizationReadOnly"}
		}
		return []string{"ProjectManager"}
	}
	sets := []string{"AllProductsFullAccess", p.product + "FullAccess", p.product + p.object + p.verb}
	network := p.object == "PrivateNic" || p.object == "PrivateNetwork"
	if network {
		sets = append(sets, "PrivateNetworksFullAccess")
	}
	if reads {
		sets = append(sets, "AllProductsReadOnly", p.product+"ReadOnly")
	}
	if network && reads {
		sets = append(sets, "PrivateNetworksReadOnly")
	}
	return sets
}

// grant is a rule: permission sets, and the projects in which they hold.
type grant struct {
	sets     []string // nil: every right, those of the organization too
	projects []string // nil: every project
}

func (g grant) allows(p permission) bool {
	return g.sets == nil || p == anyone ||
		slices.ContainsFunc(p.sets(), func(set string) bool { return slices.Contains(g.sets, set) })
}

// caller is who makes a request: every right of its key, and those that allow
// what it asks for. A right in one project gives no sight of another.
type caller struct {
	key    *apiKey
	rights []grant
	scope  []grant
}

func (k *caller) sees(project string) bool {
	return slices.ContainsFunc(k.scope, func(g grant) bool {
		return g.projects == nil || slices.Contains(g.projects, project)
	})
}

// require narrows the caller's sight to where it has the right.
func (k *caller) require(p permission) error {
	k.scope = nil
	for _, g := range k.rights {
		if g.allows(p) {
			k.scope = append(k.scope, g)
		}
	}
	if k.scope == nil {
		return p.denied()
	}
	return nil
}

func (p permission) denied() error {
	if p == anyone {
		p = permission{object: "Server", verb: "Write"}
	}
	return permissionDenied(snake(p.object), strings.ToLower(p.verb))
}

// snake is how bodies spell the objects of permission sets: ApiKey is api_key.
func snake(name string) string {
	var b strings.Builder
	for i, r := range name {
		if i > 0 && r >= 'A' && r <= 'Z' {
			b.WriteByte('_')
		}
		b.WriteRune(r)
	}
	return strings.ToLower(b.String())
}

// authorize finds the key of a request and checks its right to the route.
func (c *Cloud) authorize(rt *route, token string) (*caller, error) {
	if rt.public {
		return nil, nil
	}
	key := c.inv.bySecret[token]
	if key == nil {
		return nil, deniedAuthentication("not_found")
	}
	if !key.expires.IsZero() && !time.Now().Before(key.expires) {
		return nil, deniedAuthentication("expired")
	}
	if key.flaps() {
		return nil, rt.permission.denied()
	}
	who := &caller{key: key, rights: c.rights(key)}
	if err := who.require(rt.permission); err != nil {
		return nil, err
	}
	return who, nil
}

// flapping is how the calls of a fresh key fare, over and over: rights that
// have worked once may be refused again.
var flapping = [...]bool{true, false, true, true, false}

// flaps says whether the key's rights have not reached this call yet.
func (k *apiKey) flaps() bool {
	if !time.Now().Before(k.settled) {
		return false
	}
	denied := flapping[k.asked%len(flapping)]
	k.asked++
	return denied
}

// SetKeyFlap makes API keys, for that long after they or the policies of their
// application were made or changed through the API, fail now and then with 403.
// Up to two minutes are reported of the real API. It is not scaled, and 0, the
// default, ends it for keys that are made from now on.
func (c *Cloud) SetKeyFlap(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.keyFlap = d
}
