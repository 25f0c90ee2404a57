package e2e

import (
	"context"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// flood measures a host's polls while another one, and strangers, send all that
// they can.
func (a *target) flood(t *testing.T) {
	victim, attacker := a.ids[4], a.ids[5]
	client := a.ca.trusting(0)
	defer client.CloseIdleConnections()
	polls := func(n int) (took []time.Duration) {
		for range n {
			time.Sleep(250 * time.Millisecond) // within its rate
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+a.addr+"/v1/command?machine_id="+victim, nil)
			if err != nil {
				t.Fatal(err)
			}
			req.Header = a.bearer(attackSecret, victim)
			began := time.Now()
			resp, err := client.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			took = append(took, time.Since(began))
			if resp.StatusCode != http.StatusNoContent {
				t.Errorf("the neighbour's poll got %d", resp.StatusCode)
			}
		}
		slices.Sort(took)
		return took
	}
	quiet := polls(12)
	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	counts := make([]map[int]int, 8)
	for i := range counts {
		counts[i] = map[int]int{}
		wg.Go(func() {
			own := a.ca.trusting(0)
			defer own.CloseIdleConnections()
			for ctx.Err() == nil {
				req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+a.addr+"/v1/command?machine_id="+attacker+"&wait=60", nil)
				if err != nil {
					return
				}
				if i%4 != 0 { // the others have no token: a handshake for each request
					req.Header = a.bearer(attackSecret, attacker)
				}
				short, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
				resp, err := own.Do(req.WithContext(short))
				if err == nil {
					resp.Body.Close()
					counts[i][resp.StatusCode]++
				}
				cancel()
			}
		})
	}
	flooded := polls(12)
	stop()
	wg.Wait()
	all := map[int]int{}
	for _, c := range counts {
		for code, n := range c {
			all[code] += n
		}
	}
	t.Logf("the neighbour's polls took %s (median) and %s (longest), in the flood %s and %s; the flood got %v",
		quiet[len(quiet)/2], quiet[len(quiet)-1], flooded[len(flooded)/2], flooded[len(flooded)-1], all)
	if all[http.StatusTooManyRequests] < 10 || all[http.StatusUnauthorized] < 10 {
		t.Errorf("the flood got %v: it was none", all)
	}
	// The flood costs processor, which both ends of this test share; what must not
	// be is a queue behind it.
	if longest := flooded[len(flooded)-1]; longest > 5*time.Second {
		t.Errorf("a neighbour's poll took %s during the flood", longest)
	}
}

// timing compares how long the refusals of an unknown machine, of one without a host
// and of a wrong token take.
func (a *target) timing(t *testing.T) {
	sample := func(id, bearer string) time.Duration {
		c := a.conn(t) // with its handshake done: a refusal ends the connection
		defer c.Close()
		request := "GET /v1/command?machine_id=" + id + " HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer " + bearer + "\r\n\r\n"
		began := time.Now()
		if _, err := io.WriteString(c, request); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Read(make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
		return time.Since(began)
	}
	wrong := a.token("another secret of enough bytes to do", a.ids[0])
	unknown := strings.Repeat("x", len(a.ids[0]))
	classes := []struct{ id, bearer string }{{unknown, a.token(attackSecret, unknown)}, {a.ids[0], wrong}, {a.ids[9], plainToken(attackSecret, a.ids[9])}}
	took := make([][]time.Duration, len(classes))
	for range 400 {
		// Interleaved, in random order: what else the machine does meets both alike.
		for _, i := range rand.Perm(len(classes)) {
			took[i] = append(took[i], sample(classes[i].id, classes[i].bearer))
		}
	}
	for i, what := range []string{"an unknown machine", "", "one without a host"} {
		share := longer(took[i], took[1])
		t.Logf("%s takes longer than a wrong token in %.1f %% of pairs", what, 100*share)
		if what != "" && !alike(share) {
			t.Errorf("%s takes longer than a wrong token in %.1f %% of pairs: the two can be told apart", what, 100*share)
		}
	}
	// The same samples, one of them slower by a quarter of its time, are not alike:
	// the test would have seen it.
	slower := slices.Clone(took[1])
	for i := range slower {
		slower[i] += slower[i] / 4
	}
	if control := longer(slower, took[0]); alike(control) {
		t.Logf("this machine is too busy to tell a quarter more: %.1f %%", 100*control)
	}
}

// longer is the share of pairs in which one of a is longer than one of b, the
// statistic of Mann and Whitney: half of them when both have one distribution,
// whatever its shape and its outliers.
func longer(a, b []time.Duration) float64 {
	b = slices.Sorted(slices.Values(b))
	sum := 0.0
	for _, x := range a {
		below, _ := slices.BinarySearch(b, x)
		upto, _ := slices.BinarySearch(b, x+1)
		sum += float64(below) + float64(upto-below)/2
	}
	return sum / float64(len(a)*len(b))
}

// alike allows five standard deviations of the share for 400 samples each.
func alike(share float64) bool { return share > 0.4 && share < 0.6 }

// TestTimingComparison: the comparison tells what differs from what does not.
func TestTimingComparison(t *testing.T) {
	t.Parallel()
	draw := func(shift time.Duration) []time.Duration {
		took := make([]time.Duration, 400)
		for i := range took {
			took[i] = shift + 100*time.Microsecond + time.Duration(rand.ExpFloat64()*float64(50*time.Microsecond))
			if rand.IntN(20) == 0 {
				took[i] += time.Duration(rand.IntN(20)) * time.Millisecond // the machine was busy
			}
		}
		return took
	}
	if share := longer(draw(0), draw(0)); !alike(share) {
		t.Errorf("of the same distribution: %.3f", share)
	}
	if share := longer(draw(25*time.Microsecond), draw(0)); alike(share) {
		t.Errorf("slower by a quarter: %.3f", share)
	}
}
