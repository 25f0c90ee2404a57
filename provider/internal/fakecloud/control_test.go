package fakecloud

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// control calls the control endpoint and decodes what comes back.
func control[T any](t *testing.T, c *Cloud, want int, method, path, body string) T {
	t.Helper()
	w := c.direct(method, "/debug"+path, body)
	var out T
	if w.Code != want {
		t.Fatalf("%s %s: %d %s, want %d", method, path, w.Code, w.Body, want)
	}
	if w.Body.Len() > 0 {
		if err := json.Unmarshal(w.Body.Bytes(), &out); err != nil {
			t.Fatalf("%s %s: %v in %s", method, path, err, w.Body)
		}
	}
	return out
}

type none struct{}

type refusals struct{ Errors []string }

func TestControlNamesEveryMistake(t *testing.T) {
	c := New(Options{})
	defer c.Close()
	id := c.directServer(t, "PLAY2-NANO", "")
	for _, tt := range []struct {
		path, body string
		want       []string // the beginning of each error
	}{
		{"/faults", `[]`, []string{"body"}},
		{"/faults", `{"times":"x","skip":-1,"reply":{"status":99,"colour":1}}`, []string{"skip", "times", "reply.status", "reply.colour"}},
		{"/faults", `{"route":"GET /x","delay":"-1s","outcome":"late","reply":"tea"}`, []string{"delay", "route", "outcome", "reply"}},
		{"/faults", `{"hangup":true,"hangup_after_bytes":0,"reply":"empty"}`, []string{"hangup_after_bytes", "reply"}},
		{"/faults", `{"commit":true}`, []string{"commit"}},
		{"/faults", `{"route":"` + RouteListServers + `","action":"poweron","delay":"1s"}`, []string{"action"}},
		{"/switches", `{"scale":-1,"list_lag":1,"quota_body":"new","delays":{"nap":"1s"},"quotas":{"DEV9":1}}`, []string{"scale", "list_lag", "quota_body", "delays.nap", "quotas.DEV9"}},
		{"/switches", `{"stock":[{"zone":"fr-par-1","type":"DEV1-S"},{"zone":"x","type":"y","stock":"some"}]}`, []string{"stock.0.stock", "stock.1.type", "stock.1.stock"}},
		{"/switches", `{"servers":[{"id":"nobody"},{"id":"` + id + `","state":"asleep","guest_shutdown":true}]}`, []string{"servers.0.id", "servers.1.state", "servers.1.guest_shutdown"}},
		{"/guests", `{"address":"home","server":"nobody"}`, []string{"address", "server"}},
	} {
		var got []string
		for _, e := range control[refusals](t, c, http.StatusBadRequest, "POST", tt.path, tt.body).Errors {
			name, _, _ := strings.Cut(e, ":")
			got = append(got, name)
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("%s %s: %q, want %q", tt.path, tt.body, got, tt.want)
		}
	}
	if len(c.Faults()) != 0 {
		t.Errorf("%d faults after refusals", len(c.Faults()))
	}
	got := control[refusals](t, c, http.StatusBadRequest, "GET", "/calls?after=x&limit=0&shape=round", "")
	if len(got.Errors) != 3 {
		t.Errorf("errors %q, want three", got.Errors)
	}
}

func TestControlFaults(t *testing.T) {
	c := New(Options{})
	defer c.Close()
	id := c.directServer(t, "PLAY2-NANO", "")
	list := func() []faultView {
		return control[struct{ Faults []faultView }](t, c, http.StatusOK, "GET", "/faults", "").Faults
	}
	made := control[faultView](t, c, http.StatusCreated, "POST", "/faults",
		`{"route":"`+RouteServerAction+`","zone":"fr-par-1","id":"`+id+`","action":"poweron","body_contains":"power","skip":1,"times":2,"reply":{"name":"out_of_stock","resource":"X"}}`)
	act := func(action string) int {
		return c.direct("POST", serversPath+"/"+id+"/action", `{"action":"`+action+`"}`).Code
	}
	var statuses []int
	for _, action := range []string{"terminate", "poweron", "poweron", "poweron", "poweron"} {
		statuses = append(statuses, act(action))
	}
	// The first power-on is let through, so that the last finds it running.
	if want := []int{400, 202, 412, 412, 400}; !slices.Equal(statuses, want) {
		t.Errorf("statuses %v, want %v", statuses, want)
	}
	if got := list(); len(got) != 1 || got[0].Seen != 3 || got[0].Hits != 2 || !got[0].Spent || got[0].Number != made.Number {
		t.Errorf("faults %+v", got)
	}
	control[none](t, c, http.StatusNoContent, "DELETE", fmt.Sprintf("/faults/%d", made.Number), "")
	control[refusals](t, c, http.StatusNotFound, "DELETE", fmt.Sprintf("/faults/%d", made.Number), "")

	control[faultView](t, c, http.StatusCreated, "POST", "/faults",
		`{"times":-1,"reply":{"status":418,"content_type":"text/tea","headers":{"x-pot":"1","server":null},"body":"short and stout"}}`)
	w := c.direct("GET", serversPath, "")
	if w.Code != http.StatusTeapot || w.Body.String() != "short and stout" || w.Header().Get("X-Pot") != "1" || w.Header()["Server"] != nil || w.Header().Get("Content-Type") != "text/tea" {
		t.Errorf("%d %v %s", w.Code, w.Header(), w.Body)
	}
	control[none](t, c, http.StatusNoContent, "DELETE", "/faults", "")
	control[faultView](t, c, http.StatusCreated, "POST", "/faults", `{"reply":{"status":409,"content_type":"application/json","body":{"a":[1]}}}`)
	if w := c.direct("GET", serversPath, ""); w.Code != http.StatusConflict || w.Body.String() != `{"a":[1]}` {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	for _, ready := range readyReplies {
		control[faultView](t, c, http.StatusCreated, "POST", "/faults", `{"reply":{"name":"`+ready.name+`","resource":"r\"","action":"a","id":"i","state":"s"}}`)
		w := c.direct("GET", serversPath, "")
		if w.Header().Get("Content-Type") == "application/json" && w.Body.Len() > 0 && !json.Valid(w.Body.Bytes()) {
			t.Errorf("%s is no JSON: %s", ready.name, w.Body)
		}
	}
	if got := list(); len(got) != 1+len(readyReplies) {
		t.Errorf("%d faults listed", len(got))
	}
}

func TestControlStopsAtManyFaults(t *testing.T) {
	c := New(Options{})
	defer c.Close()
	for range armedMost {
		c.Inject(Fault{Times: -1, Route: RouteGetServer, Reply: Empty()})
	}
	control[refusals](t, c, http.StatusConflict, "POST", "/faults", `{"reply":"empty"}`)
	for range faultsKept {
		c.Inject(Fault{Route: RouteListServers, Reply: Empty()})
		c.direct("GET", serversPath, "")
	}
	if n := len(c.Faults()); n > faultsKept+1 {
		t.Errorf("%d faults kept, want at most %d", n, faultsKept+1)
	}
}

func TestControlCalls(t *testing.T) {
	c := New(Options{})
	defer c.Close()
	id := c.directServer(t, "PLAY2-NANO", "")
	c.Inject(Fault{Route: RouteGetServer, Skip: 1, Reply: RateLimited()})
	for range 3 {
		c.direct("GET", serversPath+"/"+id, "")
	}
	get := func(query string) callPage {
		t.Helper()
		return control[callPage](t, c, http.StatusOK, "GET", "/calls"+query, "")
	}
	all := get("")
	if len(all.Calls) != 4 || all.Next != 4 || all.Missed != 0 {
		t.Fatalf("%+v", all)
	}
	limited := get("?status=429&route=" + strings.ReplaceAll(RouteGetServer, " ", "+"))
	if len(limited.Calls) != 1 || limited.Calls[0].Number != 3 || limited.Calls[0].Fault != 1 || limited.Calls[0].ID != id || limited.Next != 4 {
		t.Errorf("%+v", limited)
	}
	first := get("?limit=2")
	if second := get(fmt.Sprintf("?after=%d", first.Next)); len(first.Calls) != 2 || len(second.Calls) != 2 || second.Calls[0].Number != 3 {
		t.Errorf("pages %+v, %+v", first, second)
	}
	for range callsKept {
		c.direct("GET", "/metadata", "")
	}
	if page := get("?limit=1"); page.Missed != 4 || page.Calls[0].Number != 5 {
		t.Errorf("after the ring went round: %+v", page)
	}
}

func TestControlSwitches(t *testing.T) {
	c := New(Options{Scale: 1})
	defer c.Close()
	id := c.directServer(t, "PLAY2-NANO", "")
	set := func(body string) switchesView {
		t.Helper()
		return control[switchesView](t, c, http.StatusOK, "POST", "/switches", body)
	}
	got := set(`{"scale":0,"list_lag":"1m","get_lag":"2s","page_shift":-1,"key_flap":"2m","quota_body":"legacy","legacy_refusals":true,"metadata_busy":3,
		"delays":{"power_off":"188s","detach":"0s"},"quotas":{"PLAY2-NANO":1,"DEV1-S":-1},"stock":[{"zone":"fr-par-1","type":"PLAY2-NANO","stock":"shortage"}]}`)
	got.Delays = map[string]string{"power_off": got.Delays["power_off"], "detach": got.Delays["detach"]}
	want := switchesView{
		Delays: map[string]string{"power_off": "3m8s", "detach": "0s"}, ListLag: "1m0s", GetLag: "2s", PageShift: -1, KeyFlap: "2m0s",
		Stock: []stockView{{"fr-par-1", "PLAY2-NANO", Shortage}}, Quotas: map[string]int{"PLAY2-NANO": 1}, QuotaBody: QuotaBodyLegacy, LegacyRefusals: true, MetadataBusy: 3,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("switches (-want +got):\n%s", diff)
	}
	if w := c.direct("POST", serversPath+"/"+id+"/action", `{"action":"poweron"}`); w.Code != http.StatusPreconditionFailed {
		t.Errorf("power-on in a shortage: %d", w.Code)
	}
	if w := c.direct("POST", serversPath, `{"name":"m","commercial_type":"PLAY2-NANO","image":"ubuntu_noble","project":"`+DefaultProjectID+`"}`); !strings.Contains(w.Body.String(), "invalid_request_error") {
		t.Errorf("beyond the quota: %s", w.Body)
	}

	set(`{"quotas":{"PLAY2-NANO":null},"stock":[{"zone":"fr-par-1","type":"PLAY2-NANO","stock":"available"}]}`)
	c.directAct(t, id, "poweron")
	set(`{"servers":[{"id":"` + id + `","protected":true}]}`)
	if w := c.direct("POST", serversPath+"/"+id+"/action", `{"action":"terminate"}`); !strings.Contains(w.Body.String(), "protected_resource") {
		t.Errorf("terminate of a protected server: %s", w.Body)
	}
	// A mistake anywhere changes nothing.
	control[refusals](t, c, http.StatusBadRequest, "POST", "/switches", `{"scale":9,"servers":[{"id":"`+id+`","protected":false,"state":"locked"}],"x":1}`)
	if info := c.Servers()[0]; !info.Protected || info.State != StateRunning {
		t.Errorf("after a refusal: %+v", info)
	}
	set(`{"servers":[{"id":"` + id + `","guest_shutdown":true}]}`)
	if got := c.condition(id); got != "stopped in place/stopped in place" {
		t.Errorf("after the guest's shutdown: %s", got)
	}
	set(`{"servers":[{"id":"` + id + `","state":"locked","detail":"abuse"}]}`)
	if w := c.direct("POST", serversPath+"/"+id+"/action", `{"action":"poweron"}`); w.Code != http.StatusLocked || c.condition(id) != "locked/abuse" {
		t.Errorf("locked: %d, %s", w.Code, c.condition(id))
	}
}

// guestLog notes what hosts are told.
type guestLog struct{ calls []string }

func (g *guestLog) Boot(x Guest)   { g.calls = append(g.calls, "boot "+x.Name+" at "+x.MetadataSource) }
func (g *guestLog) Halt(string)    { g.calls = append(g.calls, "halt") }
func (g *guestLog) Gone(string)    { g.calls = append(g.calls, "gone") }
func (g *guestLog) Close()         { g.calls = append(g.calls, "close") }
func (g *guestLog) take() []string { defer func() { g.calls = nil }(); return g.calls }

func TestControlReset(t *testing.T) {
	hosts := &guestLog{}
	c := New(Options{Hosts: hosts})
	c.SetQuota("PLAY2-NANO", 1)
	id := c.directServer(t, "PLAY2-NANO", "")
	c.directAct(t, id, "poweron")
	c.Inject(Fault{Route: RouteGetServer, Reply: RateLimited()})
	c.mustDirect(t, http.StatusOK, "POST", iam+"/applications", `{"name":"a"}`)

	control[none](t, c, http.StatusNoContent, "POST", "/reset", "")
	if got, want := hosts.take(), []string{"boot n at 127.64.0.1", "halt", "gone"}; !slices.Equal(got, want) {
		t.Errorf("hosts were told %q, want %q", got, want)
	}
	if len(c.Servers())+len(c.Volumes())+len(c.Leaks())+len(c.Faults())+len(c.Calls())+c.Requests("") != 0 {
		t.Error("something is left")
	}
	if w := c.direct("GET", iam+"/applications", ""); w.Code != http.StatusOK || !strings.Contains(w.Body.String(), `"total_count":0`) {
		t.Errorf("applications, with the first key: %d %s", w.Code, w.Body)
	}
	c.directServer(t, "PLAY2-NANO", "")
	c.directServer(t, "PLAY2-NANO", "") // the quota is gone too
	c.Close()
	if got := hosts.take(); !slices.Equal(got, []string{"close"}) {
		t.Errorf("at the end: %q", got)
	}
	names := control[struct{ Routes []string }](t, c, http.StatusOK, "GET", "/routes", "").Routes
	for _, name := range []string{RouteCreateServer, RouteCreateAPIKey, RouteDeleteNetwork} {
		if !slices.Contains(names, name) {
			t.Errorf("%s is not listed", name)
		}
	}
}

// Names that scripts use are on the page that tells of them.
func TestControlIsDocumented(t *testing.T) {
	page, err := os.ReadFile("../../../docs/fakecloud.md")
	if err != nil {
		t.Fatal(err)
	}
	words := []string{"stuck", "fall_back"}
	for _, f := range new(Delays).fields() {
		words = append(words, f.name)
	}
	for _, r := range readyReplies {
		words = append(words, r.name)
	}
	for name := range callFilter {
		words = append(words, name)
	}
	for _, v := range []any{faultView{}, switchesView{}, stockView{}} {
		for field := range reflect.TypeOf(v).Fields() {
			name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
			words = append(words, name)
		}
	}
	// What only the list of faults shows.
	for _, shown := range []string{"fault", "go_match", "seen", "hits", "spent"} {
		words = slices.DeleteFunc(words, func(w string) bool { return w == shown })
	}
	for _, w := range words {
		if !regexp.MustCompile(`\b` + w + `\b`).Match(page) {
			t.Errorf("docs/fakecloud.md does not tell of %q", w)
		}
	}
}
