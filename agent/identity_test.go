package agent_test

import (
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	ct "bigfleet-providers/agent/internal/channeltest"
	"bigfleet-providers/shared/command"
	"bigfleet-providers/shared/token"
)

// seen collects what polls carry, each value once in a row.
type seen struct {
	mu     sync.Mutex
	values []string
}

func (s *seen) add(v string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.values) == 0 || s.values[len(s.values)-1] != v {
		s.values = append(s.values, v)
	}
}

func (s *seen) list() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.values)
}

// TestHostProvesItself: an id that stays over restarts, and that no log shows.
func TestHostProvesItself(t *testing.T) {
	server := ct.Start(t, ct.Options{})
	var ids seen
	server.Intercept = func(_ http.ResponseWriter, r *http.Request) bool {
		ids.add(r.Header.Get(command.HeaderHost))
		return false
	}
	h := newHost(t, server, nil)
	h.config.StateDir = t.TempDir()
	h.options.Journal = nil // one in the state directory
	for range 2 {
		stop := h.start(t)
		polls := len(server.Polls())
		ct.Eventually(t, "a poll", func() bool { return len(server.Polls()) > polls })
		stop()
	}
	got := ids.list()
	if len(got) != 1 || len(got[0]) != 32 {
		t.Fatalf("ids %q, want one", got)
	}
	if strings.Contains(h.log.String(), got[0]) {
		t.Error("the id is in the log")
	}
	// What cannot be kept is not stated: a host must not be known by an id that is
	// gone at its next start.
	h.config.StateDir = filepath.Join(t.TempDir(), "file", "below")
	if err := os.WriteFile(filepath.Dir(h.config.StateDir), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	h.start(t)
	ct.Eventually(t, "a poll without an id", func() bool { got := ids.list(); return got[len(got)-1] == "" })
	h.waitLog(t, "this host has no id")
	// Nothing but room is missing: no restart.
	if err := os.Remove(filepath.Dir(h.config.StateDir)); err != nil {
		t.Fatal(err)
	}
	ct.Eventually(t, "an id", func() bool { got := ids.list(); return len(got[len(got)-1]) == 32 })
	h.waitLog(t, "this host has its identity now")
	kept, err := os.ReadFile(filepath.Join(h.config.StateDir, "host-id"))
	if got := ids.list(); err != nil || strings.TrimSpace(string(kept)) != got[len(got)-1] {
		t.Errorf("kept %q, %v; stated %q", kept, err, got)
	}
	if n := strings.Count(h.log.String(), "this host has no id"); n != 1 {
		t.Errorf("%d lines say the same", n)
	}
}

// A host made from an image of another has neither its id nor its journal nor its
// token: what is the other's is set aside.
func TestStateOfAnImage(t *testing.T) {
	server := ct.Start(t, ct.Options{})
	var ids seen
	server.Intercept = func(_ http.ResponseWriter, r *http.Request) bool {
		ids.add(r.Header.Get(command.HeaderHost))
		return false
	}
	h := newHost(t, server, nil)
	h.config.StateDir = t.TempDir()
	h.options.Journal = nil
	server.Deliver(ct.Drain("op-1"))
	stop := h.start(t)
	h.waitAcks(t, 1)
	stop()
	owner := filepath.Join(h.config.StateDir, "owner.json")
	for name, leave := range map[string]func() error{
		// Each writes what the other host left.
		"another machine": func() error { return os.WriteFile(owner, []byte(`{"machine_id":"m-other"}`), 0o600) },
		"an agent before owners were noted": func() error {
			path := filepath.Join(h.config.StateDir, "journal.json")
			body, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			body = []byte(strings.ReplaceAll(string(body), ct.MachineID, "m-other"))
			return errors.Join(os.WriteFile(path, body, 0o600), os.Remove(owner))
		},
	} {
		t.Run(name, func(t *testing.T) {
			before, acks := len(ids.list()), len(server.Acks())
			if err := leave(); err != nil {
				t.Fatal(err)
			}
			server.Deliver(ct.Drain("op-" + strings.ReplaceAll(name, " ", "-")))
			defer h.start(t)()
			h.waitAcks(t, acks+1)
			if got := ids.list(); len(got) != before+1 || got[before] == got[before-1] || len(got[before]) != 32 {
				t.Errorf("ids %q, want another one than before", got)
			}
			h.waitLog(t, "set aside")
			body, err := os.ReadFile(filepath.Join(h.config.StateDir, "journal.json"))
			if err != nil || strings.Contains(string(body), `"op-1"`) || !strings.Contains(string(body), ct.MachineID) {
				t.Errorf("the journal: %s, %v", body, err)
			}
		})
	}
}

// TestRenewedToken: a token that the provider hands over is kept before it is
// used, is used after a restart, and does not keep the agent from going back.
func TestRenewedToken(t *testing.T) {
	server := ct.Start(t, ct.Options{})
	secret, err := token.NewSecret([]byte(strings.Repeat("another secret ", 4)))
	if err != nil {
		t.Fatal(err)
	}
	renewed := token.Derive(secret, ct.MachineID, "op-1")
	var bearers seen
	var mu sync.Mutex
	accepted := []string{server.Token, renewed}
	accept := func(tokens ...string) {
		mu.Lock()
		defer mu.Unlock()
		accepted = tokens
	}
	hand := "no token, canary"
	var requests atomic.Int32
	server.Intercept = func(w http.ResponseWriter, r *http.Request) bool {
		mu.Lock()
		defer mu.Unlock()
		requests.Add(1)
		bearer := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
		bearers.add(bearer)
		if !slices.Contains(accepted, bearer) {
			http.Error(w, "", http.StatusUnauthorized)
			return true
		}
		if bearer == server.Token && hand != "" {
			w.Header().Set(command.HeaderToken, hand)
		}
		w.WriteHeader(http.StatusNoContent)
		return true
	}
	h := newHost(t, server, nil)
	h.config.StateDir = t.TempDir()
	h.options.Journal = nil
	stop := h.start(t)
	h.waitLog(t, "handed out something that is no token")
	mu.Lock()
	hand = renewed
	mu.Unlock()
	last := func(want string) func() bool {
		return func() bool { got := bearers.list(); return len(got) > 0 && got[len(got)-1] == want }
	}
	ct.Eventually(t, "the new token in use", last(renewed))
	body, err := os.ReadFile(filepath.Join(h.config.StateDir, "token.json"))
	if err != nil || !strings.Contains(string(body), renewed) {
		t.Errorf("the new token is used and not kept: %v", err)
	}
	accept(renewed) // the rollout is over
	stop()
	before := len(bearers.list())
	stop = h.start(t)
	already := requests.Load()
	ct.Eventually(t, "polls of the second agent", func() bool { return requests.Load() > already+2 })
	if got := bearers.list(); len(got) != before {
		t.Errorf("after a restart %q is sent, want the renewed token", got[before:])
	}
	accept(server.Token) // it is taken back
	mu.Lock()
	hand = ""
	mu.Unlock()
	ct.Eventually(t, "the configured token in use again", last(server.Token))
	stop()
	if log := h.log.String(); strings.Contains(log, renewed) || strings.Contains(log, server.Token) || strings.Contains(log, "canary") {
		t.Error("a token is in the log")
	}
}
