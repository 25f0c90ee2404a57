package provider

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"bigfleet-providers/provider/internal/machine"
	"bigfleet-providers/provider/internal/store"
)

// startAdmin serves an admin socket and returns a client of it. Its end is
// waited for.
func startAdmin(t *testing.T, path string, st *store.Store) *http.Client {
	t.Helper()
	ln, err := listenAdmin(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- serveAdmin(ctx, ln, st, nil, &keptHandlers{}, slog.New(slog.DiscardHandler)) }()
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", path)
	}}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
		if _, err := os.Lstat(path); !os.IsNotExist(err) {
			t.Errorf("the socket is still there: %v", err)
		}
	})
	return &http.Client{Transport: transport}
}

func ask(t *testing.T, c *http.Client, method, path string) (int, []byte) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, "http://provider"+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := c.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, body
}

func TestAdminSocket(t *testing.T) {
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	st, err := store.Open(store.Options{Path: filepath.Join(dir, "state")})
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	for i := range 300 {
		_, err := st.Do(t.Context(), fmt.Sprint("m-", i), func(cur machine.Record) (machine.Record, machine.Change, error) {
			cur.State = machine.Idle
			return cur, machine.Visible, nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	path := filepath.Join(dir, "admin.sock")
	// What a killed provider leaves behind.
	stale, err := net.ListenUnix("unix", &net.UnixAddr{Name: path})
	if err != nil {
		t.Fatal(err)
	}
	stale.SetUnlinkOnClose(false)
	if err := stale.Close(); err != nil {
		t.Fatal(err)
	}
	c := startAdmin(t, path, st)
	if info, err := os.Lstat(path); err != nil || info.Mode() != os.ModeSocket|0o600 {
		t.Errorf("got %v, %v", info.Mode(), err)
	}

	code, body := ask(t, c, http.MethodGet, "/state/backup")
	dest := filepath.Join(dir, "copy")
	if err := store.WriteBackup(dest, func(w io.Writer) error { _, err := w.Write(body); return err }); code != http.StatusOK || err != nil {
		t.Fatalf("status %d, %v", code, err)
	}
	if got, err := store.Inspect(dest); err != nil || got.Instance != st.Instance() || len(got.Machines) != 300 {
		t.Errorf("the copy: %v", err)
	}
	for _, q := range []struct {
		method, path string
		want         int
	}{
		{http.MethodPost, "/state/backup", http.StatusMethodNotAllowed},
		{http.MethodGet, "/", http.StatusNotFound},
		{http.MethodGet, "/state", http.StatusNotFound},
		{http.MethodGet, "/debug/pprof/", http.StatusNotFound},
	} {
		if code, _ := ask(t, c, q.method, q.path); code != q.want {
			t.Errorf("%s %s: %d, want %d", q.method, q.path, code, q.want)
		}
	}
	if _, err := listenAdmin(t.Context(), path); err == nil || !strings.Contains(err.Error(), "another process serves it") {
		t.Errorf("a second provider on the socket: %v", err)
	}
}

// TestAdminPeers: a connection whose other end is not known to be root or the
// provider's own user gets nothing.
func TestAdminPeers(t *testing.T) {
	h := ownPeers(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }))
	for name, tt := range map[string]struct {
		uid  any
		want int
	}{
		"root":     {uint32(0), http.StatusNoContent},
		"own":      {uint32(os.Geteuid()), http.StatusNoContent},
		"another":  {uint32(os.Geteuid()) + 4711, http.StatusForbidden},
		"not told": {nil, http.StatusForbidden},
	} {
		t.Run(name, func(t *testing.T) {
			w := httptest.NewRecorder()
			r, err := http.NewRequestWithContext(context.WithValue(t.Context(), peerKey{}, tt.uid), http.MethodGet, "/", nil)
			if err != nil {
				t.Fatal(err)
			}
			h.ServeHTTP(w, r)
			if w.Code != tt.want {
				t.Errorf("got %d, want %d", w.Code, tt.want)
			}
		})
	}
}

// A volume of a pod is open to everybody; the folder that is made in it is not.
func TestAdminSocketMakesItsFolder(t *testing.T) {
	volume := t.TempDir()
	if err := os.Chmod(volume, 0o777); err != nil {
		t.Fatal(err)
	}
	ln, err := listenAdmin(t.Context(), filepath.Join(volume, "admin", "socket"))
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	if info, err := os.Stat(filepath.Join(volume, "admin")); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("%v, %v", info, err)
	}
}

func TestAdminSocketRefusesBadPlaces(t *testing.T) {
	dir := t.TempDir()
	open := filepath.Join(dir, "open")
	if err := os.Mkdir(open, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(open, 0o777); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		filepath.Join(open, "s"):           "writable by it alone",
		filepath.Join(dir, "missing/in/s"): "no such file",
		file:                               "not a socket",
	} {
		if _, err := listenAdmin(t.Context(), path); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: got %v, want %q", path, err, want)
		}
	}
	if got, err := os.ReadFile(file); err != nil || string(got) != "precious" {
		t.Errorf("the file in the way: %q, %v", got, err)
	}
}
