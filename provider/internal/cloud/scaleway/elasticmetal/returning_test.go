package elasticmetal_test

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/scaleway/scaleway-sdk-go/api/baremetal/v1"

	"bigfleet-providers/provider/internal/cloud"
	"bigfleet-providers/provider/internal/cloud/scaleway"
)

// TestReturn gives spares back, says what they cost, and nothing else.
func TestReturn(t *testing.T) { synctest.Test(t, testReturn) }

func testReturn(t *testing.T) {
	t.Helper()
	w := newWorld(t)
	c := w.connect(t)
	used := w.create(t, c, "m-used")
	spare := w.byHand(t, scaleway.OwnerTag(provider), scaleway.SpareTag("by-hand"))
	given := w.byHand(t, scaleway.OwnerTag(provider), scaleway.SpareTag("by-hand"))
	stranger := w.byHand(t, "bigfleet=another-provider", scaleway.SpareTag("by-hand"))
	c.Reserve([]string{given})

	spares, err := c.Spares(deadline(t))
	if err != nil || len(spares) != 2 {
		t.Fatalf("spares: %+v, %v", spares, err)
	}
	for _, s := range spares {
		if s.Type != offer || s.Since != "by-hand" || s.Status != "ready" || s.Created.IsZero() || !strings.Contains(s.Billing, "EUR an hour") || (s.Keep == "") != (s.Ref == zone+"/"+spare) {
			t.Errorf("a spare: %+v", s)
		}
	}
	before := w.orders()
	for ref, want := range map[string]error{
		used.Ref: cloud.ErrInvalid, zone + "/" + given: cloud.ErrConflict, zone + "/" + stranger: cloud.ErrInvalid,
		zone + "/11111111-1111-4111-8111-111111111111": cloud.ErrNotFound, "nl-ams-1/" + spare: cloud.ErrInvalid, "x": cloud.ErrInvalid,
	} {
		if err := c.Return(deadline(t), ref); !errors.Is(err, want) {
			t.Errorf("Return(%s) = %v, want %v", ref, err, want)
		}
	}
	if w.orders() != before {
		t.Fatal("a refused return removed a server")
	}
	if err := c.Return(deadline(t), zone+"/"+spare); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the spare gone", func() bool { _, ok := w.server(zone + "/" + spare); return !ok })
	if w.orders() != before-1 {
		t.Errorf("%d servers, want %d", w.orders(), before-1)
	}
	if err := c.Return(deadline(t), zone+"/"+spare); !errors.Is(err, cloud.ErrNotFound) {
		t.Errorf("a second return: %v", err)
	}
}

// TestReturnOfATakenSpare: a Create was faster.
func TestReturnOfATakenSpare(t *testing.T) { synctest.Test(t, testReturnOfATakenSpare) }

func testReturnOfATakenSpare(t *testing.T) {
	t.Helper()
	w := newWorld(t)
	c := w.connect(t)
	ref := zone + "/" + w.byHand(t, scaleway.OwnerTag(provider), scaleway.SpareTag("by-hand"))
	op := w.create(t, c, "m-1")
	if op.Ref != ref {
		t.Fatalf("the Create took %s, want %s", op.Ref, ref)
	}
	if err := c.Return(deadline(t), ref); !errors.Is(err, cloud.ErrInvalid) {
		t.Errorf("Return of what a machine took = %v", err)
	}
	if s, ok := w.server(ref); !ok || s.Status != string(baremetal.ServerStatusReady) {
		t.Errorf("the server: %+v", s)
	}
}
