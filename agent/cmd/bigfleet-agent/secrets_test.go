package main

import (
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	ct "bigfleet-providers/agent/internal/channeltest"
)

// TestSecretsStayInside runs a whole life with a hook that prints all it knows,
// on the good path and the bad one, and looks for the token and the blob in all
// that anyone else can see.
func TestSecretsStayInside(t *testing.T) {
	const canary = "canary-5f1d-join-token.0123456789abcdef"
	blob := "#!/bin/sh\nkubeadm join --token " + canary + " 10.0.0.1:6443\n"
	h := newHost(t, `set -x
blob=$(cat)
echo "stdin: $blob" >&2
if [ "$1" = configure ]; then
	cat "$BIGFLEET_BLOB_FILE" >&2; base64 <"$BIGFLEET_BLOB_FILE" >&2; base64 -w0 <"$BIGFLEET_BLOB_FILE" >&2; echo >&2
	echo "error: `+canary+` was refused" >&2
	grep -o '"token": *"[^"]*"' "$dir/config.json" >&2
	env >"$dir/environ-of-hook"
	tr '\0' ' ' </proc/$PPID/cmdline >"$dir/argv-of-shell"
	[ "$BIGFLEET_COMMAND_ID" = good ] || exit 3
fi
`)
	secrets := map[string]string{"token": h.server.Token, "blob": canary, "blob in base64": "a3ViZWFkbSBqb2lu"[:12]}
	// The first poll and the first report are refused. More would cost more of the
	// pauses after lost contact, each up to ten seconds, than the test waits for.
	var polls, reports atomic.Int32
	h.server.Intercept = func(w http.ResponseWriter, r *http.Request) bool {
		count := &polls
		if r.Method == http.MethodPost {
			count = &reports
		}
		if count.Add(1) > 1 {
			return false
		}
		http.Error(w, "you sent "+r.Header.Get("Authorization"), http.StatusUnauthorized)
		return true
	}
	begun := time.Now()
	h.start(t)
	for _, id := range []string{"bad", "good"} {
		h.server.Deliver(ct.Configure(id, blob))
		ct.Eventually(t, "ack of "+id, func() bool {
			for _, a := range h.server.Acks() {
				if a.CommandID == id {
					return true
				}
			}
			return false
		})
	}
	late := ct.Configure("late", blob)
	late.Deadline = time.Now().Add(-time.Minute)
	h.server.Deliver(late)
	ct.Eventually(t, "three acks", func() bool { return len(h.server.Acks()) >= 3 })
	h.waitSettled(t)
	status, err := exec.Command(binary, "--config", h.config, "status").CombinedOutput()
	if err != nil {
		t.Errorf("status: %v", err)
	}
	check, _ := exec.Command(binary, "--config", h.config, "check").CombinedOutput() // what it prints counts
	seen := map[string]string{"log": h.out.String(), "acks": fmt.Sprint(h.server.Acks()), "status": string(status), "check": string(check)}
	for _, proc := range []string{"cmdline", "environ"} {
		body, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", h.cmd.Process.Pid, proc))
		if err != nil {
			t.Fatal(err)
		}
		seen[proc] = string(body)
	}
	err = filepath.WalkDir(h.dir, func(path string, d fs.DirEntry, err error) error {
		// The configuration and the hook itself hold them by design.
		if err != nil || d.IsDir() || path == h.config || filepath.Base(path) == "hook" {
			return err
		}
		body, err := os.ReadFile(path)
		seen[path] = string(body)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if os.Getenv(ct.RunnerVar) == "systemd" {
		journal, err := exec.Command("journalctl", "--output", "export", "--since", fmt.Sprintf("@%d", begun.Unix())).Output()
		units, showErr := exec.Command("systemctl", "show", "bigfleet-hook-*").Output()
		if err != nil || showErr != nil || !strings.Contains(string(journal), "was refused") {
			t.Errorf("the journal has not what the hook printed: %v, %v", err, showErr)
		}
		seen["journal"], seen["units"] = string(journal), string(units)
	}
	for where, text := range seen {
		for name, secret := range secrets {
			if strings.Contains(text, secret) {
				t.Errorf("the %s is in %s:\n%s", name, where, text)
			}
		}
	}
	if !strings.Contains(seen["acks"], "[redacted]") || !strings.Contains(seen["acks"], "was refused") {
		t.Errorf("the acks say nothing useful: %s", seen["acks"])
	}
	if _, ok := seen[filepath.Join(h.dir, "environ-of-hook")]; !ok {
		t.Error("the hook did not run")
	}
}
