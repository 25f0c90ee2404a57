package host

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"bigfleet-providers/provider/e2e/host/hosttest"
	"bigfleet-providers/provider/internal/fakecloud"
	"bigfleet-providers/provider/internal/fakecloud/nspawn"
)

// TestSystemd: what the agent's packages test with a stand-in for systemd holds
// with the real one.
func TestSystemd(t *testing.T) {
	t.Parallel()
	hosttest.Require(t)
	bin := t.TempDir()
	tests := []string{"agent/internal/hook", "agent/cmd/bigfleet-agent"}
	for _, pkg := range tests {
		build(t, "test", "-trimpath", "-c", "-o", filepath.Join(bin, filepath.Base(pkg)+".test"), "./"+pkg)
	}
	// As the tests build it where there is Go.
	build(t, "build", "-trimpath", "-ldflags", "-X main.version=1.2.3", "-o", bin, "./agent/cmd/bigfleet-agent")
	w := hosttest.NewWorld(t, hosttest.Options{Prepare: func(_ fakecloud.Guest, opts *nspawn.Options) error {
		opts.Binds = append(opts.Binds, nspawn.Bind{Source: bin, Target: "/tests", ReadOnly: true})
		return nil
	}})
	g := w.Guest(t, bootServer(t, w.API))
	g.AwaitBooted(t)
	for _, pkg := range tests {
		t.Run(filepath.Base(pkg), func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
			defer cancel()
			out, err := g.Shell(ctx, "cd /root && BIGFLEET_TEST_SYSTEMD=1 BIGFLEET_TEST_AGENT=/tests/bigfleet-agent "+
				"/tests/"+filepath.Base(pkg)+".test -test.v -test.run '^TestSystemd$' 2>&1")
			if err != nil {
				t.Fatal(err)
			}
			t.Log(hosttest.Tail(out, 5))
		})
	}
}

// build runs the Go command in the checkout, for guests, where there is none.
func build(t *testing.T, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", args...)
	cmd.Dir = hosttest.Checkout()
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go %v: %v\n%s", args, err, text)
	}
}
