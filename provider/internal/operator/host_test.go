package operator

import (
	"bytes"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
)

// adminSocket serves a handler where a provider's admin socket would be.
func adminSocket(t *testing.T, h http.Handler) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "admin.sock")
	ln, err := new(net.ListenConfig).Listen(t.Context(), "unix", path)
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewUnstartedServer(h)
	srv.Listener = ln
	srv.Start()
	t.Cleanup(srv.Close)
	return path
}

func TestHosts(t *testing.T) {
	var unlocked atomic.Pointer[string]
	mux := http.NewServeMux()
	mux.HandleFunc("GET /hosts", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `[{"machine_id":"m/1","last_seen":"2030-01-02T03:04:05Z","version":"1.2.3","locked_to":"aabbcc","previous_secret":true},
{"machine_id":"m-2","previous_secret":false,"stranger":{"remote":"192.0.2.7:1\u001b","first":"2030-01-02T03:04:05Z","last":"2030-01-02T03:04:06Z","count":7}}]`)
	})
	mux.HandleFunc("POST /hosts/{machine}/unlock", func(w http.ResponseWriter, r *http.Request) {
		id := r.PathValue("machine")
		if id == "nobody" {
			http.Error(w, "no such machine", http.StatusNotFound)
			return
		}
		unlocked.Store(&id)
		w.WriteHeader(http.StatusNoContent)
	})
	socket := adminSocket(t, mux)
	for name, c := range map[string]struct {
		args []string
		code int
		want []string
		not  string
	}{
		"table":     {[]string{"host", "list", "--socket", socket}, 0, []string{"m/1", "aabbcc", "2030-01-02T03:04:05Z", "1.2.3", "previous", "without an id from 192.0.2.7:1·, 7 requests", "2 hosts: 1 contested, 1 with the previous secret"}, "\x1b"},
		"contested": {[]string{"host", "list", "--socket", socket, "--contested"}, 0, []string{"m-2", "1 hosts: 1 contested"}, "m/1"},
		"previous":  {[]string{"host", "list", "--socket", socket, "--previous", "-o", "json"}, 0, []string{`"machine_id": "m/1"`}, "m-2"},
		"unlock":    {[]string{"host", "unlock", "--socket", socket, "m/1"}, 0, []string{"m/1: the next host that polls gets its token"}, "refuses"},
		"unknown":   {[]string{"host", "unlock", "--socket", socket, "nobody"}, 1, []string{"404", "no such machine"}, "next host"},
		"no socket": {[]string{"host", "list"}, 2, []string{"--socket: missing"}, "MACHINE"},
		"no server": {[]string{"host", "list", "--socket", socket + "x"}, 1, []string{"is the provider running"}, "MACHINE"},
		"a word":    {[]string{"host", "lock"}, 2, []string{"host is followed by list or unlock"}, "state"},
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			if code := Main("test", c.args, nil, &out, &out); code != c.code {
				t.Errorf("exit code %d, want %d:\n%s", code, c.code, out.String())
			}
			for _, want := range c.want {
				if !strings.Contains(out.String(), want) {
					t.Errorf("the output lacks %q:\n%s", want, out.String())
				}
			}
			if strings.Contains(out.String(), c.not) {
				t.Errorf("the output holds %q:\n%s", c.not, out.String())
			}
		})
	}
	if got := unlocked.Load(); got == nil || *got != "m/1" {
		t.Errorf("unlocked: %v", got)
	}
}
