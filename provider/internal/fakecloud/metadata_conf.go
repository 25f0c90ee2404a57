package fakecloud

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// confBody is what /conf tells a guest about itself. cloud-init's Scaleway
// source reads id, hostname, ssh_public_keys, tags and ipv6.
type confBody struct {
	ID             string         `json:"id"`
	Name           string         `json:"name"`
	Hostname       string         `json:"hostname"`
	CommercialType string         `json:"commercial_type"`
	StateDetail    string         `json:"state_detail"`
	Organization   string         `json:"organization"`
	Project        string         `json:"project"`
	Tags           []string       `json:"tags"`
	PublicIP       *addressBody   `json:"public_ip"`
	PublicIPsV4    []addressBody  `json:"public_ips_v4"`
	PublicIPsV6    []addressBody  `json:"public_ips_v6"`
	PrivateIP      *string        `json:"private_ip"`
	IPv6           *confIPv6      `json:"ipv6"`
	PrivateNICs    []nicBody      `json:"private_nics"`
	Location       *location      `json:"location"`
	SSHPublicKeys  []confSSHKey   `json:"ssh_public_keys"`
	Volumes        map[string]any `json:"volumes"`
	Timezone       string         `json:"timezone"`
	Bootscript     *string        `json:"bootscript"`
}

type confIPv6 struct {
	Address string `json:"address"`
	Gateway string `json:"gateway"`
	Netmask string `json:"netmask"`
}

type confSSHKey struct {
	Key         string `json:"key"`
	Fingerprint string `json:"fingerprint"`
}

func (c *Cloud) confView(s *server) confBody {
	whole := c.serverView(s)
	b := confBody{
		ID: s.id, Name: s.name, Hostname: s.hostname, CommercialType: s.product.name, StateDetail: s.detail,
		Organization: DefaultOrganizationID, Project: s.project, Tags: s.tags,
		PublicIPsV4: []addressBody{}, PublicIPsV6: []addressBody{}, PrivateNICs: whole.PrivateNICs,
		Location: s.location, SSHPublicKeys: []confSSHKey{}, Volumes: whole.Volumes, Timezone: "UTC",
	}
	for i, a := range whole.PublicIPs {
		switch {
		case a.Family == "inet6":
			b.PublicIPsV6 = append(b.PublicIPsV6, a)
			if b.IPv6 == nil {
				b.IPv6 = &confIPv6{a.Address, a.Gateway, a.Netmask}
			}
		case b.PublicIP == nil:
			b.PublicIP = &whole.PublicIPs[i]
			fallthrough
		default:
			b.PublicIPsV4 = append(b.PublicIPsV4, a)
		}
	}
	for _, k := range c.inv.sshKeys.all {
		if k.project == s.project && !k.disabled {
			b.SSHPublicKeys = append(b.SSHPublicKeys, confSSHKey{k.publicKey, k.fingerprint})
		}
	}
	return b
}

// shellVariables turns a JSON object into the lines of /conf without a format:
// TAGS=2, TAGS_0='a', LOCATION='CLUSTER_ID ZONE_ID', LOCATION_ZONE_ID='fr-par-1'.
func shellVariables(object []byte) ([]byte, error) {
	var fields map[string]any
	if err := json.Unmarshal(object, &fields); err != nil {
		return nil, err
	}
	var out bytes.Buffer
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		shellVariable(&out, strings.ToUpper(name), fields[name])
	}
	return out.Bytes(), nil
}

func shellVariable(out *bytes.Buffer, name string, value any) {
	switch v := value.(type) {
	case map[string]any:
		keys := slices.Sorted(maps.Keys(v))
		shellVariable(out, name, strings.ToUpper(strings.Join(keys, " ")))
		for _, key := range keys {
			shellVariable(out, name+"_"+strings.ToUpper(key), v[key])
		}
	case []any:
		fmt.Fprintf(out, "%s=%d\n", name, len(v))
		for i, element := range v {
			shellVariable(out, fmt.Sprintf("%s_%d", name, i), element)
		}
	case nil:
		fmt.Fprintf(out, "%s=''\n", name)
	case float64:
		fmt.Fprintf(out, "%s=%.0f\n", name, v)
	default:
		fmt.Fprintf(out, "%s='%s'\n", name, strings.ReplaceAll(fmt.Sprint(v), "'", `'\''`))
	}
}
