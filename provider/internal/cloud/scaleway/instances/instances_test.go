package instances_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/scaleway/scaleway-sdk-go/api/instance/v1"
	"github.com/scaleway/scaleway-sdk-go/scw"

	"bigfleet-providers/provider/internal/cloud"
	"bigfleet-providers/provider/internal/cloud/cloudtest"
	"bigfleet-providers/provider/internal/cloud/scaleway/instances"
	"bigfleet-providers/provider/internal/fakecloud"
	"bigfleet-providers/provider/internal/fakecloud/fakecloudtest"
)

const (
	zone      = "fr-par-1"
	blockType = "PLAY2-NANO" // boots from a block volume
	localType = "DEV1-S"     // boots from a local one
)

// world is a fake cloud behind HTTP.
type world struct {
	*fakecloud.Cloud
	served *fakecloudtest.Server
}

func newWorld(t *testing.T) *world {
	t.Helper()
	return newWorldAt(t, 0.001)
}

// newWorldAt is newWorld with the real delays scaled otherwise.
func newWorldAt(t *testing.T, scale float64) *world {
	t.Helper()
	w := &world{Cloud: fakecloud.New(fakecloud.Options{Scale: scale})}
	t.Cleanup(w.Close)
	w.served = fakecloudtest.Serve(t, w.Handler())
	return w
}

func (w *world) client(t *testing.T) *scw.Client {
	t.Helper()
	return w.served.Client(t, zone, nil)
}

// connect returns a new process' adapter; adjust may change its configuration.
func (w *world) connect(t *testing.T, adjust ...func(*instances.Config)) *instances.Cloud {
	t.Helper()
	cfg := instances.Config{
		Client:    w.client(t),
		Zone:      zone,
		ProjectID: fakecloud.DefaultProjectID,
		Provider:  "scaleway-fr-par-1",
		Image:     "ubuntu_noble",
		Timing:    instances.Timing{Poll: 2 * time.Millisecond, Settle: 60 * time.Millisecond, Stuck: 150 * time.Millisecond},
	}
	for _, f := range adjust {
		f(&cfg)
	}
	c, err := instances.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func id(ref string) string { return strings.TrimPrefix(ref, zone+"/") }

func (w *world) server(ref string) (fakecloud.ServerInfo, bool) {
	for _, s := range w.Servers() {
		if s.ID == id(ref) {
			return s, true
		}
	}
	return fakecloud.ServerInfo{}, false
}

// remains lists servers and whatever bills without one.
func (w *world) remains() []string {
	var list []string
	for _, s := range w.Servers() {
		list = append(list, fmt.Sprintf("server %s (%s)", s.ID, s.State))
	}
	for _, v := range w.Volumes() {
		list = append(list, fmt.Sprintf("volume %s %s", v.Type, v.ID))
	}
	for _, l := range w.Leaks() {
		if l.Kind != "volume" {
			list = append(list, fmt.Sprintf("%s %s", l.Kind, l.ID))
		}
	}
	return list
}

func (w *world) await(t *testing.T, ref, state string) {
	t.Helper()
	waitFor(t, "server "+state, func() bool {
		s, ok := w.server(ref)
		return ok && s.State == state
	})
}

func waitFor(t *testing.T, what string, done func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); !done(); {
		if time.Now().After(end) {
			t.Fatalf("waited in vain for: %s", what)
		}
		time.Sleep(time.Millisecond)
	}
}

// action has the console do something to a server.
func (w *world) action(t *testing.T, ref string, action instance.ServerAction) {
	t.Helper()
	_, err := instance.NewAPI(w.client(t)).ServerAction(&instance.ServerActionRequest{Zone: zone, ServerID: id(ref), Action: action})
	if err != nil {
		t.Fatal(err)
	}
}

func (w *world) force(t *testing.T, ref, state, detail string) {
	t.Helper()
	if err := w.ForceState(id(ref), state, detail); err != nil {
		t.Fatal(err)
	}
}

func (w *world) protect(t *testing.T, ref string) {
	t.Helper()
	_, err := instance.NewAPI(w.client(t)).UpdateServer(&instance.UpdateServerRequest{Zone: zone, ServerID: id(ref), Protected: new(true)})
	if err != nil {
		t.Fatal(err)
	}
}

func (w *world) contract(commercialType string) *cloudtest.World {
	return &cloudtest.World{
		Zone:    zone,
		Type:    commercialType,
		Connect: func(t *testing.T) cloud.Cloud { t.Helper(); return w.connect(t) },
		Servers: func() []string {
			var refs []string
			for _, s := range w.Servers() {
				refs = append(refs, s.Zone+"/"+s.ID)
			}
			return refs
		},
		Remains: w.remains,
		UserData: func(ref string) (now, first []byte) {
			s, _ := w.server(ref)
			return s.UserData["cloud-init"], s.FirstBoot
		},
		Stop: func(t *testing.T, ref string) {
			t.Helper()
			w.action(t, ref, instance.ServerActionPoweroff)
			w.await(t, ref, fakecloud.StateStopped)
		},
		Remove: func(t *testing.T, ref string) {
			t.Helper()
			w.action(t, ref, instance.ServerActionTerminate)
			waitFor(t, "server gone", func() bool { _, ok := w.server(ref); return !ok })
		},
		Stranger:   w.stranger,
		LoseAnswer: func(n int) func() bool { return fakecloudtest.LoseAnswer(w.Cloud, n) },
		States: map[string]func(*testing.T, string){
			"running": func(*testing.T, string) {},
			"stopped": func(t *testing.T, ref string) {
				w.action(t, ref, instance.ServerActionPoweroff)
				w.await(t, ref, fakecloud.StateStopped)
			},
			"stopping": func(t *testing.T, ref string) { w.action(t, ref, instance.ServerActionPoweroff) },
			"starting": func(t *testing.T, ref string) {
				w.action(t, ref, instance.ServerActionPoweroff)
				w.await(t, ref, fakecloud.StateStopped)
				w.action(t, ref, instance.ServerActionPoweron)
			},
			"rebooting": func(t *testing.T, ref string) { w.action(t, ref, instance.ServerActionReboot) },
			"terminating": func(t *testing.T, ref string) {
				w.action(t, ref, instance.ServerActionTerminate)
			},
			"stopped in place": func(_ *testing.T, ref string) { w.GuestShutdown(id(ref)) },
			"protected":        w.protect,
			"protected, stopped": func(t *testing.T, ref string) {
				w.action(t, ref, instance.ServerActionPoweroff)
				w.await(t, ref, fakecloud.StateStopped)
				w.protect(t, ref)
			},
			"rebooting for ever": func(t *testing.T, ref string) { w.force(t, ref, fakecloud.StateStarting, "rebooting") },
			"locked, then freed": func(t *testing.T, ref string) {
				w.force(t, ref, fakecloud.StateLocked, "")
				freed := time.AfterFunc(50*time.Millisecond, func() {
					if err := w.ForceState(id(ref), fakecloud.StateRunning, ""); err != nil {
						t.Error(err)
					}
				})
				t.Cleanup(func() { freed.Stop() })
			},
			"refuses terminate": func(_ *testing.T, _ string) {
				w.Inject(fakecloud.Fault{
					Route: fakecloud.RouteServerAction,
					Match: func(r fakecloud.Request) bool { return r.Action == "terminate" },
					Times: -1,
					Reply: &fakecloud.Reply{
						Status: http.StatusBadRequest, ContentType: "application/json",
						Body: `{"type":"invalid_request_error","message":"server cannot be terminated"}`,
					},
				})
			},
			"falls back from terminate": func(t *testing.T, ref string) {
				w.action(t, ref, instance.ServerActionTerminate)
				w.force(t, ref, fakecloud.StateStopped, "")
			},
		},
	}
}

// stranger makes servers that lack our tags in one way or another.
func (w *world) stranger(t *testing.T, n int) {
	t.Helper()
	api := instance.NewAPI(w.client(t))
	for i := range n {
		tags := [][]string{{"bigfleet=another-provider"}, nil, {"bigfleet-machine=m-1", "scaleway-fr-par-1"}}[i%3]
		_, err := api.CreateServer(&instance.CreateServerRequest{
			Zone: zone, Name: "stranger", CommercialType: blockType, Image: new("ubuntu_noble"), Tags: tags,
			DynamicIPRequired: new(true),
		}, scw.WithContext(context.Background()))
		if err != nil {
			t.Fatal(err)
		}
	}
}

func TestContract(t *testing.T) {
	for _, typ := range []string{blockType, localType} {
		t.Run(typ, func(t *testing.T) {
			cloudtest.Run(t, func(t *testing.T) *cloudtest.World { return newWorld(t).contract(typ) })
		})
	}
	t.Run("options", func(t *testing.T) {
		cloudtest.Run(t, func(t *testing.T) *cloudtest.World {
			w := newWorld(t)
			c := w.contract(blockType)
			c.Options = w.everyOption(t).Encode()
			return c
		})
	})
}
