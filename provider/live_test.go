package provider

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"bigfleet-providers/provider/internal/cloud"
)

// scriptedAccess answers Access from a list, the last for ever.
type scriptedAccess struct {
	cloud.Prober
	answers []error
	calls   int
	missing error // the answer of Missing
}

func (s *scriptedAccess) Missing(context.Context) error { return s.missing }

func (s *scriptedAccess) Access(context.Context) error {
	err := s.answers[min(s.calls, len(s.answers)-1)]
	s.calls++
	return err
}

// TestMissingAtStart: a permission that the account lacks is said, and ends no
// start.
func TestMissingAtStart(t *testing.T) {
	for missing, said := range map[error]bool{
		nil: false, errors.New("no route to host"): false, fmt.Errorf("%w; grant more", cloud.ErrDenied): true,
	} {
		var log strings.Builder
		err := checkAccess(t.Context(), "toy", &scriptedAccess{answers: []error{nil}, missing: missing}, time.Millisecond, slog.New(slog.NewTextHandler(&log, nil)))
		if err != nil || strings.Contains(log.String(), "level=ERROR") != said || said && !strings.Contains(log.String(), "grant more") {
			t.Errorf("%v: %v, %s", missing, err, log.String())
		}
	}
}

func TestAccessAtStart(t *testing.T) {
	denied := fmt.Errorf("%w: no such key", cloud.ErrDenied)
	for name, tc := range map[string]struct {
		answers []error
		calls   int
		fails   bool
	}{
		"accepted":       {[]error{nil}, 1, false},
		"refused":        {[]error{denied}, accessTries, true},
		"fresh key":      {[]error{denied, nil}, 2, false},
		"cannot be told": {[]error{errors.New("no route to host")}, 1, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := &scriptedAccess{answers: tc.answers}
			err := checkAccess(t.Context(), "toy", s, time.Millisecond, slog.New(slog.DiscardHandler))
			if (err != nil) != tc.fails || s.calls != tc.calls {
				t.Errorf("%v after %d calls, want a failure: %v, after %d", err, s.calls, tc.fails, tc.calls)
			}
			if tc.fails && !errors.Is(err, cloud.ErrDenied) {
				t.Errorf("%v does not say why", err)
			}
		})
	}
}
