package fakecloud

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/scaleway/scaleway-sdk-go/api/instance/v1"
	"github.com/scaleway/scaleway-sdk-go/scw"
)

// Which calls a fault hits.
func TestFaultCounting(t *testing.T) {
	down := Unavailable()
	tests := []struct {
		name  string
		fault Fault
		want  []int // statuses of five list calls
	}{
		{"once", Fault{Route: RouteListServers, Reply: down}, []int{503, 200, 200, 200, 200}},
		{"twice, from the second", Fault{Route: RouteListServers, Skip: 1, Times: 2, Reply: down}, []int{200, 503, 503, 200, 200}},
		{"for ever, from the third", Fault{Route: RouteListServers, Skip: 2, Times: -1, Reply: down}, []int{200, 200, 503, 503, 503}},
		{"every route", Fault{Times: 2, Reply: down}, []int{503, 503, 200, 200, 200}},
		{"another route", Fault{Route: RouteGetServer, Times: -1, Reply: down}, []int{200, 200, 200, 200, 200}},
		{"another zone", Fault{Match: func(r Request) bool { return r.Zone == "nl-ams-1" }, Times: -1, Reply: down}, []int{200, 200, 200, 200, 200}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := New(Options{})
			defer c.Close()
			c.Inject(tt.fault)
			var got []int
			for range 5 {
				got = append(got, c.direct("GET", serversPath, "").Code)
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("%v, want %v", got, tt.want)
			}
		})
	}

	c := New(Options{})
	defer c.Close()
	remove := c.Inject(Fault{Times: -1, Reply: down})
	c.Inject(Fault{Times: -1, Reply: BadGateway()})
	statuses := []int{c.direct("GET", serversPath, "").Code}
	remove()
	statuses = append(statuses, c.direct("GET", serversPath, "").Code)
	c.ClearFaults()
	statuses = append(statuses, c.direct("GET", serversPath, "").Code)
	if want := []int{503, 502, 200}; !slices.Equal(statuses, want) {
		t.Errorf("statuses %v, want %v", statuses, want)
	}
	var recorded []int
	for _, call := range c.Calls() {
		recorded = append(recorded, call.Status)
	}
	if !slices.Equal(recorded, statuses) || c.Requests("") != 3 || c.Requests(RouteListServers) != 3 {
		t.Errorf("recorded %v, %d calls", recorded, c.Requests(""))
	}
}

func TestRateLimitedAsRecorded(t *testing.T) {
	a := serve(t, Options{})
	a.Inject(Fault{Route: RouteListServers, Times: 2, Reply: RateLimited()})
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, a.url+serversPath, nil)
	if err != nil {
		t.Fatal(err)
	}
	httpClient := &http.Client{Transport: &http.Transport{}}
	defer httpClient.CloseIdleConnections()
	resp, err := httpClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var names []string
	for name := range resp.Header {
		names = append(names, name)
	}
	slices.Sort(names)
	if want := []string{"Content-Length", "Date", "Server", "X-Envoy-Ratelimited", "X-Request-Id"}; resp.StatusCode != http.StatusTooManyRequests || !slices.Equal(names, want) {
		t.Errorf("%d with %v, want 429 with %v", resp.StatusCode, names, want)
	}

	_, err = a.instance.ListServers(&instance.ListServersRequest{})
	var plain *scw.ResponseError
	if !errors.As(err, &plain) || plain.StatusCode != http.StatusTooManyRequests {
		t.Errorf("through the SDK: %#v", err)
	}
	wantErr(t, err, "http error 429 Too Many Requests")
}

// The work is done, the answer is lost: a retry makes a second server.
func TestCommitThenFail(t *testing.T) {
	for name, fault := range map[string]Fault{
		"503":    {Route: RouteCreateServer, Commit: true, Reply: Unavailable()},
		"HTML":   {Route: RouteCreateServer, Commit: true, Reply: BadGateway()},
		"hangup": {Route: RouteCreateServer, Commit: true, Hangup: true},
		"empty":  {Route: RouteCreateServer, Commit: true, Reply: Empty()},
	} {
		t.Run(name, func(t *testing.T) {
			a := serve(t, Options{})
			a.Inject(fault)
			req := &instance.CreateServerRequest{Name: "n", CommercialType: "PLAY2-NANO", Image: new("ubuntu_noble")}
			resp, err := a.instance.CreateServer(req)
			if err == nil && resp.Server != nil {
				t.Fatal("the answer arrived")
			}
			if len(a.Servers()) != 1 {
				t.Fatalf("%d servers after the lost answer, want 1", len(a.Servers()))
			}
			if _, err := a.instance.CreateServer(req); err != nil {
				t.Fatal(err)
			}
			if len(a.Servers()) != 2 {
				t.Errorf("%d servers after the retry, want 2", len(a.Servers()))
			}
		})
	}
}

func TestFailBeforeTheWork(t *testing.T) {
	a := serve(t, Options{})
	for _, fault := range []Fault{{Route: RouteCreateServer, Hangup: true}, {Route: RouteCreateServer, Reply: QuotaFlat("cp_servers_type_DEV1_S")}} {
		a.Inject(fault)
		if _, err := a.instance.CreateServer(&instance.CreateServerRequest{CommercialType: "DEV1-S", Image: new("ubuntu_noble")}); err == nil {
			t.Error("the create succeeded")
		}
	}
	if len(a.Servers()) != 0 {
		t.Errorf("%d servers, want none", len(a.Servers()))
	}
}

func TestSlowAnswer(t *testing.T) {
	a := serve(t, Options{})
	a.Inject(Fault{Route: RouteListServers, Delay: time.Hour})
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := a.instance.ListServers(&instance.ListServersRequest{}, scw.WithContext(ctx))
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error %v, want the caller's deadline", err)
	}
}

func TestErrorBodiesThroughTheSDK(t *testing.T) {
	a := serve(t, Options{})
	call := func(r *Reply) error {
		a.Inject(Fault{Route: RouteListServers, Reply: r})
		_, err := a.instance.ListServers(&instance.ListServersRequest{})
		return err
	}
	var stock *scw.OutOfStockError
	if err := call(OutOfStock("L40S-1-48G")); !errors.As(err, &stock) || stock.Resource != "L40S-1-48G" {
		t.Errorf("out of stock: %#v", err)
	}
	var quota *scw.QuotasExceededError
	for name, tt := range map[string]struct {
		reply   *Reply
		details int
	}{"legacy": {QuotaLegacy(), 1}, "standard": {QuotaStandard("human"), 1}, "flat": {QuotaFlat("cp_x"), 0}} {
		if err := call(tt.reply); !errors.As(err, &quota) || len(quota.Details) != tt.details {
			t.Errorf("%s quota: %#v", name, err)
		}
	}
	var denied *scw.PermissionsDeniedError
	if err := call(Forbidden("instance_server", "list")); !errors.As(err, &denied) {
		t.Errorf("forbidden: %#v", err)
	}
	var busy *scw.TransientStateError
	if err := call(Transient("volume", "v", "creating")); !errors.As(err, &busy) || busy.CurrentState != "creating" {
		t.Errorf("transient: %#v", err)
	}
	var plain *scw.ResponseError
	if err := call(Unavailable()); !errors.As(err, &plain) || plain.StatusCode != http.StatusServiceUnavailable || plain.Message != "internal error" {
		t.Errorf("unavailable: %#v", err)
	}
}

func TestOutcomes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New(Options{Scale: 1})
		defer c.Close()
		id := c.directServer(t, "DEV1-S", "")
		isPowerOn := func(r Request) bool { return r.Action == "poweron" && r.ID == id }

		c.Inject(Fault{Route: RouteServerAction, Match: isPowerOn, Outcome: OutcomeFallBack})
		c.directAct(t, id, "poweron")
		if got := c.condition(id); got != "starting/allocating node" {
			t.Errorf("fall back, at once: %s", got)
		}
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if got := c.condition(id); got != "stopped/" {
			t.Errorf("fall back, later: %s", got)
		}

		c.Inject(Fault{Route: RouteServerAction, Match: isPowerOn, Outcome: OutcomeStuck})
		c.directAct(t, id, "poweron")
		time.Sleep(24 * time.Hour)
		synctest.Wait()
		if got := c.condition(id); got != "starting/allocating node" {
			t.Errorf("stuck: %s", got)
		}
		if err := c.ForceState(id, StateStopped, ""); err != nil {
			t.Fatal(err)
		}
		if w := c.direct("DELETE", serversPath+"/"+id, ""); w.Code != http.StatusNoContent {
			t.Errorf("delete once it is unstuck: %d", w.Code)
		}
	})
}

func TestStockAndQuota(t *testing.T) {
	a := serve(t, Options{})
	a.SetStock("fr-par-1", "PLAY2-NANO", Shortage)
	s := a.create(t, "n") // a create claims nothing
	var stock *scw.OutOfStockError
	if err := a.act(s.ID, instance.ServerActionPoweron); !errors.As(err, &stock) || stock.Resource != "PLAY2-NANO" {
		t.Errorf("power-on in a shortage: %#v", err)
	}
	a.SetStock("fr-par-1", "PLAY2-NANO", Available)
	a.mustAct(t, s.ID, instance.ServerActionPoweron)

	a.SetQuota("PLAY2-NANO", 1)
	_, err := a.instance.CreateServer(&instance.CreateServerRequest{CommercialType: "PLAY2-NANO", Image: new("ubuntu_noble")})
	var quota *scw.QuotasExceededError
	if !errors.As(err, &quota) || !strings.Contains(string(quota.RawBody), "cp_servers_type_PLAY2_NANO") {
		t.Errorf("create beyond the quota: %#v", err)
	}
	a.SetQuota("PLAY2-NANO", -1)
	a.create(t, "m")
}

func TestLag(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New(Options{Scale: 1})
		defer c.Close()
		c.SetLag(time.Minute, 20*time.Second)
		id := c.directServer(t, "DEV1-S", "")
		look := func() (listed string, got int) {
			return c.direct("GET", serversPath, "").Header().Get("X-Total-Count"), c.direct("GET", serversPath+"/"+id, "").Code
		}
		for _, tt := range []struct {
			after  time.Duration
			listed string
			got    int
		}{{0, "0", 404}, {20 * time.Second, "0", 200}, {40 * time.Second, "1", 200}} {
			time.Sleep(tt.after)
			if listed, got := look(); listed != tt.listed || got != tt.got {
				t.Errorf("%s later: listed %s, GET %d; want %s, %d", tt.after, listed, got, tt.listed, tt.got)
			}
		}
	})
}
