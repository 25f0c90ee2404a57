package instances_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/scaleway/scaleway-sdk-go/api/instance/v1"

	"bigfleet-providers/provider/internal/cloud"
	"bigfleet-providers/provider/internal/cloud/scaleway"
	"bigfleet-providers/provider/internal/cloud/scaleway/instances"
	"bigfleet-providers/provider/internal/fakecloud"
)

// smallPages stands between the adapter and the fake and cuts every page down.
func smallPages(t *testing.T, w *world, size int, between func(page string)) string {
	t.Helper()
	front := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		if q.Has("per_page") {
			q.Set("per_page", fmt.Sprint(size))
			r.URL.RawQuery = q.Encode()
			if between != nil {
				between(q.Get("page"))
			}
		}
		w.Handler().ServeHTTP(rw, r)
	}))
	t.Cleanup(front.Close)
	return front.URL
}

func (w *world) through(t *testing.T, url string) *instances.Cloud {
	t.Helper()
	behind := world{Cloud: w.Cloud, url: url}
	return behind.connect(t)
}

// fill makes servers of ours, straight at the API.
func (w *world) fill(t *testing.T, n int) []string {
	t.Helper()
	api := instance.NewAPI(w.client(t))
	var ids []string
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

func distinct(list []cloud.Instance) int {
	refs := map[string]bool{}
	for _, in := range list {
		refs[in.Ref] = true
	}
	return len(refs)
}

func TestListReadsEveryPage(t *testing.T) {
	w := newWorld(t)
	w.fill(t, 25)
	for _, size := range []int{1, 2, 24, 25, 26} {
		list, err := w.through(t, smallPages(t, w, size, nil)).List(within(t))
		must(t, err)
		if len(list) != 25 || distinct(list) != 25 {
			t.Errorf("pages of %d: %d instances, %d distinct; want 25", size, len(list), distinct(list))
		}
	}
}

// A server that goes, or comes, between two pages shifts all that follow.
func TestListSurvivesAMovingList(t *testing.T) {
	t.Run("one goes", func(t *testing.T) {
		w := newWorld(t)
		ids := w.fill(t, 9)
		api := instance.NewAPI(w.client(t))
		var done atomic.Bool
		list, err := w.through(t, smallPages(t, w, 2, func(page string) {
			if page == "3" && !done.Swap(true) {
				must(t, api.DeleteServer(&instance.DeleteServerRequest{Zone: zone, ServerID: ids[0]}))
			}
		})).List(within(t))
		must(t, err)
		if len(list) != 8 || distinct(list) != 8 {
			t.Errorf("%d instances, %d distinct; want the 8 that are left", len(list), distinct(list))
		}
	})
	t.Run("one comes", func(t *testing.T) {
		w := newWorld(t)
		w.fill(t, 9)
		var done atomic.Bool
		list, err := w.through(t, smallPages(t, w, 2, func(page string) {
			if page == "3" && !done.Swap(true) {
				w.fill(t, 1)
			}
		})).List(within(t))
		must(t, err)
		if len(list) != 10 || distinct(list) != 10 {
			t.Errorf("%d instances, %d distinct; want 10", len(list), distinct(list))
		}
	})
	t.Run("never still", func(t *testing.T) {
		w := newWorld(t)
		ids := w.fill(t, 30)
		api := instance.NewAPI(w.client(t))
		next := 0
		_, err := w.through(t, smallPages(t, w, 10, func(page string) {
			if page == "2" {
				must(t, api.DeleteServer(&instance.DeleteServerRequest{Zone: zone, ServerID: ids[next]}))
				next++
			}
		})).List(within(t))
		if err == nil || !strings.Contains(err.Error(), "changed while it was read") {
			t.Errorf("List = %v, want to give up", err)
		}
	})
}

// Whatever is wrong with one page, a part never passes for the whole.
func TestListIsCompleteOrAnError(t *testing.T) {
	secondPage := func(r fakecloud.Request) bool { return url.Values(r.Query).Get("page") == "2" }
	const noCount = `{"servers":[{"id":"33333333-3333-4333-8333-333333333333"}]}`
	for name, fault := range map[string]fakecloud.Fault{
		"second page fails":   {Match: secondPage, Reply: fakecloud.Unavailable()},
		"second page hangs":   {Match: secondPage, Hangup: true, Times: -1},
		"second page is 429":  {Match: secondPage, Reply: fakecloud.RateLimited()},
		"second page is 404":  {Match: secondPage, Reply: &fakecloud.Reply{Status: http.StatusNotFound}},
		"first page is empty": {Reply: fakecloud.Empty()},
		"page is null":        {Reply: &fakecloud.Reply{Status: http.StatusOK, ContentType: "application/json", Body: `{"servers":null}`}},
		"no total count":      {Reply: &fakecloud.Reply{Status: http.StatusOK, ContentType: "application/json", Body: noCount}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.fill(t, 5)
			fault.Route = fakecloud.RouteListServers
			w.Inject(fault)
			if list, err := w.through(t, smallPages(t, w, 2, nil)).List(within(t)); err == nil {
				t.Errorf("List = %d instances and no error", len(list))
			}
		})
	}
}
