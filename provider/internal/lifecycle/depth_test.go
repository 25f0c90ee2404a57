package lifecycle_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"bigfleet-providers/provider/internal/cloud"
	"bigfleet-providers/provider/internal/cloud/budget"
	"bigfleet-providers/provider/internal/lifecycle"
	"bigfleet-providers/provider/internal/machine"
)

// limited is a cloud whose steps each send one call through a budget.
type limited struct {
	*scriptedCloud
	client *http.Client
}

type answers struct{}

func (answers) RoundTrip(*http.Request) (*http.Response, error) {
	time.Sleep(200 * time.Millisecond)
	return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}, nil
}

func (c limited) call(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://cloud", nil)
	if err != nil {
		return err
	}
	resp, err := c.client.Do(req)
	if err != nil {
		return err
	}
	return resp.Body.Close()
}

// Create has as many calls as a Create of Instances has before its host calls.
func (c limited) Create() []cloud.Step {
	steps := c.scriptedCloud.Create()
	order, boot := steps[0], steps[1]
	follow := func(name string) cloud.Step {
		return cloud.Step{Name: name, Run: func(ctx context.Context, _ *cloud.Task) error { return c.call(ctx) }}
	}
	return []cloud.Step{
		{Name: order.Name, Run: func(ctx context.Context, t *cloud.Task) error {
			if err := c.call(ctx); err != nil {
				return err
			}
			return order.Run(ctx, t)
		}},
		follow("label"), follow("user-data"), follow("power-on"), boot,
	}
}

func (c limited) Scrub(ctx context.Context, ref string) error {
	if err := c.call(ctx); err != nil {
		return err
	}
	if err := c.call(ctx); err != nil {
		return err
	}
	return c.scriptedCloud.Scrub(ctx, ref)
}

// Of many Creates at once, those that have a server are finished before more is
// ordered: what bills is soon of use.
func TestCreatesGoDepthFirst(t *testing.T) {
	const (
		machines = 500
		rate     = 10
		calls    = 6 // of a Create
		minute   = 60
	)
	synctest.Test(t, func(t *testing.T) {
		r := fleet(t, machines, func(o *lifecycle.Options) {
			transport, err := budget.New(budget.Options{Next: answers{}, Rate: rate, Burst: 20, Reserve: 10 * time.Second, Metrics: prometheus.NewRegistry()})
			if err != nil {
				t.Fatal(err)
			}
			o.Cloud = limited{o.Cloud.(*scriptedCloud), &http.Client{Transport: transport}}
			o.MaxCloudSteps, o.MaxCreates = 64, 256
		}, func(*rig) {})
		synctest.Wait()
		for n := 1; n <= machines; n++ {
			if _, err := r.do(machine.Create, func(q *machine.Request) { q.MachineID = fmt.Sprint("m", n) }); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(minute * time.Second)
		idle, servers := r.states(machines)[machine.Idle], r.cloud.size()
		t.Logf("after a minute %d servers bill, %d machines are IDLE", servers, idle)
		if least := minute * rate / calls * 8 / 10; idle < least {
			t.Errorf("after a minute %d machines are IDLE, want %d", idle, least)
		}
		// Under way is what was ordered within some seconds.
		if servers-idle > 4*rate {
			t.Errorf("after a minute %d servers bill and %d machines are IDLE", servers, idle)
		}
	})
}

// A Create that has not begun cannot be called off: a Delete is out of position
// until the machine is IDLE, and nothing of the Create changes.
func TestDeleteOfAWaitingCreate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := fleet(t, 2, func(o *lifecycle.Options) { o.MaxCreates = 1 }, func(*rig) {})
		synctest.Wait()
		r.hosts.edit(func() { r.hosts.silent = true })
		r.must(machine.Create)
		second := func(q *machine.Request) { q.MachineID = "m2" }
		id, err := r.do(machine.Create, second)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		_, err = r.do(machine.Delete, second)
		if refused, ok := errors.AsType[*machine.Error](err); !ok || refused.Code != machine.Busy {
			t.Errorf("Delete of a Create that waits: %v, want ABORTED", err)
		}
		rec := r.record("m2")
		if rec.State != machine.Creating || rec.Op.ID != id || rec.Op.Step != "" || r.cloud.size() != 1 {
			t.Errorf("m2 is %s at step %q, %d servers", rec.State, rec.Op.Step, r.cloud.size())
		}
		r.hosts.edit(func() { r.hosts.silent = false })
		r.stop()
		r.start()
		time.Sleep(time.Minute)
		if _, err := r.do(machine.Delete, second); err != nil {
			t.Errorf("Delete of the IDLE machine: %v", err)
		}
	})
}
