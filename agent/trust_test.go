package agent_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"bigfleet-providers/agent"
	ct "bigfleet-providers/agent/internal/channeltest"
)

// Whoever may write the configuration commands the host.
func TestConfigThatOthersMayWrite(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("files are given to other users here, which takes root")
	}
	server := ct.Start(t, ct.Options{})
	body, err := json.Marshal(map[string]string{"endpoint": "https://x", "ca_pem": server.CAPEM, "machine_id": "m-1", "token": server.Token})
	if err != nil {
		t.Fatal(err)
	}
	const nobody = 65534
	tests := []struct {
		name    string
		prepare func(file, dir string) error
		want    string // "" for accepted
	}{
		{"root's alone", func(string, string) error { return nil }, ""},
		{"writable by its group", func(file, _ string) error { return os.Chmod(file, 0o620) }, "chmod 0600"},
		{"writable by all", func(file, _ string) error { return os.Chmod(file, 0o602) }, "chmod 0600"},
		{"somebody's file", func(file, _ string) error { return os.Chown(file, nobody, nobody) }, "belongs to user 65534"},
		{"directory of all", func(_, dir string) error { return os.Chmod(dir, 0o777) }, "others than root may replace it"},
		{"directory of a group", func(_, dir string) error { return os.Chmod(dir, 0o770) }, "others than root may replace it"},
		{"somebody's directory", func(_, dir string) error { return os.Chown(dir, nobody, nobody) }, "others than root may replace it"},
		{"sticky directory", func(_, dir string) error { return os.Chmod(dir, 0o777|os.ModeSticky) }, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			path := writeConfig(t, 0o600, string(body))
			if err := tt.prepare(path, filepath.Dir(path)); err != nil {
				t.Fatal(err)
			}
			link := filepath.Join(t.TempDir(), "link")
			if err := os.Symlink(path, link); err != nil {
				t.Fatal(err)
			}
			for _, p := range []string{path, link} {
				_, err := agent.LoadConfig(p)
				if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
					t.Errorf("LoadConfig(%s) = %v", p, err)
				}
			}
		})
	}
}

// No answer leads the token and the next command to another place, least of all
// to one without TLS.
func TestNoDowngradeByRedirect(t *testing.T) {
	var strayed atomic.Int32
	plain := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { strayed.Add(1) }))
	defer plain.Close()
	for _, code := range []int{http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther, http.StatusTemporaryRedirect, http.StatusPermanentRedirect} {
		server := ct.Start(t, ct.Options{})
		var redirected atomic.Int32
		server.Intercept = func(w http.ResponseWriter, r *http.Request) bool {
			w.Header().Set("Strict-Transport-Security", "max-age=0")
			http.Redirect(w, r, plain.URL+r.URL.RequestURI(), code)
			return redirected.Add(1) > 0
		}
		newHost(t, server, nil).start(t)
		ct.Eventually(t, "another try", func() bool { return redirected.Load() >= 2 })
	}
	if n := strayed.Load(); n > 0 {
		t.Errorf("%d requests went where an answer pointed", n)
	}
}
