package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"bigfleet-providers/agent"
	ct "bigfleet-providers/agent/internal/channeltest"
)

func TestRender(t *testing.T) {
	now := time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)
	s := agent.Status{
		Version: "1.2.3", PID: 42, MachineID: "m-1", Endpoint: "https://provider.test:9443", Doing: "running drain for cluster c-1",
		Since: now.Add(-90 * time.Second), LastContact: now.Add(-5 * time.Second), LastError: "the provider answered 503 Service Unavailable",
		Commands: []agent.CommandStatus{
			{CommandID: "op-1", Kind: "configure", ClusterID: "c-1", Attempt: 1, Started: now.Add(-time.Hour), Finished: now.Add(-50 * time.Minute), OK: true, Settled: true},
			{CommandID: "op-2", Kind: "drain", ClusterID: "c-1", Attempt: 2, Started: now.Add(-30 * time.Minute), Finished: now.Add(-20 * time.Minute), Error: "hook drain: exit status 1"},
			{CommandID: "op-3", Kind: "drain", ClusterID: "c-1", Attempt: 1, Step: "drain", Started: now.Add(-90 * time.Second), Deadline: now.Add(time.Minute)},
		},
	}
	want, err := os.ReadFile("testdata/status.txt")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), render(s, now, true)); diff != "" {
		t.Error(diff)
	}
	if text := render(s, now, false); !strings.Contains(text, "NOT RUNNING") {
		t.Errorf("a dead agent:\n%s", text)
	}
}

func invoke(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	code = Main(t.Context(), "1.2.3", args, &out, &errs)
	return code, out.String(), errs.String()
}

func TestCheckCommand(t *testing.T) {
	server, dir := ct.Start(t, ct.Options{}), t.TempDir()
	hook := filepath.Join(dir, "hook")
	config := server.Config(t, dir, hook)
	code, stdout, stderr := invoke(t, "check", "--config", config)
	if code != exitFault || !strings.Contains(stdout, "FAIL  hook ") || !strings.Contains(stdout, "ok    token ") || !strings.Contains(stderr, "failed") {
		t.Errorf("exit %d\n%s%s", code, stdout, stderr)
	}
}

func TestStatusWithoutAgent(t *testing.T) {
	server, dir := ct.Start(t, ct.Options{}), t.TempDir()
	code, _, stderr := invoke(t, "status", "--config", server.Config(t, dir, ""))
	if code != exitFault || !strings.Contains(stderr, "no agent has run") {
		t.Errorf("exit %d, %s", code, stderr)
	}
}

func TestEmptyFlags(t *testing.T) {
	for _, args := range [][]string{{"--config="}, {"check", "--config", ""}, {"status", "--config="}, {"node", "ready", "--kubeconfig="}, {"version", "--config="}} {
		if code, _, stderr := invoke(t, args...); code != exitUsage || !strings.Contains(stderr, "given, but empty") {
			t.Errorf("%q: exit %d, %s", args, code, stderr)
		}
	}
}

func TestRunWithBadConfig(t *testing.T) {
	code, _, stderr := invoke(t, "--config", "/no/such/file")
	if code != exitFault || !strings.Contains(stderr, "/no/such/file") {
		t.Errorf("exit %d, %s", code, stderr)
	}
}
