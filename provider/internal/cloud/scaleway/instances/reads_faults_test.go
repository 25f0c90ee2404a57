package instances_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"

	"bigfleet-providers/provider/internal/cloud"
	"bigfleet-providers/provider/internal/cloud/cloudtest"
	"bigfleet-providers/provider/internal/cloud/scaleway"
	"bigfleet-providers/provider/internal/cloud/scaleway/instances"
	"bigfleet-providers/provider/internal/fakecloud"
)

// A read that the key may not make is refused in those words. It is never an
// empty list, nor a server that is gone, and nothing is removed on its account.
func TestRefusedReadsAreNoEmptyAnswers(t *testing.T) {
	body := func(status int, body string) *fakecloud.Reply {
		return &fakecloud.Reply{Status: status, ContentType: "application/json", Body: body}
	}
	denied := `{"message":"authentication is denied","method":"api_key","reason":%q,"type":"denied_authentication"}`
	for name, reply := range map[string]*fakecloud.Reply{
		"unknown key":      body(http.StatusUnauthorized, fmt.Sprintf(denied, "not_found")),
		"expired key":      body(http.StatusUnauthorized, fmt.Sprintf(denied, "expired")),
		"no permission":    fakecloud.Forbidden("server", "read"),
		"another project":  fakecloud.Forbidden("project", "read"),
		"403 without body": {Status: http.StatusForbidden},
		"403 of a proxy":   {Status: http.StatusForbidden, ContentType: "text/html", Body: "<h1>forbidden</h1>"},
	} {
		for _, page := range []string{"first page", "second page"} {
			t.Run(name+", "+page, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					w := newWorld(t)
					w.fill(t, 5)
					w.volume(t, zone, scaleway.Tags{Owner: owner, Machine: "m-9"}.List())
					c := w.paged(t, 2)
					op := made(t, c, "m-1")
					before, changes := w.remains(), w.changes()
					w.Inject(fakecloud.Fault{Times: -1, Reply: reply, Match: func(r fakecloud.Request) bool {
						list := r.Route == fakecloud.RouteListServers
						second := url.Values(r.Query).Get("page") == "2"
						return strings.HasPrefix(r.Route, http.MethodGet) && (!list || page == "first page" || second)
					}})
					list, err := c.List(within(t))
					refused(t, "List", len(list), err)
					strays, err := c.Strays(within(t))
					refused(t, "Strays", len(strays), err)
					_, err = c.Get(within(t), op.Ref)
					refused(t, "Get", 0, err)
					refused(t, "Delete", 0, (&cloudtest.Operation{Spec: op.Spec, Ref: op.Ref}).Run(within(t), c.Delete()))
					if after := w.remains(); len(after) != len(before) || w.changes() != changes {
						t.Errorf("%d things are left of %d, after %d calls that change something", len(after), len(before), w.changes()-changes)
					}
				})
			})
		}
	}
}

func refused(t *testing.T, what string, n int, err error) {
	t.Helper()
	if n != 0 || !errors.Is(err, cloud.ErrDenied) || errors.Is(err, cloud.ErrNotFound) {
		t.Errorf("%s = %d things, %v; want ErrDenied", what, n, err)
	}
}

// changes counts the calls that can change something.
func (w *world) changes() int {
	n := 0
	for _, call := range w.Calls() {
		if call.Method != http.MethodGet {
			n++
		}
	}
	return n
}

// A provider that was given another project does not take the servers there for
// its own, though their tags say so, nor removes any.
func TestServersOfAnotherProject(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		op := made(t, w.connect(t), "m-1")
		c := w.connect(t, func(cfg *instances.Config) { cfg.ProjectID = nowhere })
		if list, err := c.List(within(t)); len(list) > 0 {
			t.Errorf("List = %+v, %v", list, err)
		}
		if _, err := c.Get(within(t), op.Ref); err == nil || errors.Is(err, cloud.ErrNotFound) {
			t.Errorf("Get = %v, want an error that does not say that the server is gone", err)
		}
		if err := op.Run(within(t), c.Delete()); err == nil || len(w.Servers()) != 1 {
			t.Errorf("Delete = %v, %d servers are left", err, len(w.Servers()))
		}
	})
}

// Fleets are larger than a page. All of it is read, once each, also when pages
// repeat what was on the page before.
func TestManyPages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 205
		w := newWorld(t)
		ids := w.fill(t, n)
		for _, shift := range []int{0, 1} {
			w.SetPageShift(shift)
			list, err := w.paged(t, 2).List(within(t))
			must(t, err)
			wantListed(t, list, ids)
			if len(list) != n {
				t.Errorf("%d instances, want %d", len(list), n)
			}
		}
		w.SetPageShift(0)
		want := map[string]bool{}
		for i := range n {
			tags := scaleway.Tags{Owner: owner, Machine: fmt.Sprint("m-", i)}.List()
			want[zone+"/"+w.volume(t, zone, tags)] = true
			want[zone+"/"+w.address(t, zone, tags, nil)] = true
		}
		strays, err := w.connect(t).Strays(within(t))
		must(t, err)
		for _, s := range strays {
			if !want[s.Ref] {
				t.Errorf("%s was listed twice, or is none", s.Ref)
			}
			delete(want, s.Ref)
		}
		if len(want) > 0 {
			t.Errorf("%d of %d strays are missing", len(want), 2*n)
		}
	})
}

// Something that was made while the pages were read moves the others, so that
// one of them comes again. It is one stray all the same.
func TestStrayThatComesAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		const head = `[{"id":"33333333-3333-4333-8333-33333333333%d","tags":["bigfleet=scaleway-fr-par-1"],"project":"` + fakecloud.DefaultProjectID +
			`","project_id":"` + fakecloud.DefaultProjectID + `","status":"available"}`
		first, again := fmt.Sprintf(head, 1)+","+fmt.Sprintf(head, 2)[1:]+"]", fmt.Sprintf(head, 2)+"]"
		for route, field := range map[string]string{fakecloud.RouteListBlockVolumes: "volumes", fakecloud.RouteListIPs: "ips"} {
			for page, list := range map[string]string{"1": first, "2": again} {
				w.Inject(fakecloud.Fault{
					Route: route, Times: -1,
					Match: func(r fakecloud.Request) bool { return url.Values(r.Query).Get("page") == page },
					Reply: &fakecloud.Reply{
						Status: http.StatusOK, ContentType: "application/json", Header: http.Header{"X-Total-Count": {"3"}},
						Body: `{"` + field + `":` + list + `,"total_count":3}`,
					},
				})
			}
		}
		strays, err := w.connect(t).Strays(within(t))
		must(t, err)
		kinds := map[string]int{}
		for _, s := range strays {
			kinds[s.Kind]++
		}
		if kinds[cloud.KindVolume] != 2 || kinds[cloud.KindAddress] != 2 {
			t.Errorf("strays %v, want 2 of each", kinds)
		}
		for _, f := range w.Faults() {
			if f.Hits == 0 {
				t.Errorf("a page of %s was not read", f.Route)
			}
		}
	})
}
