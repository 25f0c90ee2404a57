package instances_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/scaleway/scaleway-sdk-go/api/instance/v1"
	"golang.org/x/sync/errgroup"

	"bigfleet-providers/provider/internal/cloud"
	"bigfleet-providers/provider/internal/cloud/cloudtest"
	"bigfleet-providers/provider/internal/cloud/scaleway"
	"bigfleet-providers/provider/internal/cloud/scaleway/instances"
	"bigfleet-providers/provider/internal/fakecloud"
)

func operation(machineID string) *cloudtest.Operation {
	return &cloudtest.Operation{Spec: cloud.Spec{
		MachineID: machineID, OperationID: "op-of-" + machineID, Type: blockType, Zone: zone,
		UserData: func() ([]byte, error) { return []byte("#cloud-config\n"), nil },
	}}
}

func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// The server was made although the answer says otherwise, and the list shows it
// late: still one POST.
func TestUnansweredOrderIsNotRepeated(t *testing.T) {
	hangup := fakecloud.Fault{Hangup: true}
	for name, fault := range map[string]fakecloud.Fault{
		"503":        {Reply: fakecloud.Unavailable()},
		"502":        {Reply: fakecloud.BadGateway()},
		"504":        {Reply: &fakecloud.Reply{Status: http.StatusGatewayTimeout}, Delay: 5 * time.Millisecond},
		"hang-up":    hangup,
		"empty body": {Reply: fakecloud.Empty()},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.SetLag(40*time.Millisecond, 30*time.Millisecond)
				fault.Route, fault.Commit = fakecloud.RouteCreateServer, true
				w.Inject(fault)
				c := w.connect(t, func(cfg *instances.Config) { cfg.Timing.Settle = 300 * time.Millisecond })
				must(t, operation("m-1").Run(within(t), c.Create()))
				if posts := w.Requests(fakecloud.RouteCreateServer); posts != 1 || len(w.Servers()) != 1 {
					t.Errorf("%d POSTs made %d servers, want one of each", posts, len(w.Servers()))
				}
			})
		})
	}
}

// The order never arrived: it is sent again, but only after the settle window.
func TestLostOrderIsRepeatedAfterTheWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const settle = 80 * time.Millisecond
		w := newWorld(t)
		// The window counts from the end of the call, not from its beginning.
		w.Inject(fakecloud.Fault{Route: fakecloud.RouteCreateServer, Reply: fakecloud.Unavailable(), Delay: settle - 10*time.Millisecond})
		c := w.connect(t, func(cfg *instances.Config) { cfg.Timing.Settle = settle })
		must(t, operation("m-1").Run(within(t), c.Create()))

		var posts []time.Time
		for _, call := range w.Calls() {
			if call.Route == fakecloud.RouteCreateServer {
				posts = append(posts, call.At)
			}
		}
		if len(posts) != 2 || posts[1].Sub(posts[0]) < settle {
			t.Errorf("POSTs at %v, want two at least %v apart", posts, settle)
		}
		if len(w.Servers()) != 1 {
			t.Errorf("%d servers", len(w.Servers()))
		}
	})
}

// A refusal is known not to have made a server: no window.
func TestRefusedOrderIsRepeatedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.Inject(fakecloud.Fault{Route: fakecloud.RouteCreateServer, Times: 2, Reply: fakecloud.RateLimited()})
		c := w.connect(t, func(cfg *instances.Config) { cfg.Timing.Settle = time.Hour })
		must(t, operation("m-1").Run(within(t), c.Create()))
		if posts := w.Requests(fakecloud.RouteCreateServer); posts != 3 || len(w.Servers()) != 1 {
			t.Errorf("%d POSTs made %d servers, want 3 and 1", posts, len(w.Servers()))
		}
	})
}

// A window that was opened, or had passed, in a process that died proves
// nothing: it may have sent one more order since. Each process waits anew.
func TestWindowOfADeadProcessDoesNotCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		slow := func(cfg *instances.Config) { cfg.Timing.Settle = time.Hour }
		w.Inject(fakecloud.Fault{Route: fakecloud.RouteCreateServer, Reply: fakecloud.RateLimited()})

		op := operation("m-1")
		first := w.connect(t, slow).Create()
		task := &cloud.Task{Spec: op.Spec}
		if err := first[0].Run(within(t), task); !errors.Is(err, cloud.ErrThrottled) {
			t.Fatalf("order = %v, want ErrThrottled", err)
		}
		task.Rerun = true
		second := w.connect(t, slow).Create()
		for range 3 {
			var again *cloud.AgainError
			if err := second[0].Run(within(t), task); !errors.As(err, &again) {
				t.Fatalf("order in a new process = %v, want to wait", err)
			}
		}
		if posts := w.Requests(fakecloud.RouteCreateServer); posts != 1 {
			t.Errorf("%d POSTs, want 1", posts)
		}
	})
}

// Cancelling an order in flight leaves nothing unowned: a later run finds it.
func TestCancelledOrderIsFound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.Inject(fakecloud.Fault{Route: fakecloud.RouteCreateServer, Commit: true, Delay: time.Minute})
		c := w.connect(t)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go func() {
			for len(w.Servers()) == 0 && ctx.Err() == nil {
				time.Sleep(time.Millisecond)
			}
			cancel()
		}()
		op := operation("m-1")
		if err := op.Run(ctx, c.Create()); !errors.Is(err, context.Canceled) {
			t.Fatalf("a cancelled Create = %v", err)
		}
		must(t, op.Run(within(t), c.Create()))
		if len(w.Servers()) != 1 {
			t.Errorf("%d servers, want 1", len(w.Servers()))
		}
	})
}

// Reads may lag behind the order: not found is not gone yet.
func TestLaggingReads(t *testing.T) {
	const lag = 100 * time.Millisecond
	slow := func(cfg *instances.Config) { cfg.Timing.Settle = time.Second }
	t.Run("create", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			w.SetLag(lag, lag)
			must(t, operation("m-1").Run(within(t), w.connect(t, slow).Create()))
		})
	})
	t.Run("discard", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			w.SetLag(lag, lag)
			c := w.connect(t, slow)
			op := operation("m-1")
			must(t, op.RunTo(within(t), c.Create(), 1))
			must(t, op.Teardown().Run(within(t), c.Discard()))
			if left := w.remains(); len(left) > 0 {
				t.Errorf("left behind: %q", left)
			}
		})
	})
}

// Two servers carry one operation: the older is kept, the other goes, with its
// volume.
func TestDuplicateIsRemoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		api := instance.NewAPI(w.client(t))
		op := operation("m-1")
		for range 2 {
			time.Sleep(time.Millisecond)
			_, err := api.CreateServer(&instance.CreateServerRequest{
				Zone: zone, Name: "twin", CommercialType: blockType, Image: new("ubuntu_noble"), DynamicIPRequired: new(true),
				Tags: scaleway.Tags{Owner: "scaleway-fr-par-1", Machine: "m-1", Operation: op.Spec.OperationID}.List(),
			})
			must(t, err)
		}
		oldest := w.Servers()[0].ID
		c := w.connect(t)
		steps := c.Create()
		op.Died(steps, 0)
		must(t, op.Run(within(t), steps))
		if servers := w.Servers(); len(servers) != 1 || servers[0].ID != oldest || servers[0].State != fakecloud.StateRunning || len(w.Volumes()) != 1 {
			t.Errorf("servers %+v, %d volumes; want the oldest, %s, running with its volume", servers, len(w.Volumes()), oldest)
		}
	})
}

// What the cloud refuses ends as the documented error, and Discard leaves
// nothing.
func TestRefusals(t *testing.T) {
	type setup func(*world) func(*instances.Config)
	inject := func(f fakecloud.Fault) setup {
		return func(w *world) func(*instances.Config) {
			f.Times = -1
			w.Inject(f)
			return func(*instances.Config) {}
		}
	}
	onPowerOn := func(f fakecloud.Fault) fakecloud.Fault {
		f.Route = fakecloud.RouteServerAction
		f.Match = func(r fakecloud.Request) bool { return r.Action == "poweron" }
		return f
	}
	image := func(label string) setup {
		return func(*world) func(*instances.Config) { return func(cfg *instances.Config) { cfg.Image = label } }
	}
	for name, tc := range map[string]struct {
		setup setup
		typ   string
		want  error
		words string
		posts int
	}{
		"out of stock": {func(w *world) func(*instances.Config) {
			w.SetStock(zone, blockType, fakecloud.Shortage)
			return func(*instances.Config) {}
		}, blockType, cloud.ErrNoCapacity, blockType, 1},
		"falls back to stopped": {inject(onPowerOn(fakecloud.Fault{Outcome: fakecloud.OutcomeFallBack})), blockType, cloud.ErrNoCapacity, "fell back to stopped", 1},
		"quota of the cloud": {func(w *world) func(*instances.Config) {
			w.SetQuota(blockType, 0)
			return func(*instances.Config) {}
		}, blockType, cloud.ErrQuota, "PLAY2_NANO", 1},
		"quota, legacy body":         {inject(fakecloud.Fault{Route: fakecloud.RouteCreateServer, Reply: fakecloud.QuotaLegacy()}), blockType, cloud.ErrQuota, "Quota exceeded", 1},
		"quota, standard body":       {inject(fakecloud.Fault{Route: fakecloud.RouteCreateServer, Reply: fakecloud.QuotaStandard("servers")}), blockType, cloud.ErrQuota, "servers (quota 10, in use 10)", 1},
		"quota, flat body":           {inject(fakecloud.Fault{Route: fakecloud.RouteCreateServer, Reply: fakecloud.QuotaFlat("cp_servers")}), blockType, cloud.ErrQuota, "cp_servers (quota 0, in use 0)", 1},
		"address limit at the order": {inject(fakecloud.Fault{Route: fakecloud.RouteCreateServer, Reply: fakecloud.AddressLimit()}), blockType, cloud.ErrLimit, "Primary IP limit reached", 1},
		"address limit at power-on":  {inject(onPowerOn(fakecloud.Fault{Reply: fakecloud.AddressLimit()})), blockType, cloud.ErrLimit, "Primary IP limit reached", 1},
		"no right to order":          {inject(fakecloud.Fault{Route: fakecloud.RouteCreateServer, Reply: fakecloud.Forbidden("project", "read")}), blockType, cloud.ErrDenied, "read project", 1},
		"no right to label":          {inject(fakecloud.Fault{Route: fakecloud.RouteUpdateBlockVolume, Reply: fakecloud.Forbidden("volume", "write")}), blockType, cloud.ErrDenied, "tag volume", 1},
		"misspelt type":              {image("ubuntu_noble"), "PLAY2-NANNO", cloud.ErrInvalid, `type "PLAY2-NANNO"`, 0},
		"GPU on a plain image":       {image("ubuntu_noble"), "L4-1-24G", cloud.ErrInvalid, "_gpu_os_", 0},
		"unknown label":              {image("ubuntu_noblesse"), blockType, cloud.ErrInvalid, "check --image", 0},
		"unknown image":              {image("99999999-9999-4999-8999-999999999999"), blockType, cloud.ErrInvalid, "99999999-9999", 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				c := w.connect(t, tc.setup(w))
				op := operation("m-1")
				op.Spec.Type = tc.typ
				err := op.Run(within(t), c.Create())
				if !errors.Is(err, tc.want) || !strings.Contains(err.Error(), tc.words) {
					t.Errorf("Create = %v, want %v with %q", err, tc.want, tc.words)
				}
				if posts := w.Requests(fakecloud.RouteCreateServer); posts != tc.posts {
					t.Errorf("%d POSTs, want %d", posts, tc.posts)
				}
				must(t, op.Teardown().Run(within(t), c.Discard()))
				if left := w.remains(); len(left) > 0 {
					t.Errorf("left behind: %q", left)
				}
			})
		})
	}
}

func TestLockedServerFailsTheCreate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		c := w.connect(t)
		op := operation("m-1")
		steps := c.Create()
		must(t, op.RunTo(within(t), steps, len(steps)-1))
		w.force(t, op.Ref, fakecloud.StateLocked, "")
		if err := op.Run(within(t), steps); !errors.Is(err, cloud.ErrDenied) || !strings.Contains(err.Error(), "locked") {
			t.Errorf("boot of a locked server = %v", err)
		}
	})
}

func TestUserDataLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		c := w.connect(t)
		for _, size := range []int{instances.MaxUserDataBytes, instances.MaxUserDataBytes + 1} {
			op := operation("m-" + string(rune('a'+size%2)))
			op.Spec.UserData = func() ([]byte, error) { return make([]byte, size), nil }
			err := op.Run(within(t), c.Create())
			if want := size > instances.MaxUserDataBytes; errors.Is(err, cloud.ErrInvalid) != want || (err != nil) != want {
				t.Errorf("%d bytes of user data: %v", size, err)
			}
		}
	})
}

// Fifty creates must not eat the API's budget. Delays, polls and types are in
// the real API's proportions, at a hundredth.
func TestCreateIsFrugal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// Without a look at the booting server, which first contact saves, 6.
		const machines, each, shared = 50, 7, 2
		w := newWorldAt(t, 0.01)
		c := w.connect(t, func(cfg *instances.Config) { cfg.Timing.Poll = 50 * time.Millisecond })
		var work errgroup.Group
		for n := range machines {
			work.Go(func() error {
				op := operation(fmt.Sprint("m-", n))
				if err := op.Run(within(t), c.Create()); err != nil {
					return err
				}
				return c.Scrub(within(t), op.Ref) // ends the use of the API by a Create
			})
		}
		must(t, work.Wait())
		calls := w.Requests("")
		if calls > machines*each+shared {
			t.Errorf("%d creates took %d calls, want at most %d each", machines, calls, each)
		}
		counts := map[string]int{}
		for _, call := range w.Calls() {
			counts[call.Route]++
		}
		t.Logf("%.1f calls each: %v", float64(calls)/machines, counts)
	})
}

// The name and the tags are what an operator sees in the console.
func TestOrderGolden(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		c := w.connect(t, func(cfg *instances.Config) { cfg.NoPublicIP = true })
		op := operation("m-1")
		var body string
		w.Inject(fakecloud.Fault{Route: fakecloud.RouteCreateServer, Match: func(r fakecloud.Request) bool { body = string(r.Body); return false }})
		must(t, op.RunTo(within(t), c.Create(), 3))
		s := w.Servers()[0]
		want := []string{"bigfleet=scaleway-fr-par-1", "bigfleet-machine=m-1", "bigfleet-operation=op-of-m-1"}
		if diff := cmp.Diff(append(slices.Clone(want), "bigfleet-life=op-of-m-1"), s.Tags); diff != "" {
			t.Errorf("tags of the server (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff(want, w.Volumes()[0].Tags); diff != "" {
			t.Errorf("tags of its volume (-want +got):\n%s", diff)
		}
		if s.Name != scaleway.ServerName("m-1", "op-of-m-1") || !strings.HasPrefix(s.Name, "m-1-") {
			t.Errorf("name %q", s.Name)
		}
		if !strings.Contains(body, `"dynamic_ip_required":false`) || !strings.Contains(body, `"project":"`+fakecloud.DefaultProjectID+`"`) {
			t.Errorf("order %s", body)
		}
		if got, want := c.ProviderID("fr-par-1/0a1b"), "scaleway://instance/fr-par-1/0a1b"; got != want {
			t.Errorf("provider id %q, want %q", got, want)
		}
	})
}

func TestConfigReportsEveryFault(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, err := instances.New(instances.Config{Zone: "paris", ProjectID: "mine"})
		if err == nil {
			t.Fatal("an empty configuration was accepted")
		}
		for _, want := range []string{"client", `zone "paris"`, `project id "mine"`, "--provider", "--image"} {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("the error lacks %q: %v", want, err)
			}
		}
		// A zone that the SDK does not know yet is a zone.
		if _, err := instances.New(instances.Config{
			Client: newWorld(t).client(t), Zone: "it-mil-9", ProjectID: fakecloud.DefaultProjectID, Provider: "p", Image: "i",
		}); err != nil {
			t.Error(err)
		}
	})
}
