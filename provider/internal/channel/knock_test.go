package channel

import (
	"context"
	"net/http"
	"testing"
	"testing/synctest"
	"time"
)

// TestKnock: a parked poll is no proof that a host is there. When it is knocked at,
// its poll ends, and what it asks next is proof.
func TestKnock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t)
		h.Knock("m-1") // of which nothing was heard yet
		if h.HeardWithin("m-1", time.Hour) {
			t.Error("a host that never called was heard from")
		}
		parked := h.background(h.pollRequest("m-1", "&wait=60"))
		synctest.Wait()
		time.Sleep(20 * time.Second)
		if h.HeardWithin("m-1", 8*time.Second) || !h.HeardWithin("m-1", 21*time.Second) {
			t.Error("the host was heard from 20 s ago, when its poll came")
		}
		heard := make(chan error, 1)
		since := time.Now()
		go func() { heard <- h.Contact(t.Context(), "m-1", since) }()
		synctest.Wait()
		h.Knock("m-1")
		wantStatus(t, <-parked, http.StatusNoContent)
		select {
		case err := <-heard:
			t.Errorf("the end of its poll passes for a sign of life: %v", err)
		default:
		}
		time.Sleep(time.Second)
		ctx, hangUp := context.WithCancel(t.Context())
		again := h.background(h.pollRequest("m-1", "&wait=60").WithContext(ctx))
		if err := <-heard; err != nil {
			t.Error(err)
		}
		synctest.Wait()
		if !h.HeardWithin("m-1", 8*time.Second) {
			t.Error("it polled again and was not heard from")
		}
		hangUp()
		<-again
		if h.HeardWithin("m-1", 8*time.Second) {
			t.Error("a host that hung up passes for one that is there")
		}
	})
}
