package agent_test

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"bigfleet-providers/agent"
	ct "bigfleet-providers/agent/internal/channeltest"
)

// scratch is a directory on tmpfs where there is one, as /run is on a host.
func scratch(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "agent-check-")
	if err != nil {
		t.Skip("no tmpfs at /dev/shm:", err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

func TestCheck(t *testing.T) {
	now := time.Now()
	tests := []struct {
		name   string
		opt    ct.Options
		change func(t *testing.T, s *ct.Server, dir string)
		failed map[string]string // check → part of the advice
		passed []string
	}{
		{"all well", ct.Options{}, nil, nil, []string{"config", "state", "runtime", "hook", "dns", "tcp", "tls", "clock", "token"}},
		{"wrong token", ct.Options{}, func(_ *testing.T, s *ct.Server, _ string) { s.Token = s.Token[4:8] + s.Token[4:] },
			map[string]string{"token": "not this machine's"}, []string{"tls", "clock"}},
		{"clock", ct.Options{}, func(_ *testing.T, s *ct.Server, _ string) {
			s.Intercept = func(w http.ResponseWriter, _ *http.Request) bool {
				w.Header().Set("Date", now.Add(-time.Hour).UTC().Format(http.TimeFormat))
				return false
			}
		}, map[string]string{"clock": "set the local clock"}, []string{"token"}},
		{"certificate", ct.Options{NotBefore: now.Add(time.Hour), NotAfter: now.Add(2 * time.Hour)}, nil, map[string]string{"tls": "set the clock"}, []string{"tcp"}},
		{"port", ct.Options{}, func(_ *testing.T, s *ct.Server, _ string) { s.URL = "https://127.0.0.1:1" }, map[string]string{"tcp": "firewalls"}, []string{"dns"}},
		{"name", ct.Options{}, func(_ *testing.T, s *ct.Server, _ string) { s.URL = "https://no-such-host.invalid" }, map[string]string{"dns": "resolver"}, []string{"hook"}},
		{"hook", ct.Options{}, func(t *testing.T, _ *ct.Server, dir string) {
			if err := os.Remove(filepath.Join(dir, "hook")); err != nil {
				t.Fatal(err)
			}
		}, map[string]string{"hook": "does not exist"}, []string{"token"}},
		{"state", ct.Options{}, func(t *testing.T, _ *ct.Server, dir string) {
			if err := os.WriteFile(filepath.Join(dir, "state"), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}, map[string]string{"state": "writable"}, []string{"token"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			server, dir := ct.Start(t, tt.opt), scratch(t)
			hook := filepath.Join(dir, "hook")
			if err := os.WriteFile(hook, []byte("#!/bin/sh\n"), 0o700); err != nil {
				t.Fatal(err)
			}
			if tt.change != nil {
				tt.change(t, server, dir)
			}
			got := map[string]agent.Finding{}
			for _, f := range agent.Check(t.Context(), server.Config(t, dir, hook), "test") {
				got[f.Name] = f
				if want, bad := tt.failed[f.Name]; bad != (f.Err != nil) || bad && !strings.Contains(f.Err.Error(), want) {
					t.Errorf("%s: %v, want %q", f.Name, f.Err, want)
				}
			}
			for name := range tt.failed {
				if _, ok := got[name]; !ok {
					t.Errorf("%s was not checked", name)
				}
			}
			for _, name := range tt.passed {
				if f, ok := got[name]; !ok || f.Detail == "" {
					t.Errorf("%s: %+v", name, f)
				}
			}
		})
	}
}

func TestCheckOfABadFile(t *testing.T) {
	findings := agent.Check(t.Context(), "/no/such/file", "test")
	if len(findings) != 1 || findings[0].Err == nil {
		t.Errorf("findings %+v", findings)
	}
}

func TestStatusFile(t *testing.T) {
	server := ct.Start(t, ct.Options{})
	h := newHost(t, server, nil)
	h.options.StatusFile = filepath.Join(t.TempDir(), "status.json")
	h.start(t)
	server.Deliver(ct.Configure("op-1", "join"))
	ct.Eventually(t, "a settled command in the status", func() bool {
		s, err := agent.ReadStatus(h.options.StatusFile)
		return err == nil && len(s.Commands) == 1 && s.Commands[0].Settled
	})
	s, err := agent.ReadStatus(h.options.StatusFile)
	if err != nil {
		t.Fatal(err)
	}
	c := s.Commands[0]
	if s.Doing != "polling" || s.MachineID != ct.MachineID || s.LastContact.IsZero() || !c.OK || c.CommandID != "op-1" || c.Finished.IsZero() {
		t.Errorf("status %+v", s)
	}
}
