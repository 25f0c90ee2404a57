package crash

import (
	"fmt"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"bigfleet-providers/provider/internal/fakecloud"
)

const (
	// killsEnv asks for a longer run than the default.
	killsEnv     = "BIGFLEET_CRASH_KILLS"
	defaultKills = 48
	churnSlots   = 8
	// aimWithin is how long a kill waits for its moment, aims how often it is
	// tried; some moments need a machine that fails.
	aimWithin = 8 * time.Second
	aims      = 3
	// quiesceEvery is how many kills lie between two comparisons with the cloud.
	quiesceEvery = 50
	// scarcity is how many of a hundred power-ons find no hardware.
	scarcity = 8
)

// steps are all that the provider logs as begun, by the kind of work.
var steps = map[string][]string{
	"Create":    {"order", "duplicates", "label-volumes", "user-data", "power-on", "boot", "first-contact", "scrub"},
	"Configure": {"power-on", "boot", "deliver", "tag"},
	"Drain":     {"power-on", "boot", "deliver", "tag"},
	"Delete":    {"inspect", "terminate", "await-gone", "volumes", "addresses"},
	"Discard":   {"inspect", "terminate", "await-gone", "volumes", "addresses"},
}

var stepBegins = regexp.MustCompile(`msg="step begins".* kind=(\S+) .*step=(\S+)`)

// aim is the moment of one kill.
type aim struct {
	name string
	// kind and step name a line of the log; or route a call to the cloud, whose
	// work was done (committed) or not when the provider dies; or neither, for
	// any moment.
	kind, step string
	route      string
	committed  bool
	delay      time.Duration
}

// changing are the calls by which a provider changes its cloud.
var changing = []string{
	fakecloud.RouteCreateServer, fakecloud.RouteServerAction, fakecloud.RouteUpdateServer, fakecloud.RouteSetUserData,
	fakecloud.RouteDeleteUserData, fakecloud.RouteUpdateBlockVolume, fakecloud.RouteDeleteBlockVolume,
}

// moments are n moments to kill at: each step, each call that changes the cloud
// before and after its work, and as many at random; then all again, each a
// little later.
func moments(n int) []aim {
	var all []aim
	for round := 0; len(all) < n; round++ {
		var next []aim
		for kind, names := range steps {
			for _, step := range names {
				next = append(next, aim{name: kind + "/" + step, kind: kind, step: step, delay: time.Duration(rand.N(round*3+1)) * time.Millisecond})
			}
		}
		for _, route := range changing {
			for _, committed := range []bool{true, false} {
				next = append(next, aim{name: fmt.Sprintf("%s, committed %v", route, committed), route: route, committed: committed})
			}
		}
		slices.SortFunc(next, func(a, b aim) int { return rand.IntN(3) - 1 })
		if round > 0 {
			for range next {
				next = append(next, aim{name: "any", delay: rand.N(time.Second)})
			}
		}
		all = append(all, next...)
	}
	return all[:n]
}

// kill waits for the moment and kills the provider. It reports false when the
// moment did not come.
func (a aim) kill(c *churn, p *process) bool {
	struck := make(chan struct{})
	var once atomic.Bool
	strike := func() {
		if once.CompareAndSwap(false, true) {
			close(struck)
			go func() {
				time.Sleep(a.delay)
				p.signalKill()
			}()
		}
	}
	c.scarce.Store(scarcity)
	if a.kind == "Discard" {
		c.scarce.Store(100)
	}
	defer c.scarce.Store(scarcity)
	switch {
	case a.step != "":
		watch := func(line string) {
			if m := stepBegins.FindStringSubmatch(line); m != nil && m[1] == a.kind && m[2] == a.step {
				strike()
			}
		}
		c.watch.Store(&watch)
		defer c.watch.Store(nil)
	case a.route != "":
		// The call is held, with its work done or not, until the provider is dead.
		a.delay = 5 * time.Millisecond
		defer c.cloud.Inject(fakecloud.Fault{
			Route: a.route, Commit: a.committed, Delay: aimWithin,
			Match: func(fakecloud.Request) bool { strike(); return true },
		})()
	default:
		strike()
	}
	select {
	case <-struck:
		<-p.done
		return true
	case <-p.done:
		return true // by itself, which the caller finds out
	case <-time.After(aimWithin):
		return false
	}
}

// TestKills kills the provider again and again while machines are walked
// through their lives.
func TestKills(t *testing.T) {
	n := defaultKills
	if text := os.Getenv(killsEnv); text != "" {
		var err error
		if n, err = strconv.Atoi(text); err != nil {
			t.Fatalf("%s: %v", killsEnv, err)
		}
	}
	w := newWorld(t, churnSlots)
	c := newChurn(w)
	p := w.run()
	c.begin()
	began := time.Now()
	kills, missed := 0, 0
	for _, a := range moments(n) {
		hit := false
		for range aims {
			if hit = a.kill(c, p); hit {
				break
			}
		}
		if !hit {
			missed++
			t.Logf("%s: the moment did not come", a.name)
			continue
		}
		if !p.killed() {
			t.Fatalf("the provider ended by itself (%s):\n%s", p.cmd.ProcessState, p.log())
		}
		kills++
		before := p
		p = w.run()
		if err := c.audit(); err != nil {
			t.Fatalf("after kill %d, at %s:\n%v\nlog before:\n%s\nlog after:\n%s", kills, a.name, err, before.log(), p.log())
		}
		select {
		case err := <-c.broken:
			t.Fatalf("after kill %d, at %s:\n%v\nlog:\n%s", kills, a.name, err, p.log())
		default:
		}
		if kills%quiesceEvery == 0 {
			c.quiesce()
		}
		if t.Failed() {
			return
		}
	}
	c.scarce.Store(0)
	c.end()
	select {
	case err := <-c.broken:
		t.Fatalf("%v\nlog:\n%s", err, p.log())
	default:
	}
	c.quiesce()
	if missed > n/10 {
		t.Errorf("%d of %d moments did not come", missed, n)
	}
	t.Logf("%d kills in %s; transitions that ended meanwhile: %v", kills, time.Since(began).Round(time.Second), c.counts)
}
