package agent

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"
)

// TestPauseCutShort: a pause that the end of a hook cuts short does not make the
// next one longer.
func TestPauseCutShort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var opt Options
		opt.setDefaults()
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		a := &agent{opt: opt, log: slog.New(slog.DiscardHandler), back: spread(opt), work: &work{ended: ended}}
		a.status.LastContact = time.Now()
		for range 100 {
			a.failure(t.Context(), errors.New("no route to host"))
			if got := a.back.NextBackOff(); got > comeBack*opt.BackoffMin {
				t.Fatalf("the first pause after a hook's end is %s, want %s at most", got, comeBack*opt.BackoffMin)
			}
			a.back.Reset()
		}
	})
}
