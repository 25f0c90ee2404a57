package fakecloud

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// direct calls the handler without a socket, so that it works in a bubble.
func (c *Cloud) direct(method, path, body string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	r.Header.Set("X-Auth-Token", DefaultSecretKey)
	return answerOf(c.Handler(), r)
}

// answerOf is what the handler answers.
func answerOf(h http.Handler, r *http.Request) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

const serversPath = "/instance/v1/zones/fr-par-1/servers"

// directServer makes a server and returns its id.
func (c *Cloud) directServer(t *testing.T, commercialType, volumes string) string {
	t.Helper()
	body := `{"name":"n","commercial_type":"` + commercialType + `","image":"ubuntu_noble","project":"` + DefaultProjectID + `","dynamic_ip_required":true` + volumes + `}`
	if strings.Contains(volumes, "l_ssd") {
		body = strings.Replace(body, "ubuntu_noble", localImage("fr-par-1", "ubuntu_noble"), 1)
	}
	if w := c.direct("POST", serversPath, body); w.Code != http.StatusCreated {
		t.Fatalf("create: %d %s", w.Code, w.Body)
	}
	all := c.Servers()
	return all[len(all)-1].ID
}

func localImage(zone, label string) string {
	for _, img := range imagesIn(zone) {
		if img.label == label && img.local {
			return img.id()
		}
	}
	panic("no local image " + label)
}

// directNetwork makes a Private Network in fr-par and returns its id.
func (c *Cloud) directNetwork(t *testing.T) string {
	t.Helper()
	w := c.direct("POST", "/vpc/v2/regions/fr-par/private-networks", `{"name":"pn","project_id":"`+DefaultProjectID+`"}`)
	var body struct{ ID string }
	if err := json.Unmarshal(w.Body.Bytes(), &body); err != nil || w.Code != http.StatusOK {
		t.Fatalf("private network: %d %s", w.Code, w.Body)
	}
	return body.ID
}

func (c *Cloud) directAct(t *testing.T, id, action string) {
	t.Helper()
	if w := c.direct("POST", serversPath+"/"+id+"/action", `{"action":"`+action+`"}`); w.Code != http.StatusAccepted {
		t.Fatalf("%s: %d %s", action, w.Code, w.Body)
	}
}

// condition is "state/detail", or "gone".
func (c *Cloud) condition(id string) string {
	for _, s := range c.Servers() {
		if s.ID == id {
			return s.State + "/" + s.StateDetail
		}
	}
	return "gone"
}

// moment is a change seen at a time after an action.
type moment struct {
	At  time.Duration
	Now string
}

// watch notes each change of the condition for a while.
func (c *Cloud) watch(id string, whole time.Duration) []moment {
	const step = 100 * time.Millisecond
	seen := []moment{{0, c.condition(id)}}
	for at := step; at <= whole; at += step {
		time.Sleep(step)
		synctest.Wait()
		if now := c.condition(id); now != seen[len(seen)-1].Now {
			seen = append(seen, moment{at, now})
		}
	}
	return seen
}

func TestTimingsAsRecorded(t *testing.T) {
	tests := []struct {
		action string
		from   string
		want   []moment
	}{
		{"poweron", StateStopped, []moment{
			{0, "starting/allocating node"}, {time.Second, "starting/provisioning node"}, {5 * time.Second, "running/booting kernel"},
		}},
		{"poweron", StateStoppedInPlace, []moment{{0, "starting/stopped in place"}, {5 * time.Second, "running/booting kernel"}}},
		{"poweroff", StateRunning, []moment{{0, "stopping/stopping"}, {41 * time.Second, "stopped/"}}},
		{"poweroff", StateStoppedInPlace, []moment{{0, "stopping/stopping"}, {41 * time.Second, "stopped/"}}},
		{"terminate", StateRunning, []moment{{0, "stopping/terminating"}, {5 * time.Second, "gone"}}},
		{"terminate", StateStoppedInPlace, []moment{{0, "stopping/terminating"}, {5 * time.Second, "gone"}}},
		{"reboot", StateRunning, []moment{
			{0, "stopping/rebooting"}, {35900 * time.Millisecond, "starting/rebooting"}, {41 * time.Second, "running/booting kernel"},
		}},
		{"stop_in_place", StateRunning, []moment{{0, "stopping/stopping in place"}, {44 * time.Second, "stopped in place/stopped in place"}}},
		{"stop_in_place", StateStarting, []moment{{0, "stopping/stopping in place"}, {44 * time.Second, "stopped in place/stopped in place"}}},
	}
	for _, tt := range tests {
		t.Run(tt.action+" from "+tt.from, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := New(Options{Scale: 1})
				defer c.Close()
				id := c.directServer(t, "DEV1-S", "")
				if err := c.ForceState(id, tt.from, tt.from); err != nil {
					t.Fatal(err)
				}
				c.directAct(t, id, tt.action)
				if diff := cmp.Diff(tt.want, c.watch(id, 60*time.Second)); diff != "" {
					t.Errorf("changes (-want +got):\n%s", diff)
				}
			})
		})
	}
}

func TestScale(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New(Options{Scale: 0.02})
		defer c.Close()
		id := c.directServer(t, "DEV1-S", "")
		c.directAct(t, id, "poweron")
		time.Sleep(99 * time.Millisecond)
		synctest.Wait()
		if got := c.condition(id); got != "starting/provisioning node" {
			t.Errorf("after 99 ms: %s", got)
		}
		time.Sleep(time.Millisecond)
		synctest.Wait()
		if got := c.condition(id); got != "running/booting kernel" {
			t.Errorf("after 100 ms: %s", got)
		}
	})
	c := New(Options{})
	defer c.Close()
	id := c.directServer(t, "DEV1-S", "")
	c.directAct(t, id, "poweron")
	if got := c.condition(id); got != "running/booting kernel" {
		t.Errorf("scale 0 after the answer: %s", got)
	}
	c.directAct(t, id, "terminate")
	if got := c.condition(id); got != "gone" {
		t.Errorf("scale 0 after terminate: %s", got)
	}
}

func TestCloseLeavesNothingBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New(Options{Scale: 1})
		id := c.directServer(t, "DEV1-S", "")
		c.directAct(t, id, "poweron")
		time.Sleep(2 * time.Second)
		c.Close()
		c.Close()
		time.Sleep(time.Hour)
		synctest.Wait()
		if got := c.condition(id); got != "starting/provisioning node" {
			t.Errorf("the server went on after Close: %s", got)
		}
		if w := c.direct("GET", serversPath, ""); w.Code != http.StatusServiceUnavailable {
			t.Errorf("a call after Close: %d", w.Code)
		}
	})
}

func TestDynamicAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New(Options{Scale: 1})
		defer c.Close()
		id := c.directServer(t, "DEV1-S", "")
		state := func() string {
			_, rest, found := strings.Cut(c.direct("GET", serversPath+"/"+id, "").Body.String(), `"public_ip": `)
			if !found || strings.HasPrefix(rest, "null") {
				return "none"
			}
			_, rest, _ = strings.Cut(rest, `"state": "`)
			state, _, _ := strings.Cut(rest, `"`)
			return state
		}
		var seen []string
		note := func() { synctest.Wait(); seen = append(seen, state()) }
		note()
		c.directAct(t, id, "poweron")
		note()
		time.Sleep(5 * time.Second)
		note()
		time.Sleep(3 * time.Second)
		note()
		c.directAct(t, id, "poweroff")
		time.Sleep(41 * time.Second)
		note()
		if want := []string{"none", "pending", "pending", "attached", "none"}; !slices.Equal(seen, want) {
			t.Errorf("address %v, want %v", seen, want)
		}
		if n := len(c.addresses.used); n != 0 {
			t.Errorf("%d addresses still taken", n)
		}
	})
}

// What is left of a server depends on how it goes.
func TestVolumeFate(t *testing.T) {
	const local = `,"volumes":{"0":{"size":10000000000,"volume_type":"l_ssd"},"1":{"size":20000000000,"volume_type":"sbs_volume","name":"data"}}`
	const scratch = `,"volumes":{"0":{},"1":{"size":20000000000,"volume_type":"scratch","name":"tmp"}}`
	tests := []struct {
		name, commercialType, volumes string
		delete                        bool
		want                          []string // types left
	}{
		{"terminate, local and network", "DEV1-S", local, false, []string{"sbs_volume"}},
		{"terminate, scratch", "STANDARD3-X2C-8G", scratch, false, []string{"sbs_volume"}},
		{"delete, local and network", "DEV1-S", local, true, []string{"l_ssd", "sbs_volume"}},
		{"delete, scratch", "STANDARD3-X2C-8G", scratch, true, []string{"sbs_volume", "scratch"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := New(Options{})
			defer c.Close()
			id := c.directServer(t, tt.commercialType, tt.volumes)
			if tt.delete {
				if w := c.direct("DELETE", serversPath+"/"+id, ""); w.Code != http.StatusNoContent || w.Body.Len() != 0 {
					t.Fatalf("delete: %d %s", w.Code, w.Body)
				}
			} else {
				c.directAct(t, id, "poweron")
				c.directAct(t, id, "terminate")
			}
			var left []string
			for _, v := range c.Volumes() {
				left = append(left, v.Type)
				if v.Status != "available" || v.ServerID != "" {
					t.Errorf("%s volume left %s, server %q", v.Type, v.Status, v.ServerID)
				}
			}
			if !slices.Equal(left, tt.want) {
				t.Errorf("left %v, want %v", left, tt.want)
			}
			if leaks := c.Leaks(); len(leaks) != len(tt.want) {
				t.Errorf("leaks %+v, want %d", leaks, len(tt.want))
			}
		})
	}
}

// A network volume is let go of seconds before a terminated server is gone,
// and seconds after a deleted one.
func TestNetworkVolumeDetachTimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New(Options{Scale: 1})
		defer c.Close()
		id := c.directServer(t, "PLAY2-NANO", "")
		volume := c.Volumes()[0].ID
		look := func() string {
			synctest.Wait()
			w := c.direct("GET", "/block/v1/zones/fr-par-1/volumes/"+volume, "")
			switch body := w.Body.String(); {
			case strings.Contains(body, `"status":"detaching"`):
				return "detaching"
			case strings.Contains(body, `"status":"in_use"`):
				return "in_use"
			case strings.Contains(body, `"references":[]`) && strings.Contains(body, `"status":"available"`):
				return "available"
			default:
				return body
			}
		}
		remove := func() int { return c.direct("DELETE", "/block/v1/zones/fr-par-1/volumes/"+volume, "").Code }

		if got := look(); got != "in_use" {
			t.Errorf("attached: %s", got)
		}
		if got := remove(); got != http.StatusPreconditionFailed {
			t.Errorf("delete of an attached volume: %d", got)
		}
		if w := c.direct("DELETE", serversPath+"/"+id, ""); w.Code != http.StatusNoContent {
			t.Fatal(w.Code)
		}
		if got := look(); got != "detaching" {
			t.Errorf("right after DELETE of the server: %s", got)
		}
		if got := remove(); got != http.StatusConflict {
			t.Errorf("delete of a detaching volume: %d", got)
		}
		time.Sleep(1300 * time.Millisecond)
		if got := look(); got != "available" {
			t.Errorf("1.3 s after DELETE of the server: %s", got)
		}
		if got := remove(); got != http.StatusNoContent {
			t.Errorf("delete of a free volume: %d", got)
		}
		if got := remove(); got != http.StatusNotFound {
			t.Errorf("second delete: %d", got)
		}

		id = c.directServer(t, "PLAY2-NANO", "")
		volume = c.Volumes()[0].ID
		c.directAct(t, id, "poweron")
		time.Sleep(5 * time.Second)
		synctest.Wait()
		c.directAct(t, id, "terminate")
		if got := look(); got != "in_use" {
			t.Errorf("right after terminate: %s", got)
		}
		time.Sleep(2 * time.Second)
		if got := look() + ", " + c.condition(id); got != "available, stopping/terminating" {
			t.Errorf("2 s after terminate: %s", got)
		}
	})
}
