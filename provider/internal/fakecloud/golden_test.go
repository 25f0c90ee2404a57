package fakecloud

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// What differs from run to run, and what stands for it in the files.
var varying = []struct {
	pattern *regexp.Regexp
	name    string
}{
	{regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}`), "UUID"},
	{regexp.MustCompile(`20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}\+00:00`), "STAMP"},
	{regexp.MustCompile(`20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,6})?Z`), "ZULU"},
	{regexp.MustCompile(`d?[e0][:2]?:?00:00:[0-9a-f]{2}:[0-9a-f]{2}:[0-9a-f]{2}`), "MAC"},
	{regexp.MustCompile(`SCW[A-Z0-9]{17}`), "ACCESSKEY"},
	{regexp.MustCompile(`(CLUSTER|HYPERVISOR|NODE)_ID='\d+'`), "PLACE"},
	{regexp.MustCompile(`"(cluster|hypervisor|node)_id": ?"\d+"`), "PLACE"},
}

// settle replaces what varies; equal values get equal names.
func settle(body string) string {
	for _, v := range varying {
		seen := map[string]string{}
		body = v.pattern.ReplaceAllStringFunc(body, func(match string) string {
			if match == DefaultProjectID || match == vendorID {
				return match
			}
			if v.name != "UUID" {
				return v.name
			}
			if seen[match] == "" {
				seen[match] = fmt.Sprintf("UUID-%d", len(seen)+1)
			}
			return seen[match]
		})
	}
	return body
}

func golden(t *testing.T, name, body string) {
	t.Helper()
	path := filepath.Join("testdata", name+".json")
	body = settle(body) + "\n"
	if *update {
		if err := os.WriteFile(path, []byte(body), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(strings.Split(string(want), ", "), strings.Split(body, ", ")); diff != "" {
		t.Errorf("%s (-want +got), -update rewrites it:\n%s", path, diff)
	}
}

// The bodies that clients parse, byte for byte: keys, nulls, spacing, times.
func TestGoldenBodies(t *testing.T) {
	c := New(Options{})
	defer c.Close()
	get := func(path string) string { return c.direct("GET", path, "").Body.String() }

	id := c.directServer(t, "DEV1-S", `,"tags":["a","b=ü <&>"],"volumes":{"0":{"size":10000000000,"volume_type":"l_ssd"},"1":{"size":20000000000,"volume_type":"sbs_volume","name":"data"}}`)
	golden(t, "server-stopped", get(serversPath+"/"+id))
	golden(t, "action", c.direct("POST", serversPath+"/"+id+"/action", `{"action":"poweron"}`).Body.String())
	c.direct("POST", serversPath+"/"+id+"/private_nics", `{"private_network_id":"`+c.directNetwork(t)+`"}`)
	golden(t, "server-running", get(serversPath+"/"+id))
	golden(t, "delete-running", c.direct("DELETE", serversPath+"/"+id, "").Body.String())
	golden(t, "server-missing", get(serversPath+"/3f6c2f0e-7c0b-4f65-9f0a-6f0a2b1c9d1e"))
	golden(t, "block-volumes", get("/block/v1/zones/fr-par-1/volumes"))
	golden(t, "local-volumes", get("/instance/v1/zones/fr-par-1/volumes"))
	golden(t, "ip", c.direct("POST", "/instance/v1/zones/fr-par-1/ips", `{"project":"`+DefaultProjectID+`","type":"routed_ipv6"}`).Body.String())
	golden(t, "security-groups", get("/instance/v1/zones/fr-par-1/security_groups"))
	golden(t, "user-data", get(serversPath+"/"+id+"/user_data"))

	var types struct{ Servers map[string]json.RawMessage }
	if err := json.Unmarshal([]byte(get("/instance/v1/zones/fr-par-2/products/servers?per_page=100&page=1")), &types); err != nil {
		t.Fatal(err)
	}
	golden(t, "type-H100-1-80G", string(types.Servers["H100-1-80G"]))
	golden(t, "local-images-missing", get("/marketplace/v2/local-images?image_label=foo-bar-image&zone=fr-par-1"))
}

func TestSpacing(t *testing.T) {
	for in, want := range map[string]string{
		`{"a":1,"b":[2,3]}`:     `{"a": 1, "b": [2, 3]}`,
		`{"a":"x,y:z"}`:         `{"a": "x,y:z"}`,
		`{"a":"quote\",:\\"}`:   `{"a": "quote\",:\\"}`,
		`{"a\"b":null,"c":"d"}`: `{"a\"b": null, "c": "d"}`,
	} {
		if got := space([]byte(in)); !bytes.Equal(got, []byte(want)) {
			t.Errorf("%s became %s, want %s", in, got, want)
		}
	}
}
