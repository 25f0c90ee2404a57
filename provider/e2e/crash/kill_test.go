package crash

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"bigfleet-providers/provider/internal/fakecloud"
)

const (
	// killsEnv asks for a number of kills; without it each moment has one.
	killsEnv   = "BIGFLEET_CRASH_KILLS"
	churnSlots = 8
	// comeWithin is how long a kill waits for the next of its moments.
	comeWithin = 30 * time.Second
	// committed is what the fake cloud needs to carry a call out.
	committed = 10 * time.Millisecond
	// quiesceEvery is how many kills lie between two comparisons with the cloud.
	quiesceEvery = 50
	// scarce is how many of a hundred power-ons find no hardware, while the
	// teardown that follows is waited for.
	scarce = 20
)

// steps are all that the provider logs as begun, by the kind of work.
var steps = map[string][]string{
	"Create":    {"order", "duplicates", "label-volumes", "networks", "user-data", "power-on", "boot", "first-contact", "scrub"},
	"Configure": {"power-on", "boot", "deliver", "tag"},
	"Drain":     {"power-on", "boot", "deliver", "tag"},
	"Delete":    {"inspect", "terminate", "await-gone", "volumes", "addresses"},
	"Discard":   {"inspect", "terminate", "await-gone", "volumes", "addresses"},
}

var stepBegins = regexp.MustCompile(`msg="step begins".* kind=(\S+) .*step=(\S+)`)

// moment is when a provider is killed.
type moment struct {
	// kind and step name a line of the log; or route names a call to the cloud,
	// whose work is done (committed) or not when the provider dies.
	kind, step string
	route      string
	committed  bool
}

func (m moment) String() string {
	switch {
	case m.step != "":
		return m.kind + "/" + m.step
	case m.committed:
		return m.route + ", done"
	default:
		return m.route + ", not done"
	}
}

// changing are the calls by which a provider changes its cloud.
var changing = []string{
	fakecloud.RouteCreateServer, fakecloud.RouteServerAction, fakecloud.RouteUpdateServer, fakecloud.RouteSetUserData,
	fakecloud.RouteDeleteUserData, fakecloud.RouteUpdateBlockVolume, fakecloud.RouteDeleteBlockVolume,
}

func moments() map[moment]bool {
	all := map[moment]bool{}
	for kind, names := range steps {
		for _, step := range names {
			all[moment{kind: kind, step: step}] = true
		}
	}
	for _, route := range changing {
		all[moment{route: route, committed: true}] = true
		all[moment{route: route}] = true
	}
	return all
}

// killer kills one provider at the first of several moments.
type killer struct {
	delay time.Duration // after the moment
	p     *process

	mu     sync.Mutex
	waits  map[moment]bool
	struck chan moment // holds the one that came
}

func (k *killer) strike(m moment) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.waits[m] {
		return false
	}
	k.waits = nil
	k.struck <- m
	delay := k.delay
	if m.committed {
		delay = committed // the call is about to be carried out
	}
	if delay == 0 {
		k.p.signalKill()
		return true
	}
	time.AfterFunc(delay, k.p.signalKill)
	return true
}

// kill waits for one of the moments, kills the provider at it, and returns it.
func (c *churn) kill(p *process, waits map[moment]bool, delay time.Duration) (moment, error) {
	k := &killer{delay: delay, p: p, waits: maps.Clone(waits), struck: make(chan moment, 1)}
	watch := func(line string) {
		if m := stepBegins.FindStringSubmatch(line); m != nil {
			if !slices.Contains(steps[m[1]], m[2]) {
				c.fault(fmt.Errorf("no kill is aimed at step %q of %s", m[2], m[1]))
			}
			k.strike(moment{kind: m[1], step: m[2]})
		}
	}
	c.watch.Store(&watch)
	defer c.watch.Store(nil)
	defer c.hold(k, waits)()
	torn := 0
	for m := range waits {
		if m.kind == "Discard" {
			torn++
		}
	}
	switch torn {
	case 0:
		c.scarce.Store(0)
	case len(waits):
		c.scarce.Store(100)
	default:
		c.scarce.Store(scarce)
	}
	select {
	case m := <-k.struck:
		<-p.done
		return m, nil
	case <-p.done:
		return moment{}, errors.New("the provider ended by itself")
	case err := <-c.broken:
		return moment{}, err
	case <-time.After(comeWithin):
		return moment{}, fmt.Errorf("none of these came within %s: %v", comeWithin, slices.Collect(maps.Keys(waits)))
	}
}

// hold has the cloud's calls among the moments held, with their work done or
// not, until the provider is dead. It returns what ends that.
func (c *churn) hold(k *killer, waits map[moment]bool) func() {
	var ends []func()
	for m := range waits {
		if m.route == "" {
			continue
		}
		ends = append(ends, c.cloud.Inject(fakecloud.Fault{
			Route: m.route, Commit: m.committed, Delay: comeWithin,
			Match: func(fakecloud.Request) bool { return k.strike(m) },
		}))
	}
	return func() {
		for _, end := range ends {
			end()
		}
	}
}

// TestKills kills the provider again and again while machines are walked
// through their lives: once at each moment, and in a longer run at each again,
// a little later, and between them at any time.
func TestKills(t *testing.T) {
	t.Parallel()
	left := moments()
	n := len(left)
	if text := os.Getenv(killsEnv); text != "" {
		var err error
		if n, err = strconv.Atoi(text); err != nil {
			t.Fatalf("%s: %v", killsEnv, err)
		}
	}
	c := newChurn(newWorld(t, churnSlots))
	p := c.run()
	c.begin()
	began := time.Now()
	for i, round := 1, 0; i <= n; i++ {
		if len(left) == 0 {
			left = moments()
			round++
		}
		at := "any time"
		if round > 0 && i%2 == 0 {
			time.Sleep(rand.N(time.Second))
			p.kill()
		} else {
			m, err := c.kill(p, left, time.Duration(rand.N(5*round+1))*time.Millisecond)
			if err != nil {
				t.Fatalf("kill %d: %v\nlog:\n%s", i, err, p.log())
			}
			delete(left, m)
			at = m.String()
		}
		if !p.killed() {
			t.Fatalf("kill %d: the provider ended by itself (%s):\n%s", i, p.cmd.ProcessState, p.log())
		}
		before := p
		p = c.run()
		if err := c.audit(); err != nil {
			t.Fatalf("kill %d, at %s: %v\nlog before:\n%s\nlog after:\n%s", i, at, err, before.log(), p.log())
		}
		if i%quiesceEvery == 0 {
			c.quiesce()
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
	t.Logf("%d kills in %s; transitions that ended meanwhile: %v", n, time.Since(began).Round(time.Second), c.counts)
}
