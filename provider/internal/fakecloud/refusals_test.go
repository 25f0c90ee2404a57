package fakecloud

import (
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/scaleway/scaleway-sdk-go/api/instance/v1"
	"github.com/scaleway/scaleway-sdk-go/scw"
)

const (
	shouldRun  = `400 server should be running`
	shouldStop = `400 server should be stopped`
	shouldOff  = `400 instance should be powered off`
	protected  = `400 server is protected`
	isLocked   = `423 resource is locked`
)

// Every call that depends on the state, in every state.
func TestWrongStateIsRefused(t *testing.T) {
	calls := []string{"poweron", "poweroff", "terminate", "reboot", "stop_in_place", "DELETE", "retype"}
	const accepted = "2xx"
	tests := []struct {
		state     string
		protected bool
		allowed   []string // allowed_actions
		want      []string // by calls
	}{
		{StateStopped, false, []string{"poweron", "backup"},
			[]string{accepted, shouldRun, shouldRun, shouldRun, shouldRun, accepted, accepted}},
		{StateStopped, true, []string{"poweron", "backup"},
			[]string{accepted, shouldRun, shouldRun, shouldRun, shouldRun, accepted, accepted}},
		{StateRunning, false, []string{"poweroff", "terminate", "reboot", "stop_in_place", "backup"},
			[]string{shouldStop, accepted, accepted, accepted, accepted, shouldOff, shouldOff}},
		{StateRunning, true, []string{"backup"},
			[]string{shouldStop, protected, protected, protected, protected, shouldOff, shouldOff}},
		{StateStoppedInPlace, false, []string{"poweron", "poweroff", "terminate", "reboot", "backup"},
			[]string{accepted, accepted, accepted, accepted, shouldRun, shouldOff, shouldOff}},
		{StateStarting, false, []string{"stop_in_place", "backup"},
			[]string{shouldStop, shouldRun, shouldRun, shouldRun, accepted, shouldOff, shouldOff}},
		{StateStopping, false, []string{"stop_in_place", "backup"},
			[]string{shouldStop, shouldRun, shouldRun, shouldRun, shouldRun, shouldOff, shouldOff}},
		{StateLocked, false, []string{},
			[]string{isLocked, isLocked, isLocked, isLocked, isLocked, isLocked, shouldOff}},
	}
	c := New(Options{Scale: 1})
	defer c.Close()
	for _, tt := range tests {
		name := tt.state
		if tt.protected {
			name += " protected"
		}
		for i, call := range calls {
			t.Run(name+"/"+call, func(t *testing.T) {
				id := c.directServer(t, "PLAY2-NANO", "")
				if tt.protected {
					c.direct("PATCH", serversPath+"/"+id, `{"protected":true}`)
				}
				if err := c.ForceState(id, tt.state, ""); err != nil {
					t.Fatal(err)
				}
				body := c.direct("GET", serversPath+"/"+id, "").Body.String()
				if want := `"allowed_actions": [` + quoted(tt.allowed) + `]`; !strings.Contains(body, want) {
					t.Errorf("body lacks %s: %s", want, body)
				}
				method, path, send := "POST", serversPath+"/"+id+"/action", `{"action":"`+call+`"}`
				switch call {
				case "DELETE":
					method, path, send = "DELETE", serversPath+"/"+id, ""
				case "retype":
					method, path, send = "PATCH", serversPath+"/"+id, `{"commercial_type":"PLAY2-MICRO"}`
				}
				w := c.direct(method, path, send)
				got := accepted
				if w.Code >= 300 {
					_, words, _ := strings.Cut(tt.want[i], " ")
					got = http.StatusText(w.Code) + w.Body.String()
					if strings.Contains(w.Body.String(), words) && strings.HasPrefix(tt.want[i], strconv.Itoa(w.Code)) {
						got = tt.want[i]
					}
				}
				if got != tt.want[i] {
					t.Errorf("%s: got %s, want %s", call, got, tt.want[i])
				}
			})
		}
	}
}

func quoted(words []string) string {
	if len(words) == 0 {
		return ""
	}
	return `"` + strings.Join(words, `", "`) + `"`
}

// The SDK turns the bodies into its types; some carry no status any more.
func TestRefusalsThroughTheSDK(t *testing.T) {
	a := serve(t, Options{Scale: 1})
	s := a.create(t, "n")

	var unmet *scw.PreconditionFailedError
	if err := a.act(s.ID, instance.ServerActionTerminate); !errors.As(err, &unmet) || unmet.HelpMessage != "server should be running" {
		t.Errorf("terminate of a stopped server: %#v", err)
	}
	a.mustAct(t, s.ID, instance.ServerActionPoweron)
	err := a.instance.DeleteServer(&instance.DeleteServerRequest{ServerID: s.ID})
	if !errors.As(err, &unmet) || unmet.Precondition != "resource_still_in_use" {
		t.Errorf("delete of a starting server: %#v", err)
	}
	wantErr(t, err, "precondition failed: resource is still in use, instance should be powered off")

	if err := a.ForceState(s.ID, StateLocked, ""); err != nil {
		t.Fatal(err)
	}
	var isLocked *scw.ResourceLockedError
	if err := a.act(s.ID, instance.ServerActionPoweroff); !errors.As(err, &isLocked) || isLocked.ResourceID != s.ID {
		t.Errorf("poweroff of a locked server: %#v", err)
	}

	const unknown = "3f6c2f0e-7c0b-4f65-9f0a-6f0a2b1c9d1e"
	var missing *scw.ResourceNotFoundError
	for _, action := range []instance.ServerAction{instance.ServerActionPoweron, instance.ServerActionTerminate} {
		if err := a.act(unknown, action); !errors.As(err, &missing) || missing.Resource != "instance_server" || missing.ResourceID != unknown {
			t.Errorf("%s of an unknown server: %#v", action, err)
		}
	}
	wantErr(t, a.act(s.ID, "dance"), "invalid argument")
}

func TestLegacyRefusals(t *testing.T) {
	c := New(Options{LegacyRefusals: true})
	defer c.Close()
	id := c.directServer(t, "DEV1-S", "")
	w := c.direct("POST", serversPath+"/"+id+"/action", `{"action":"poweroff"}`)
	if want := `{"type": "invalid_request_error", "message": "server should be running"}`; w.Code != http.StatusBadRequest || w.Body.String() != want {
		t.Errorf("%d %s, want 400 %s", w.Code, w.Body, want)
	}
}

func TestCreateRefusals(t *testing.T) {
	project := `"project":"` + DefaultProjectID + `"`
	const unknown = "3f6c2f0e-7c0b-4f65-9f0a-6f0a2b1c9d1e"
	tests := []struct {
		name, body string
		code       int
		words      []string
	}{
		{"nothing", `{"name":"n",` + project + `}`, 400, []string{`"invalid_arguments"`, `"commercial_type"`, `"image"`, `"volumes"`, "required key not provided"}},
		{"not JSON", `{`, 400, []string{`"invalid_arguments"`}},
		{"no project", `{"name":"n","commercial_type":"DEV1-S","image":"x"}`, 400, []string{`"project"`}},
		{"a project out of sight, before the image", `{"name":"n","commercial_type":"DEV1-S","image":"` + unknown + `","project":"` + unknown + `"}`, 403,
			[]string{`"permissions_denied"`, `"resource": "project"`, `"action": "read"`}},
		{"unknown type", `{"name":"n","commercial_type":"DEV9-S","image":"ubuntu_noble",` + project + `}`, 400, []string{`"commercial_type"`, "not a valid value"}},
		{"type of another zone", `{"name":"n","commercial_type":"H100-1-80G","image":"ubuntu_noble",` + project + `}`, 400, []string{`"commercial_type"`}},
		{"unknown image", `{"name":"n","commercial_type":"DEV1-S","image":"` + unknown + `",` + project + `}`, 404, []string{`"instance_image"`, unknown}},
		{"image of another zone", `{"name":"n","commercial_type":"DEV1-S","image":"` + localImage("nl-ams-1", "ubuntu_noble") + `",` + project + `}`, 404, []string{`"instance_image"`}},
		{"unknown IP", `{"name":"n","commercial_type":"DEV1-S","image":"ubuntu_noble","public_ips":["` + unknown + `"],` + project + `}`, 404, []string{`"instance_ip"`}},
		{"unknown group", `{"name":"n","commercial_type":"DEV1-S","image":"ubuntu_noble","security_group":"` + unknown + `",` + project + `}`, 404, []string{`"instance_security_group"`}},
		{"bad placement group", `{"name":"n","commercial_type":"DEV1-S","image":"ubuntu_noble","placement_group":"x",` + project + `}`, 400, []string{`"placement_group"`, "not a valid value"}},
		{"unknown placement group", `{"name":"n","commercial_type":"DEV1-S","image":"ubuntu_noble","placement_group":"` + unknown + `",` + project + `}`, 404, []string{`"instance_placement_group"`}},
		{"unknown volume", `{"name":"n","commercial_type":"DEV1-S","image":"ubuntu_noble","volumes":{"1":{"id":"` + unknown + `"}},` + project + `}`, 404, []string{`"instance_volume"`}},
		{"retired volume type", `{"name":"n","commercial_type":"DEV1-S","image":"ubuntu_noble","volumes":{"1":{"size":1,"volume_type":"b_ssd"}},` + project + `}`, 400, []string{`"volumes.1.volume_type"`}},
		{"network image, local volume", `{"name":"n","commercial_type":"DEV1-S","image":"ubuntu_noble","volumes":{"0":{"size":20000000000,"volume_type":"l_ssd"}},` + project + `}`, 400,
			[]string{"cannot create a volume of type l_ssd from a base of type sbs_snapshot"}},
		{"local image, network volume", `{"name":"n","commercial_type":"DEV1-S","image":"` + localImage("fr-par-1", "ubuntu_noble") + `","volumes":{"0":{"size":20000000000,"volume_type":"sbs_volume"}},` + project + `}`, 400,
			[]string{"cannot create a volume of type sbs_volume from a base of type unified"}},
		{"too much local", `{"name":"n","commercial_type":"DEV1-S","image":"` + localImage("fr-par-1", "ubuntu_noble") + `","volumes":{"0":{"size":21000000000,"volume_type":"l_ssd"}},` + project + `}`, 400, []string{"20000000000"}},
		{"local on a network-only type", `{"name":"n","commercial_type":"PRO2-S","image":"` + localImage("fr-par-1", "ubuntu_noble") + `",` + project + `}`, 400, []string{"l_ssd"}},
		{"root too small", `{"name":"n","commercial_type":"DEV1-S","image":"ubuntu_noble","volumes":{"0":{"size":1000000000}},` + project + `}`, 400, []string{"10000000000"}},
	}
	c := New(Options{Scale: 1})
	defer c.Close()
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := c.direct("POST", serversPath, tt.body)
			if w.Code != tt.code {
				t.Errorf("status %d, want %d", w.Code, tt.code)
			}
			for _, word := range tt.words {
				if !strings.Contains(w.Body.String(), word) {
					t.Errorf("body lacks %s: %s", word, w.Body)
				}
			}
		})
	}
	if n, v := len(c.Servers()), len(c.Volumes()); n+v != 0 {
		t.Errorf("refused creates left %d servers and %d volumes", n, v)
	}
}

// A body that makes no sense is the client's fault on every route, never 5xx.
func TestGarbageIsRefused(t *testing.T) {
	c := New(Options{Scale: 1})
	defer c.Close()
	id := c.directServer(t, "PLAY2-NANO", "")
	for _, rt := range routeTable() {
		method, path, _ := strings.Cut(rt.name, " ")
		if !slices.Contains([]string{"POST", "PATCH"}, method) || rt.name == RouteSetUserData {
			continue
		}
		path = strings.NewReplacer("{zone}", "fr-par-1", "{id}", id, "{nic}", id, "{key}", "k").Replace(path)
		for _, body := range []string{"", "[]", `{"tags":7}`, `{"name":{}}`} {
			if w := c.direct(method, path, body); w.Code < 400 || w.Code > 499 {
				t.Errorf("%s with %q: %d %s", rt.name, body, w.Code, w.Body)
			}
		}
	}
	if w := c.direct("GET", "/instance/v1/zones/Paris/servers", ""); w.Code != http.StatusBadRequest {
		t.Errorf("a malformed zone: %d", w.Code)
	}
	if w := c.direct("GET", "/instance/v1/zones/it-mil-3/servers", ""); w.Code != http.StatusOK {
		t.Errorf("a zone that no recording has: %d", w.Code)
	}
	if w := c.direct("GET", "/k8s/v1/clusters", ""); w.Code != http.StatusNotFound {
		t.Errorf("another product: %d", w.Code)
	}
}
