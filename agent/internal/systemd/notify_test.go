package systemd_test

import (
	"log/slog"
	"net"
	"path/filepath"
	"testing"
	"time"

	"bigfleet-providers/agent/internal/systemd"
)

func TestNotify(t *testing.T) {
	path := filepath.Join(t.TempDir(), "notify")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
	})
	t.Setenv("NOTIFY_SOCKET", path)
	n := systemd.New(slog.New(slog.DiscardHandler))
	for _, tt := range []struct {
		call func()
		want string
	}{
		{n.Ready, "READY=1"}, {n.Watchdog, "WATCHDOG=1"}, {n.Stopping, "STOPPING=1"}, {func() { n.Status("polling") }, "STATUS=polling"},
		{func() { n.Status("valid for x\nMAINPID=1\nWATCHDOG=trigger\x1b[2J") }, "STATUS=valid for x MAINPID=1 WATCHDOG=trigger?[2J"},
	} {
		tt.call()
		if err := conn.SetReadDeadline(time.Now().Add(5 * time.Second)); err != nil {
			t.Fatal(err)
		}
		buf := make([]byte, 100)
		count, err := conn.Read(buf)
		if err != nil || string(buf[:count]) != tt.want {
			t.Errorf("got %q, %v, want %q", buf[:count], err, tt.want)
		}
	}
}

func TestInterval(t *testing.T) {
	n := systemd.New(slog.New(slog.DiscardHandler))
	t.Setenv("WATCHDOG_PID", "")
	for value, want := range map[string]time.Duration{"": 0, "120000000": 2 * time.Minute, "nonsense": 0} {
		t.Setenv("WATCHDOG_USEC", value)
		if got := n.Interval(); got != want {
			t.Errorf("WATCHDOG_USEC=%q: %s, want %s", value, got, want)
		}
	}
}

func TestNoServiceManager(t *testing.T) {
	t.Setenv("NOTIFY_SOCKET", "")
	systemd.New(slog.New(slog.DiscardHandler)).Ready()
}
