package fakecloud

import (
	"net/http"
)

// calls implements tenant: an installed server that is on.
func (s *metalServer) calls() bool {
	return s.status == "ready" && s.install != nil && s.install.status == "completed"
}

// answerMetal answers a dedicated server's guest. That there is a metadata
// service for it, of the form that Instances have, follows from cloud-init's one
// data source for both; what it says is inferred. Nothing of it can be changed
// from the guest.
func (c *Cloud) answerMetal(s *metalServer, route string, r *http.Request) (value any, reply *Reply) {
	switch {
	case route == "GET /conf":
		return c.metalConf(s), nil
	case route == "GET /user_data":
		keys := []string{}
		if s.userData != nil {
			keys = append(keys, "cloud-init")
		}
		return struct {
			UserData []string `json:"user_data"`
		}{keys}, nil
	case route == "GET /user_data/{key}" && r.PathValue("key") == "cloud-init" && s.userData != nil:
		return nil, plainReply(http.StatusOK, string(*s.userData))
	default:
		return nil, plainReply(http.StatusNotFound, "")
	}
}

func (c *Cloud) metalConf(s *metalServer) confBody {
	b := confBody{
		ID: s.id, Name: s.name, Hostname: s.install.hostname, CommercialType: s.offer.name,
		Organization: DefaultOrganizationID, Project: s.project, Tags: s.tags,
		PublicIPsV4: []addressBody{}, PublicIPsV6: []addressBody{}, PrivateNICs: []nicBody{},
		SSHPublicKeys: []confSSHKey{}, Volumes: map[string]any{}, Timezone: "UTC",
	}
	for _, id := range s.install.sshKeys {
		if k, found := c.inv.sshKeys.byID(id); found {
			b.SSHPublicKeys = append(b.SSHPublicKeys, confSSHKey{k.publicKey, k.fingerprint})
		}
	}
	if s.ip != nil {
		b.PublicIPsV4 = append(b.PublicIPsV4, addressBody{ID: s.ip.id, Address: s.ip.ip.String(), Family: "inet", Tags: []string{}, State: s.ip.state})
		b.PublicIP = &b.PublicIPsV4[0]
	}
	return b
}
