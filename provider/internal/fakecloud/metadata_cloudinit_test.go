package fakecloud

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// cloud-init's own data source reads the service, from ports below 1024. It
// calls from 127.0.0.1 and needs root, so it runs only where both it and root are.
func TestCloudInitReadsTheMetadata(t *testing.T) {
	const python = "/usr/bin/python3" // the one that distributions install cloud-init for
	if os.Geteuid() != 0 {
		t.Skip("needs root for source ports below 1024")
	}
	if err := exec.CommandContext(t.Context(), python, "-c", "import cloudinit.sources.DataSourceScaleway").Run(); err != nil {
		t.Skipf("cloud-init is not installed: %v", err)
	}
	c := New(Options{})
	defer c.Close()
	id := c.directServer(t, "PLAY2-NANO", "")
	c.mustDirect(t, http.StatusNoContent, "PATCH", serversPath+"/"+id+"/user_data/cloud-init", "#cloud-config\nruncmd: [true]\n")
	c.mustDirect(t, http.StatusOK, "POST", iam+"/ssh-keys", `{"name":"me","public_key":"`+sampleSSHKey+`","project_id":"`+DefaultProjectID+`"}`)
	c.mustDirect(t, http.StatusCreated, "POST", "/instance/v1/zones/fr-par-1/ips", `{"type":"routed_ipv6","project":"`+DefaultProjectID+`","server":"`+id+`"}`)
	c.directAct(t, id, "poweron")
	if err := c.MapGuest("127.0.0.1", id); err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(c.MetadataHandler())
	defer srv.Close()

	cmd := exec.CommandContext(t.Context(), python, "testdata/guest.py", srv.URL)
	cmd.Stderr = t.Output()
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	type guest struct {
		ID         string   `json:"id"`
		Hostname   string   `json:"hostname"`
		Keys       []string `json:"keys"`
		UserData   string   `json:"user_data"`
		VendorData *string  `json:"vendor_data"`
		Subnets    []string `json:"subnets"`
	}
	var got guest
	if err := json.Unmarshal(out, &got); err != nil {
		t.Fatalf("%v in %s", err, out)
	}
	want := guest{
		ID: id, Hostname: "n", Keys: []string{sampleSSHKey}, UserData: "#cloud-config\nruncmd: [true]\n",
		Subnets: []string{"dhcp4", "static"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("what cloud-init read (-want +got):\n%s", diff)
	}
}
