package fakecloud

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	block "github.com/scaleway/scaleway-sdk-go/api/block/v1"
	"github.com/scaleway/scaleway-sdk-go/api/instance/v1"
	"github.com/scaleway/scaleway-sdk-go/scw"
	"go.uber.org/goleak"
)

const zone = scw.ZoneFrPar1

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// account is one key's view of a served Cloud, through the vendor's SDK.
type account struct {
	*Cloud
	url      string
	client   *scw.Client
	instance *instance.API
	block    *block.API
}

// serve starts a Cloud on loopback and ends it with the test.
func serve(t *testing.T, opts Options) *account {
	t.Helper()
	c := New(opts)
	srv := httptest.NewServer(c.Handler())
	t.Cleanup(func() {
		srv.Close()
		c.Close()
	})
	a := &account{Cloud: c, url: srv.URL}
	return a.as(t, DefaultAccessKey, DefaultSecretKey)
}

// as is the same Cloud seen with another key.
func (a *account) as(t *testing.T, access, secret string) *account {
	t.Helper()
	httpClient := &http.Client{Transport: &http.Transport{}, Timeout: 20 * time.Second}
	client, err := scw.NewClient(
		scw.WithAPIURL(a.url), scw.WithAuth(access, secret), scw.WithHTTPClient(httpClient),
		scw.WithDefaultProjectID(DefaultProjectID), scw.WithDefaultZone(zone))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(httpClient.CloseIdleConnections)
	return &account{Cloud: a.Cloud, url: a.url, client: client, instance: instance.NewAPI(client), block: block.NewAPI(client)}
}

// create makes a DEV1-S on a network volume.
func (a *account) create(t *testing.T, name string, tags ...string) *instance.Server {
	t.Helper()
	return a.createWith(t, &instance.CreateServerRequest{Name: name, Tags: tags})
}

func (a *account) createWith(t *testing.T, req *instance.CreateServerRequest) *instance.Server {
	t.Helper()
	if req.CommercialType == "" {
		req.CommercialType = "PLAY2-NANO"
	}
	if req.Image == nil {
		req.Image = new("ubuntu_noble")
	}
	if req.DynamicIPRequired == nil {
		req.DynamicIPRequired = new(false)
	}
	resp, err := a.instance.CreateServer(req)
	if err != nil {
		t.Fatalf("create %q: %v", req.Name, err)
	}
	return resp.Server
}

func (a *account) act(id string, action instance.ServerAction) error {
	_, err := a.instance.ServerAction(&instance.ServerActionRequest{ServerID: id, Action: action})
	return err
}

func (a *account) mustAct(t *testing.T, id string, action instance.ServerAction) {
	t.Helper()
	if err := a.act(id, action); err != nil {
		t.Fatalf("%s: %v", action, err)
	}
}

func (a *account) get(t *testing.T, id string) *instance.Server {
	t.Helper()
	resp, err := a.instance.GetServer(&instance.GetServerRequest{ServerID: id})
	if err != nil {
		t.Fatalf("get %s: %v", id, err)
	}
	return resp.Server
}

// eventually polls until the condition holds.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !holds(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("still not so after 10 s: %s", what)
		}
	}
}

func wantErr(t *testing.T, err error, words string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), words) {
		t.Errorf("error %v, want one with %q", err, words)
	}
}

func TestWholeLifeOverTheSDK(t *testing.T) {
	a := serve(t, Options{Scale: 0.005})
	s := a.create(t, "Node_One two", "fleet=x", "op=1")
	if s.State != instance.ServerStateStopped || s.Hostname != "node-one-two" || s.Location != nil {
		t.Errorf("after create: state %s, hostname %s, location %v", s.State, s.Hostname, s.Location)
	}
	if err := a.instance.SetServerUserData(&instance.SetServerUserDataRequest{ServerID: s.ID, Key: "cloud-init", Content: strings.NewReader("#cloud-config\n")}); err != nil {
		t.Fatal(err)
	}
	if err := a.instance.ServerActionAndWait(&instance.ServerActionAndWaitRequest{
		ServerID: s.ID, Action: instance.ServerActionPoweron, RetryInterval: new(5 * time.Millisecond),
	}); err != nil {
		t.Fatal(err)
	}
	if got := a.get(t, s.ID); got.StateDetail != "booting kernel" || got.Location == nil {
		t.Errorf("running: detail %q, location %v", got.StateDetail, got.Location)
	}
	if _, err := a.instance.UpdateServer(&instance.UpdateServerRequest{ServerID: s.ID, Tags: &[]string{"fleet=x", "cluster=c"}}); err != nil {
		t.Fatal(err)
	}
	list, err := a.instance.ListServers(&instance.ListServersRequest{Tags: []string{"cluster=c"}}, scw.WithAllPages())
	if err != nil || len(list.Servers) != 1 {
		t.Fatalf("by the new tag: %v, %v", list, err)
	}
	if srn := list.Servers[0].Srn; !strings.Contains(srn, "scw.eu") {
		t.Errorf("srn %q lacks the domain of /metadata", srn)
	}
	a.mustAct(t, s.ID, instance.ServerActionTerminate)
	eventually(t, "the server is gone", func() bool { return len(a.Servers()) == 0 })

	leaks := a.Leaks()
	if len(leaks) != 1 || leaks[0].Type != "sbs_volume" || leaks[0].Name != "Ubuntu 24.04 Noble Numbat_sbs_volume_0" {
		t.Fatalf("leaks %+v, want the root volume", leaks)
	}
	if err := a.block.DeleteVolume(&block.DeleteVolumeRequest{VolumeID: leaks[0].ID}); err != nil {
		t.Fatal(err)
	}
	if left := a.Leaks(); len(left) != 0 {
		t.Errorf("leaks %+v after the sweep", left)
	}
}
