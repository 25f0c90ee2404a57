package hosttest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"bigfleet-providers/provider/internal/fakecloud"
	"bigfleet-providers/provider/internal/fakecloud/host"
	"bigfleet-providers/provider/internal/fakecloud/nspawn"
)

// RootVariable names the environment variable with the Debian root that guests
// boot from; make e2e-host sets it.
const RootVariable = "BIGFLEET_DEBIAN_ROOT"

// Require skips the test, and says why, where guests cannot be booted.
func Require(t *testing.T) {
	t.Helper()
	root := os.Getenv(RootVariable)
	if root == "" {
		t.Skipf("%s is not set: make e2e-host runs this test", RootVariable)
	}
	if err := nspawn.Check(); err != nil {
		t.Skipf("guests cannot boot here: %v", err)
	}
	if err := nspawn.CheckRoot(root); err != nil {
		t.Fatal(err)
	}
}

// Options of a World. The zero value works.
type Options struct {
	// Layers go over the Debian root, the topmost first.
	Layers []string
	// Prepare may change a guest before its first boot: options, and files on
	// its disk.
	Prepare func(fakecloud.Guest, *nspawn.Options) error
}

// World is a fake cloud, its guests and the network between them and this
// machine.
type World struct {
	Cloud *fakecloud.Cloud
	Hosts *host.Nspawn
	Dir   string // for files of the test
	API   string // URL of the cloud's API

	log *Log
}

// NewWorld makes a world that ends with the test.
func NewWorld(t *testing.T, opts Options) *World {
	t.Helper()
	Require(t)
	w := &World{Dir: TempDir(t), log: &Log{}}
	logger := slog.New(slog.NewTextHandler(w.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	disks := filepath.Join(w.Dir, "disks")
	if err := os.Mkdir(disks, 0o755); err != nil {
		t.Fatal(err)
	}
	var err error
	w.Hosts, err = host.NewNspawn(host.NspawnOptions{
		Dir: disks, Layers: append(opts.Layers, os.Getenv(RootVariable)), Prepare: opts.Prepare, Log: logger,
	})
	if err != nil {
		t.Fatal(err)
	}
	w.Cloud = fakecloud.New(fakecloud.Options{Log: logger, Scale: 0.02, Hosts: w.Hosts})
	api := httptest.NewServer(w.Cloud.Handler())
	w.API = api.URL
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the cloud:\n%s", Tail(w.log.String(), 40))
			w.logConsoles(t)
		}
		api.Close()
		w.Cloud.Close()
	})
	if err := w.Hosts.Attach(w.Cloud); err != nil {
		t.Fatal(err)
	}
	return w
}

// tempPrefix, and the process's id behind it, begins the names of folders that
// may hold disks.
const tempPrefix = "bigfleet-host-test-"

// sweepOnce removes the folders of tests that were killed.
var sweepOnce = sync.OnceValue(func() error {
	dirs, err := filepath.Glob(filepath.Join(os.TempDir(), tempPrefix+"*"))
	for _, dir := range dirs {
		pid, _, _ := strings.Cut(strings.TrimPrefix(filepath.Base(dir), tempPrefix), "-")
		if _, alive := os.Stat("/proc/" + pid); errors.Is(alive, fs.ErrNotExist) {
			err = errors.Join(err, os.RemoveAll(dir))
		}
	}
	return err
})

// TempDir is like t.TempDir, without the name of the test in its path: that may
// have what the path of a disk must not.
func TempDir(t *testing.T) string {
	t.Helper()
	if err := sweepOnce(); err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", fmt.Sprintf("%s%d-", tempPrefix, os.Getpid()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// check fails the test at once when a guest could not be booted.
func (w *World) check(t *testing.T) {
	t.Helper()
	if strings.Contains(w.log.String(), "level=ERROR") {
		t.Fatal("a guest does not boot, see the cloud's log")
	}
}

func (w *World) logConsoles(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(w.Dir, "disks", "*", "console.log"))
	if err != nil {
		t.Error(err)
	}
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Error(err)
		}
		t.Logf("the console of %s:\n%s", filepath.Base(filepath.Dir(file)), Tail(string(content), 40))
	}
}

// Gateway is this machine's IPv4 address for the guests.
func (w *World) Gateway() string { return w.Hosts.Network().Gateway().String() }

// Gateway6 is this machine's IPv6 address for the guests.
func (w *World) Gateway6() string { return w.Hosts.Network().Gateway6().String() }

// Serve serves HTTP to the guests until the test ends, and returns the URL.
func (w *World) Serve(t *testing.T, h http.Handler) string {
	t.Helper()
	listener, err := w.Hosts.Network().Listen(context.Background(), net.JoinHostPort(w.Gateway(), "0"))
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(h)
	if err := server.Listener.Close(); err != nil {
		t.Fatal(err)
	}
	server.Listener = listener
	server.Start()
	t.Cleanup(server.Close)
	return server.URL
}

// Checkout is the repository's root.
func Checkout() string {
	_, file, _, _ := runtime.Caller(0)
	return filepath.Join(filepath.Dir(file), "..", "..", "..", "..")
}

// Built is the path of a program that make build has built.
func Built(t *testing.T, name string) string {
	t.Helper()
	path := filepath.Join(Checkout(), "bin", name)
	if _, err := os.Stat(path); err != nil {
		t.Fatalf("%v: run make build", err)
	}
	return path
}

// Log is a buffer that programs may write to while a test reads.
type Log struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

// Write implements io.Writer.
func (l *Log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

// String is what was written so far.
func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

// Tail is the last lines of a text.
func Tail(s string, lines int) string {
	all := strings.Split(strings.TrimRight(s, "\n"), "\n")
	if len(all) > lines {
		all = append([]string{fmt.Sprintf("[%d lines before]", len(all)-lines)}, all[len(all)-lines:]...)
	}
	return strings.Join(all, "\n")
}

// Laps returns a function that logs a step and how long it took.
func Laps(t *testing.T) func(step string) {
	last := time.Now()
	return func(step string) {
		now := time.Now()
		t.Logf("%-24s %5.1f s", step, now.Sub(last).Seconds())
		last = now
	}
}
