package instances_test

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/scaleway/scaleway-sdk-go/api/instance/v1"

	"bigfleet-providers/provider/internal/cloud"
	"bigfleet-providers/provider/internal/cloud/scaleway"
	"bigfleet-providers/provider/internal/cloud/scaleway/instances"
	"bigfleet-providers/provider/internal/fakecloud"
	"bigfleet-providers/provider/internal/fakecloud/fakecloudtest"
)

// paged connects with pages of that size.
func (w *world) paged(t *testing.T, size int) *instances.Cloud {
	t.Helper()
	return w.connect(t, func(cfg *instances.Config) { cfg.PageSize = size })
}

// fill makes servers of ours, straight at the API.
func (w *world) fill(t *testing.T, n int) (ids []string) {
	t.Helper()
	api := instance.NewAPI(w.client(t))
	for i := range n {
		resp, err := api.CreateServer(&instance.CreateServerRequest{
			Zone: zone, Name: "node", CommercialType: localType, Image: new("ubuntu_noble"), DynamicIPRequired: new(true),
			Tags: scaleway.Tags{Owner: "scaleway-fr-par-1", Machine: fmt.Sprintf("m-%d", i), Operation: fmt.Sprintf("op-%d", i)}.List(),
		})
		must(t, err)
		ids = append(ids, resp.Server.ID)
	}
	return ids
}

func (w *world) drop(t *testing.T, id string) {
	t.Helper()
	must(t, instance.NewAPI(w.client(t)).DeleteServer(&instance.DeleteServerRequest{Zone: zone, ServerID: id}))
}

// hooked connects with pages of two and runs before whenever one of them is
// about to be read; the looks between pages do not count.
func (w *world) hooked(t *testing.T, before func(page string)) *instances.Cloud {
	t.Helper()
	front := fakecloudtest.Serve(t, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if q := r.URL.Query(); q.Get("per_page") == "2" {
			before(q.Get("page"))
		}
		w.Handler().ServeHTTP(rw, r)
	}))
	behind := world{Cloud: w.Cloud, served: front}
	return behind.paged(t, 2)
}

// once runs f at the first reading of a page.
func once(page string, f func()) func(string) {
	var done sync.Once
	return func(p string) {
		if p == page {
			done.Do(f)
		}
	}
}

func refsOf(list []cloud.Instance) map[string]int {
	refs := map[string]int{}
	for _, in := range list {
		refs[id(in.Ref)]++
	}
	return refs
}

// wantListed checks that what existed all the time was listed, once.
func wantListed(t *testing.T, list []cloud.Instance, ids []string) {
	t.Helper()
	refs := refsOf(list)
	for i, id := range ids {
		if refs[id] == 0 {
			t.Errorf("server %d of %d is missing", i, len(ids))
		}
	}
	if len(refs) != len(list) {
		t.Errorf("%d instances, but %d distinct", len(list), len(refs))
	}
}

func TestListReadsEveryPage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		ids := w.fill(t, 25)
		for _, size := range []int{1, 2, 24, 25, 26, 0} {
			list, err := w.paged(t, size).List(within(t))
			must(t, err)
			if len(list) != len(ids) {
				t.Errorf("pages of %d: %d instances, want %d", size, len(list), len(ids))
			}
			wantListed(t, list, ids)
		}
	})
}

// The API's filters are not relied on.
func TestListFiltersAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		server := func(n int, project, tag string) string {
			return fmt.Sprintf(`{"id":"33333333-3333-4333-8333-33333333333%d","project":%q,"tags":[%q]}`, n, project, tag)
		}
		w.Inject(fakecloud.Fault{Route: fakecloud.RouteListServers, Reply: &fakecloud.Reply{
			Status: http.StatusOK, ContentType: "application/json", Header: http.Header{"X-Total-Count": {"3"}},
			Body: `{"servers":[` + strings.Join([]string{
				server(1, fakecloud.DefaultProjectID, "bigfleet=scaleway-fr-par-1"),
				server(2, fakecloud.DefaultProjectID, "bigfleet=scaleway-fr-par-10"),
				server(3, "44444444-4444-4444-8444-444444444444", "bigfleet=scaleway-fr-par-1"),
			}, ",") + `]}`,
		}})
		list, err := w.connect(t).List(within(t))
		must(t, err)
		if len(list) != 1 || list[0].Ref != "fr-par-1/33333333-3333-4333-8333-333333333331" {
			t.Errorf("List = %+v, want the first alone", list)
		}
	})
}

// A server that goes between two pages moves all that follow. What was there
// before and after must be in the list, whatever came and went meanwhile.
func TestListOfAMovingList(t *testing.T) {
	t.Run("one goes", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			ids := w.fill(t, 9)
			list, err := w.hooked(t, once("3", func() { w.drop(t, ids[0]) })).List(within(t))
			must(t, err)
			wantListed(t, list, ids[1:])
		})
	})
	t.Run("one goes and one comes", func(t *testing.T) { // the total stays the same
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			ids := w.fill(t, 9)
			list, err := w.hooked(t, once("3", func() { w.drop(t, ids[1]); w.fill(t, 1) })).List(within(t))
			must(t, err)
			wantListed(t, list, slices.Delete(ids, 1, 2))
		})
	})
	t.Run("the list ends earlier", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			ids := w.fill(t, 9)
			list, err := w.hooked(t, once("5", func() {
				for _, id := range ids[:5] {
					w.drop(t, id)
				}
			})).List(within(t))
			must(t, err)
			wantListed(t, list, ids[5:])
		})
	})
	t.Run("one goes at every page", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			ids := w.fill(t, 40)
			gone := 0
			list, err := w.hooked(t, func(string) {
				if gone < 20 {
					w.drop(t, ids[gone])
					gone++
				}
			}).List(within(t))
			must(t, err)
			wantListed(t, list, ids[gone:])
		})
	})
	t.Run("never still", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			w.fill(t, 9)
			// The page before the second never ends with what was seen there.
			w.Inject(fakecloud.Fault{
				Route: fakecloud.RouteListServers, Times: -1,
				Match: func(r fakecloud.Request) bool { return url.Values(r.Query).Get("per_page") == "1" },
				Reply: &fakecloud.Reply{
					Status: http.StatusOK, ContentType: "application/json", Header: http.Header{"X-Total-Count": {"9"}},
					Body: `{"servers":[{"id":"33333333-3333-4333-8333-333333333333"}]}`,
				},
			})
			_, err := w.paged(t, 2).List(within(t))
			if err == nil || !strings.Contains(err.Error(), "went away faster") {
				t.Errorf("List = %v, want to give up", err)
			}
		})
	})
}

// Whatever is wrong with one page, a part never passes for the whole.
func TestListIsCompleteOrAnError(t *testing.T) {
	secondPage := func(r fakecloud.Request) bool { return url.Values(r.Query).Get("page") == "2" }
	page := func(total, body string) *fakecloud.Reply {
		return &fakecloud.Reply{
			Status: http.StatusOK, ContentType: "application/json", Body: body,
			Header: http.Header{"X-Total-Count": {total}},
		}
	}
	const one = `{"servers":[{"id":"33333333-3333-4333-8333-333333333333"}]}`
	for name, fault := range map[string]fakecloud.Fault{
		"second page fails":   {Match: secondPage, Reply: fakecloud.Unavailable()},
		"second page hangs":   {Match: secondPage, Hangup: true, Times: -1},
		"second page is 429":  {Match: secondPage, Reply: fakecloud.RateLimited()},
		"second page is 404":  {Match: secondPage, Reply: &fakecloud.Reply{Status: http.StatusNotFound}},
		"first page is empty": {Reply: fakecloud.Empty()},
		"page is null":        {Reply: page("0", `{"servers":null}`)},
		"no total count":      {Reply: &fakecloud.Reply{Status: http.StatusOK, ContentType: "application/json", Body: one}},
		"page is cut short":   {Reply: page("5", one)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.fill(t, 5)
				fault.Route = fakecloud.RouteListServers
				w.Inject(fault)
				if list, err := w.paged(t, 2).List(within(t)); err == nil {
					t.Errorf("List = %d instances and no error", len(list))
				}
			})
		})
	}
}
