package channel

import (
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"bigfleet-providers/agent"
	"bigfleet-providers/provider/internal/telemetry"
	"bigfleet-providers/shared/token"
)

// restarting is where a fleet's agents find the channel, or nobody.
type restarting struct {
	mu       sync.Mutex
	handler  http.Handler  // nil while the provider is away
	killed   chan struct{} // closed when the present one is killed; nil when it never is
	arrivals []time.Time   // of polls, since set
}

func (p *restarting) set(h http.Handler) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.handler, p.arrivals = h, nil
}

func (p *restarting) came() []time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.arrivals)
}

// RoundTrip implements http.RoundTripper without a socket, so that the time can
// be the test's.
func (p *restarting) RoundTrip(r *http.Request) (*http.Response, error) {
	p.mu.Lock()
	h, killed := p.handler, p.killed
	p.arrivals = append(p.arrivals, time.Now())
	p.mu.Unlock()
	if h == nil {
		return nil, errors.New("connection refused")
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	answered := make(chan *http.Response, 1)
	go func() {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r.WithContext(ctx))
		answered <- w.Result()
	}()
	select {
	case resp := <-answered:
		return resp, nil
	case <-killed:
		return nil, errors.New("connection reset by peer")
	}
}

// busiest is the most that came within a second, and when the last one came.
func busiest(came []time.Time, since time.Time) (most int, last time.Duration) {
	slices.SortFunc(came, time.Time.Compare)
	for i, first := range came {
		n := 0
		for _, at := range came[i:] {
			if at.Sub(first) < time.Second {
				n++
			}
		}
		most = max(most, n)
		last = came[i].Sub(since)
	}
	return most, last
}

// boot runs real agents that find the provider at p, until ctx ends.
func (p *restarting) boot(ctx context.Context, t *testing.T, h *harness, fleet int, ca string) *sync.WaitGroup {
	var agents sync.WaitGroup
	for i := range fleet {
		id := fmt.Sprint("m-", i)
		agents.Go(func() {
			err := agent.Run(ctx, agent.Config{Endpoint: "https://provider", CAPEM: ca, MachineID: id, Token: agent.Token(token.Derive(h.secret, id, life))}, agent.Options{
				Log: slog.New(slog.DiscardHandler), HTTPClient: &http.Client{Transport: p}, Journal: agent.NewMemoryJournal(), BootID: id,
				Hook: agent.HookFunc(func(context.Context, agent.Call) error { return nil }),
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	return &agents
}

// TestFleetComesBackSpreadOut: real agents, after the provider stopped in order
// and was there again a moment later, and after it was away for a while.
func TestFleetComesBackSpreadOut(t *testing.T) {
	const fleet = 400
	cert, _ := selfSigned(t)
	ca := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert.Certificate[0]}))
	synctest.Test(t, func(t *testing.T) {
		first := newHarness(t, everybody)
		p := &restarting{handler: first.handler}
		ctx, stop := context.WithCancel(t.Context())
		agents := p.boot(ctx, t, first, fleet, ca)
		synctest.Wait()
		if got := first.count(telemetry.MetricChannelParked.Name); got != fleet {
			t.Fatalf("%v polls parked, want %d", got, fleet)
		}

		stopped := time.Now()
		second := newHarness(t, everybody)
		p.set(second.handler)
		first.Release()
		time.Sleep(20 * time.Second)
		synctest.Wait()
		if got := second.count(telemetry.MetricChannelParked.Name); got != fleet {
			t.Errorf("20 s after the stop %v polls are parked, want %d", got, fleet)
		}
		most, last := busiest(p.came(), stopped)
		t.Logf("after a stop in order: at most %d of %d in a second, the last one after %s", most, fleet, last)
		if most > fleet/5 {
			t.Errorf("%d of %d come back within a second", most, fleet)
		}

		// Away for a minute, with nobody to say when to come back.
		p.set(nil)
		second.Release()
		time.Sleep(time.Minute)
		again := time.Now()
		third := newHarness(t, everybody)
		p.set(third.handler)
		time.Sleep(100 * time.Second)
		synctest.Wait()
		if got := third.count(telemetry.MetricChannelParked.Name); got != fleet {
			t.Errorf("%v polls are parked, want %d", got, fleet)
		}
		came := p.came()
		slices.SortFunc(came, time.Time.Compare)
		most, last = busiest(came[:fleet], again)
		t.Logf("after a minute: at most %d of %d in a second, the last one after %s", most, fleet, last)
		if most > fleet/5 {
			t.Errorf("%d of %d come back within a second", most, fleet)
		}
		stop()
		agents.Wait()
	})
}

// TestFleetComesBackAfterAKill: a provider that is killed says nothing, and all
// connections end in one moment. Whenever it is there again, no second brings more
// than a fifth of the fleet; ten seconds bring most after a short outage, and a
// minute brings all.
func TestFleetComesBackAfterAKill(t *testing.T) {
	const fleet = 2000
	cert, _ := selfSigned(t)
	ca := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert.Certificate[0]}))
	for _, away := range []time.Duration{300 * time.Millisecond, 2 * time.Second, 8 * time.Second, 30 * time.Second, 10 * time.Minute} {
		t.Run(away.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				first := newHarness(t, everybody)
				p := &restarting{handler: first.handler, killed: make(chan struct{})}
				ctx, stop := context.WithCancel(t.Context())
				agents := p.boot(ctx, t, first, fleet, ca)
				synctest.Wait()
				if got := first.count(telemetry.MetricChannelParked.Name); got != fleet {
					t.Fatalf("%v polls parked, want %d", got, fleet)
				}
				killed := p.killed
				p.mu.Lock()
				p.killed = nil
				p.mu.Unlock()
				p.set(nil)
				close(killed)
				time.Sleep(away)
				second := newHarness(t, everybody)
				p.set(second.handler)
				again := time.Now()
				time.Sleep(10 * time.Second)
				if got := second.count(telemetry.MetricChannelParked.Name); away < time.Second && got < fleet*9/10 {
					t.Errorf("after an outage of %s %v of %d are back in ten seconds", away, got, fleet)
				}
				time.Sleep(51 * time.Second)
				synctest.Wait()
				if got := second.count(telemetry.MetricChannelParked.Name); got != fleet {
					t.Errorf("a minute later %v polls are parked, want %d", got, fleet)
				}
				// The first poll of each asks whether the provider is there, the second is
				// parked, on the same connection.
				most, _ := busiest(p.came(), again)
				t.Logf("away for %s: at most %d connections of %d agents in a second", away, most/2, fleet)
				if most/2 > fleet/5 {
					t.Errorf("%d of %d come back within a second", most/2, fleet)
				}
				stop()
				agents.Wait()
			})
		})
	}
}
