package fakecloud

import (
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// The shelf agrees with a plain walk, whatever is added, removed and retagged.
func TestShelfAgreesWithAWalk(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		inv := newInventory()
		var s shelf[*server]
		var model []*server
		tags := rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", "c", "d"}), 0, 4)
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			switch op := rapid.IntRange(0, 3).Draw(t, "op"); {
			case op <= 1 || len(model) == 0:
				x := &server{object: inv.newObject("n", "z", "p", tags.Draw(t, "tags"))}
				s.add(x)
				model = append(model, x)
			case op == 2:
				i := rapid.IntRange(0, len(model)-1).Draw(t, "i")
				s.remove(model[i])
				model = slices.Delete(slices.Clone(model), i, i+1)
			default:
				s.retag(rapid.SampledFrom(model).Draw(t, "x"), tags.Draw(t, "tags"))
			}
			want := tags.Draw(t, "wanted")
			var walk []*server
			for _, x := range model {
				if containsAll(x.tags, want) {
					walk = append(walk, x)
				}
			}
			if got := s.withTags(want); !slices.Equal(got, walk) {
				t.Fatalf("with %v: %d objects, want %d", want, len(got), len(walk))
			}
		}
		for len(model) > 0 {
			s.remove(model[0])
			model = model[1:]
		}
		if len(s.byTag) != 0 || len(s.all) != 0 {
			t.Fatalf("an empty shelf holds %d tags and %d objects", len(s.byTag), len(s.all))
		}
	})
}

// Finding one server among thousands by its tag must not walk them all.
func TestThousandsOfServers(t *testing.T) {
	c := New(Options{Scale: 1})
	defer c.Close()
	const n = 2500 // and as many calls to make them
	for i := range n {
		c.numberedServer(t, i)
	}
	begin := time.Now()
	for i := range n {
		if got := c.direct("GET", serversPath+fmt.Sprintf("?tags=fleet,op=%d", i), "").Header().Get("X-Total-Count"); got != "1" {
			t.Fatalf("op=%d: %s servers", i, got)
		}
	}
	if took := time.Since(begin); took > 30*time.Second {
		t.Errorf("%d lists by tag took %s", n, took)
	}
	if got := len(c.Calls()); got != callsKept {
		t.Errorf("%d calls kept, want %d", got, callsKept)
	}
	calls := c.Calls()
	if first, last := calls[0], calls[callsKept-1]; first.Route != RouteCreateServer || last.Query != fmt.Sprintf("tags=fleet,op=%d", n-1) {
		t.Errorf("kept %+v … %+v, want the newest calls, oldest first", first, last)
	}
}

func (c *Cloud) numberedServer(t *testing.T, i int) {
	t.Helper()
	body := fmt.Sprintf(`{"name":"n%d","commercial_type":"PLAY2-NANO","image":"ubuntu_noble","project":%q,"dynamic_ip_required":false,"tags":["fleet","op=%d"]}`, i, DefaultProjectID, i)
	if w := c.direct("POST", serversPath, body); w.Code != http.StatusCreated {
		t.Fatalf("create: %d %s", w.Code, w.Body)
	}
}
