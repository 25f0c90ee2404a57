package fakecloud

import (
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"
)

// asGuest calls the metadata service from an address and port.
func (c *Cloud) asGuest(from, method, path, body string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	r.RemoteAddr = from
	return answerOf(c.MetadataHandler(), r)
}

func TestMetadataRules(t *testing.T) {
	c := New(Options{})
	defer c.Close()
	id := c.directServer(t, "PLAY2-NANO", "")
	userData := serversPath + "/" + id + "/user_data/cloud-init"
	c.mustDirect(t, http.StatusNoContent, "PATCH", userData, "#cloud-config\n")
	c.directAct(t, id, "poweron")
	source := c.Servers()[0].MetadataSource

	for _, tt := range []struct {
		name               string
		from               string
		method, path, body string
		status             int
		want               string
	}{
		{"conf from any port", source + ":40000", "GET", "/conf?format=json", "", 200, id},
		{"user data from a port of root's", source + ":1", "GET", "/user_data/cloud-init", "", 200, "#cloud-config\n"},
		{"user data from the highest of them", source + ":1023", "GET", "/user_data/cloud-init", "", 200, "#cloud-config\n"},
		{"user data from a port of anybody's", source + ":1024", "GET", "/user_data/cloud-init", "", 403, ""},
		{"its list too", source + ":1024", "GET", "/user_data", "", 403, ""},
		{"list", source + ":2", "GET", "/user_data", "", 200, "USER_DATA=1\nUSER_DATA_0='cloud-init'\n"},
		{"list as JSON", source + ":2", "GET", "/user_data?format=json", "", 200, `{"user_data":["cloud-init"]}`},
		{"write from a port of anybody's", source + ":1024", "PATCH", "/user_data/x", "y", 403, ""},
		{"write", source + ":2", "PATCH", "/user_data/ssh-host-fingerprints", "256 MD5", 204, ""},
		{"read it back", source + ":2", "GET", "/user_data/ssh-host-fingerprints", "", 200, "256 MD5"},
		{"delete it", source + ":2", "DELETE", "/user_data/ssh-host-fingerprints", "", 204, ""},
		{"delete it again", source + ":2", "DELETE", "/user_data/ssh-host-fingerprints", "", 404, ""},
		{"not set", source + ":2", "GET", "/user_data/none", "", 404, ""},
		{"vendor data", source + ":2", "GET", "/vendor_data/cloud-init", "", 404, ""},
		{"a stranger", "127.0.0.1:2", "GET", "/conf", "", 421, "metadata_source"},
		{"no address at all", "@", "GET", "/conf", "", 421, "no address"},
		{"no such path", source + ":2", "GET", "/nothing", "", 404, "not found"},
	} {
		w := c.asGuest(tt.from, tt.method, tt.path, tt.body)
		if w.Code != tt.status || !strings.Contains(w.Body.String(), tt.want) || tt.want == "" && w.Body.Len() > 0 {
			t.Errorf("%s: %d %q, want %d %q", tt.name, w.Code, w.Body, tt.status, tt.want)
		}
	}

	c.SetMetadataBusy(2)
	var statuses []int
	for range 3 {
		statuses = append(statuses, c.asGuest(source+":2", "GET", "/conf", "").Code)
	}
	if statuses[0] != 429 || statuses[1] != 429 || statuses[2] != 200 {
		t.Errorf("busy for two calls: %v", statuses)
	}
	calls := c.Calls()
	if last := calls[len(calls)-1]; last.Route != "GET /conf" || last.ID != id || last.Status != 200 {
		t.Errorf("recorded %+v", last)
	}
}

// What cloud-init's Scaleway source reads, for a server with an IPv6 address.
func TestMetadataForCloudInit(t *testing.T) {
	c := New(Options{})
	defer c.Close()
	id := c.directServer(t, "PLAY2-NANO", "")
	key, _ := c.mustDirect(t, http.StatusOK, "POST", iam+"/ssh-keys", `{"name":"me","public_key":"`+sampleSSHKey+`","project_id":"`+DefaultProjectID+`"}`)
	c.mustDirect(t, http.StatusCreated, "POST", "/instance/v1/zones/fr-par-1/ips", `{"type":"routed_ipv6","project":"`+DefaultProjectID+`","server":"`+id+`"}`)
	c.directAct(t, id, "poweron")
	conf := func() (in struct {
		ID            string
		Hostname      string
		SSHPublicKeys []struct{ Key string } `json:"ssh_public_keys"`
		IPv6          *struct{ Address, Gateway, Netmask string }
		PublicIP      *struct{ Address string } `json:"public_ip"`
	}) {
		if err := json.Unmarshal(c.asGuest("127.64.0.1:9", "GET", "/conf?format=json", "").Body.Bytes(), &in); err != nil {
			t.Fatal(err)
		}
		return in
	}
	got := conf()
	if got.ID != id || got.Hostname != "n" || len(got.SSHPublicKeys) != 1 || got.SSHPublicKeys[0].Key != sampleSSHKey ||
		got.IPv6 == nil || got.IPv6.Address != "2001:db8:0:1::1" || got.IPv6.Netmask != "64" || got.PublicIP == nil {
		t.Errorf("conf %+v", got)
	}
	c.mustDirect(t, http.StatusOK, "PATCH", iam+"/ssh-keys/"+key, `{"disabled":true}`)
	if got := conf(); len(got.SSHPublicKeys) != 0 {
		t.Errorf("a disabled key is still given: %+v", got.SSHPublicKeys)
	}
}

// A guest that is off, or has no public address, has no way to the service.
func TestMetadataUnreachable(t *testing.T) {
	c := New(Options{})
	defer c.Close()
	id := c.directServer(t, "PLAY2-NANO", "")
	aborted := func() (yes bool) {
		defer func() { yes = recover() != nil }()
		c.asGuest("127.64.0.1:9", "GET", "/conf", "")
		return false
	}
	if !aborted() {
		t.Error("a server that never ran got an answer")
	}
	c.directAct(t, id, "poweron")
	if aborted() {
		t.Error("a running server got none")
	}
	c.mustDirect(t, http.StatusOK, "PATCH", serversPath+"/"+id, `{"dynamic_ip_required":false}`)
	if !aborted() {
		t.Error("without a public address it got an answer")
	}
}

func TestMapGuest(t *testing.T) {
	c := New(Options{})
	defer c.Close()
	first, second := c.directServer(t, "PLAY2-NANO", ""), c.directServer(t, "PLAY2-NANO", "")
	c.directAct(t, first, "poweron")
	c.directAct(t, second, "poweron")
	from := func() string {
		w := c.asGuest("[::ffff:10.0.0.7]:40000", "GET", "/conf?format=json", "")
		var in struct{ ID string }
		if w.Code == http.StatusOK {
			if err := json.Unmarshal(w.Body.Bytes(), &in); err != nil {
				t.Fatal(err)
			}
		}
		return in.ID
	}
	for _, server := range []string{first, second, ""} {
		control[none](t, c, http.StatusNoContent, "POST", "/guests", `{"address":"10.0.0.7","server":"`+server+`"}`)
		if got := from(); got != server {
			t.Errorf("the guest is %q, want %q", got, server)
		}
	}
	control[none](t, c, http.StatusNoContent, "POST", "/guests", `{"address":"10.0.0.7","server":"`+first+`"}`)
	c.directAct(t, first, "terminate")
	if got := from(); got != "" {
		t.Errorf("the guest of a server that is gone is %q", got)
	}
	for i := range guestsMapped {
		a := netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)})
		if err := c.MapGuest(a.String(), second); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.MapGuest("10.9.9.9", second); err == nil {
		t.Errorf("more than %d addresses are mapped", guestsMapped)
	}
}

// Over a real connection: a process takes the address of its server.
func TestMetadataOverLoopback(t *testing.T) {
	c := New(Options{})
	defer c.Close()
	id := c.directServer(t, "PLAY2-NANO", "")
	c.directAct(t, id, "poweron")
	srv := httptest.NewServer(c.MetadataHandler())
	defer srv.Close()
	dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(c.Servers()[0].MetadataSource)}}
	httpClient := &http.Client{Transport: &http.Transport{DialContext: dialer.DialContext}, Timeout: 10 * time.Second}
	defer httpClient.CloseIdleConnections()
	resp, err := httpClient.Get(srv.URL + "/conf?format=json")
	if err != nil {
		t.Skipf("this machine has no address %s: %v", dialer.LocalAddr, err)
	}
	defer resp.Body.Close()
	var in struct{ ID string }
	if err := json.NewDecoder(resp.Body).Decode(&in); err != nil || in.ID != id {
		t.Errorf("the guest is %q, %v, want %s", in.ID, err, id)
	}
}
