package fakecloud

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

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
	// ProjectIDs it can see; empty means every project.
	ProjectIDs []string
	// PermissionSets it holds, by their IAM names; empty means AllProductsFullAccess.
	// Known: AllProducts…, Instances…, BlockStorage…, PrivateNetworks… with
	// FullAccess or ReadOnly, and the finer InstancesServerCreate, -Delete,
	// -List, -Read, -Start, -Stop, -Write (the same for Image, Ip, Volume,
	// PrivateNic, SecurityGroup).
	PermissionSets []string
}

var accessKeyFormat = regexp.MustCompile(`^SCW[A-Z0-9]{17}$`)

func keyring(keys []Key) map[string]*Key {
	if len(keys) == 0 {
		keys = []Key{{AccessKey: DefaultAccessKey, SecretKey: DefaultSecretKey, ProjectIDs: []string{DefaultProjectID}}}
	}
	ring := make(map[string]*Key, len(keys))
	for _, k := range keys {
		if !accessKeyFormat.MatchString(k.AccessKey) {
			panic(fmt.Sprintf("fakecloud: access key %q must match %s: the vendor's SDK refuses others", k.AccessKey, accessKeyFormat))
		}
		if uuid.Validate(k.SecretKey) != nil {
			panic(fmt.Sprintf("fakecloud: the secret of access key %s must be a UUID: the vendor's SDK refuses others", k.AccessKey))
		}
		ring[k.SecretKey] = &k
	}
	return ring
}

func (k *Key) sees(project string) bool {
	return len(k.ProjectIDs) == 0 || slices.Contains(k.ProjectIDs, project)
}

// permission names one right: product and object as in the names of
// permission sets, and what the call does.
type permission struct {
	product string // "Instances" or "BlockStorage"
	object  string // "Server", "Volume", …
	verb    string // Create, Read, List, Write, Delete, Start, Stop
}

// anyone marks a route that needs a key but no permission of its own, because
// its handler asks for one.
var anyone = permission{}

func (k *Key) may(p permission) bool {
	if len(k.PermissionSets) == 0 || p == anyone {
		return true
	}
	granted := []string{"AllProductsFullAccess", p.product + "FullAccess", p.product + p.object + p.verb}
	if p.object == "PrivateNic" {
		granted = append(granted, "PrivateNetworksFullAccess")
	}
	if p.verb == "Read" || p.verb == "List" {
		granted = append(granted, "AllProductsReadOnly", p.product+"ReadOnly")
	}
	return slices.ContainsFunc(k.PermissionSets, func(set string) bool { return slices.Contains(granted, set) })
}

// authorize finds the key of a request and checks its right to the route.
func (c *Cloud) authorize(rt *route, token string) (*Key, error) {
	if rt.public {
		return nil, nil
	}
	key := c.keys[token]
	if key == nil {
		return nil, deniedAuthentication()
	}
	if err := key.require(rt.permission); err != nil {
		return nil, err
	}
	return key, nil
}

func (k *Key) require(p permission) error {
	if k.may(p) {
		return nil
	}
	return permissionDenied(strings.ToLower(p.object), strings.ToLower(p.verb))
}
