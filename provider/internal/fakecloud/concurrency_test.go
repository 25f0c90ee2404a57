package fakecloud

import (
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"
)

// Many clients at once, timers running: every server ends, every volume that
// is left can be deleted, and no timer or address stays behind.
func TestManyAtOnce(t *testing.T) {
	hosts := &recorder{}
	c := New(Options{Scale: 0.0005, Hosts: hosts})
	defer c.Close()
	var wg sync.WaitGroup
	for worker := range 8 {
		wg.Go(func() {
			for round := range 12 {
				tag := fmt.Sprintf("op=%d.%d", worker, round)
				body := fmt.Sprintf(`{"name":"n","commercial_type":"PLAY2-NANO","image":"ubuntu_noble","project":%q,"tags":[%q]}`, DefaultProjectID, tag)
				if w := c.direct("POST", serversPath, body); w.Code != http.StatusCreated {
					t.Errorf("create: %d %s", w.Code, w.Body)
					return
				}
				id := c.tagged(tag)
				for _, action := range []string{"poweron", "reboot", "stop_in_place", "poweron", "terminate"} {
					c.eventuallyAccepts(t, id, action)
				}
				c.direct("GET", serversPath+"?tags="+tag, "")
			}
		})
	}
	wg.Wait()
	eventually(t, "every server is gone", func() bool { return len(c.Servers()) == 0 })
	for _, leak := range c.Leaks() {
		if w := c.direct("DELETE", "/block/v1/zones/fr-par-1/volumes/"+leak.ID, ""); w.Code != http.StatusNoContent {
			t.Errorf("delete of %+v: %d %s", leak, w.Code, w.Body)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.inv.volumes) != 0 || len(c.pending) != 0 || len(c.addresses.used) != 0 {
		t.Errorf("left: %d volumes, %d timers, %d addresses", len(c.inv.volumes), len(c.pending), len(c.addresses.used))
	}
}

func (c *Cloud) tagged(tag string) string {
	for _, s := range c.Servers() {
		if s.Tags[0] == tag {
			return s.ID
		}
	}
	return ""
}

// eventuallyAccepts repeats an action until the server is in a state for it.
func (c *Cloud) eventuallyAccepts(t *testing.T, id, action string) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		w := c.direct("POST", serversPath+"/"+id+"/action", `{"action":"`+action+`"}`)
		if w.Code == http.StatusAccepted {
			return
		}
		if w.Code != http.StatusBadRequest || time.Now().After(deadline) {
			t.Errorf("%s: %d %s", action, w.Code, w.Body)
			return
		}
	}
}

// Resets, switches and faults while clients are at work: nothing is torn, and
// the Cloud is as good as new after the last of them.
func TestControlWhileClientsWork(t *testing.T) {
	hosts := &recorder{}
	c := New(Options{Scale: 0.0005, Hosts: hosts})
	defer c.Close()
	call := func(method, path, body string) { c.direct(method, path, body) } // any answer will do: a reset may take all away
	var wg sync.WaitGroup
	for worker := range 4 {
		wg.Go(func() {
			for round := range 25 {
				tag := fmt.Sprintf("op=%d.%d", worker, round)
				call("POST", serversPath, fmt.Sprintf(`{"name":"n","commercial_type":"PLAY2-NANO","image":"ubuntu_noble","project":%q,"tags":[%q]}`, DefaultProjectID, tag))
				id := c.tagged(tag)
				for _, action := range []string{"poweron", "terminate"} {
					call("POST", serversPath+"/"+id+"/action", `{"action":"`+action+`"}`)
				}
				call("GET", serversPath, "")
				call("POST", iam+"/applications", `{"name":"a"}`)
				call("GET", iam+"/api-keys", "")
				call("POST", "/vpc/v2/regions/fr-par/private-networks", `{"project_id":"`+DefaultProjectID+`"}`)
				c.asGuestIfAny(id)
			}
		})
	}
	wg.Go(func() {
		for round := range 40 {
			call("POST", "/debug/faults", `{"times":2,"reply":"rate_limited"}`)
			call("POST", "/debug/switches", fmt.Sprintf(`{"page_shift":%d,"delays":{"power_on":"%dms"},"quotas":{"PLAY2-NANO":50}}`, round%3-1, round))
			call("GET", "/debug/switches", "")
			call("GET", "/debug/calls?limit=5", "")
			call("GET", "/debug/leaks", "")
			call("POST", "/debug/reset", "")
		}
	})
	wg.Wait()
	c.Reset()
	id := c.directServer(t, "PLAY2-NANO", "")
	c.directAct(t, id, "poweron")
	eventually(t, "the server runs", func() bool { return c.condition(id) == "running/booting kernel" })
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.inv.servers) != 1 || len(c.inv.volumes) != 1 || len(c.guests.assigned) != 1 || len(c.inv.applications.all) != 0 {
		t.Errorf("left: %d servers, %d volumes, %d guests, %d applications",
			len(c.inv.servers), len(c.inv.volumes), len(c.guests.assigned), len(c.inv.applications.all))
	}
}

// asGuestIfAny asks the metadata service for a server, which may be gone or off.
func (c *Cloud) asGuestIfAny(id string) {
	defer func() { _ = recover() }() // the service hangs up on a guest that is off
	for _, s := range c.Servers() {
		if s.ID == id {
			c.asGuest(s.MetadataSource+":1", "GET", "/conf", "")
		}
	}
}
