package cloudtest

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"bigfleet-providers/provider/internal/cloud"
)

// maxAnswers is how many questions a call of the port gets answers to. Vendors'
// clients ask for as many pages as the API says there are; ours ask for none
// that would bring nothing.
const maxAnswers = 300

// Parrot is a cloud's API that answers every request with the same words.
type Parrot struct {
	Status int // if it is no status of an answer, one is made of it
	Type   string
	Body   []byte

	asked atomic.Int64
}

var errTooMany = errors.New("asked too often")

// RoundTrip implements http.RoundTripper.
func (p *Parrot) RoundTrip(r *http.Request) (*http.Response, error) {
	if p.asked.Add(1) > maxAnswers {
		return nil, errTooMany
	}
	status := p.Status
	if status < 200 || status > 599 {
		status = 200 + (status%400+400)%400
	}
	return &http.Response{
		StatusCode: status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header:  http.Header{"Content-Type": {p.Type}, "X-Total-Count": {"250"}},
		Request: r, Body: io.NopCloser(bytes.NewReader(p.Body)), ContentLength: int64(len(p.Body)),
	}, nil
}

// Answers makes every call of an adapter's that there is, with a parrot for an
// API. Each must come to an end without a panic, quote no secret, and list
// nothing of another zone.
func Answers(t *testing.T, p *Parrot, c cloud.Cloud, zone, commercialType, secret string) {
	t.Helper()
	ask := func(what string, bounded bool, call func(ctx context.Context) error) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		p.asked.Store(0)
		err := call(ctx)
		if ctx.Err() != nil || bounded && p.asked.Load() > maxAnswers {
			t.Errorf("%s does not come to an end", what)
		}
		if err != nil && strings.Contains(err.Error(), secret) {
			t.Errorf("%s: a secret is quoted", what)
		}
	}
	ref := zone + "/11111111-1111-4111-8111-111111111111"
	ask("List", true, func(ctx context.Context) error {
		list, err := c.List(ctx)
		for _, i := range list {
			if !strings.HasPrefix(i.Ref, zone+"/") {
				t.Errorf("listed: %+v", i)
			}
		}
		return err
	})
	ask("Get", true, func(ctx context.Context) error { _, err := c.Get(ctx, ref); return err })
	ask("SetCluster", true, func(ctx context.Context) error { return c.SetCluster(ctx, ref, "c") })
	ask("Scrub", true, func(ctx context.Context) error { return c.Scrub(ctx, ref) })
	if s, ok := c.(cloud.Sweeper); ok {
		ask("Strays", false, func(ctx context.Context) error {
			strays, err := s.Strays(ctx)
			for _, stray := range strays {
				err = errors.Join(err, s.Remove(ctx, stray))
			}
			return err
		})
	}
	if s, ok := c.(cloud.Catalog); ok {
		ask("Types", false, func(ctx context.Context) error { _, err := s.Types(ctx); return err })
	}
	if s, ok := c.(cloud.Fitter); ok {
		ask("Fit", false, func(ctx context.Context) error {
			return s.Fit(ctx, commercialType, cloud.Options{RootVolume: &cloud.RootVolume{Type: cloud.VolumeBlock}})
		})
	}
	if s, ok := c.(cloud.Prober); ok {
		ask("Access", false, s.Access)
		ask("Probe", false, func(ctx context.Context) error {
			for _, f := range s.Probe(ctx, []cloud.Wanted{{At: "x", Type: commercialType, Count: 1}}) {
				if strings.Contains(f.Text, secret) {
					t.Errorf("Probe: a secret is quoted")
				}
			}
			return nil
		})
	}
	work := map[string][]cloud.Step{"Create": c.Create(), "Start": c.Start(), "Discard": c.Discard()}
	if d, ok := c.(cloud.Deleter); ok {
		work["Delete"] = d.Delete()
	}
	for _, ref := range []string{"", ref} {
		for name, steps := range work {
			task := &cloud.Task{Ref: ref, Spec: cloud.Spec{
				MachineID: "m", OperationID: "op", Type: commercialType, Zone: zone,
				UserData: func() ([]byte, error) { return []byte("#cloud-config\n"), nil },
			}}
			for _, s := range steps { // also those after one that failed: a restart may begin at any
				ask(name+", "+s.Name, false, func(ctx context.Context) error { return s.Run(ctx, task) })
			}
		}
	}
}
