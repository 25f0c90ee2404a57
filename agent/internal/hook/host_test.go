package hook_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"bigfleet-providers/agent/internal/hook"
	"bigfleet-providers/shared/command"
)

func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == "supervise" {
		os.Exit(hook.Supervise(os.Args[2], os.Stdout, os.Stderr))
	}
	goleak.VerifyTestMain(m)
}

const secretToken = "c2VjcmV0LXRva2VuLXNlY3JldC10b2tlbi1zZWNyZXQ="

// newHost returns a host whose hook is the shell script body; $dir is its
// scratch directory.
func newHost(t *testing.T, body string) (*hook.Host, string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "hook-")
	if err != nil {
		t.Fatal(err)
	}
	// Not t.TempDir: a run's supervisor writes there for a moment after its result
	// was read, and what it makes while the folder is removed is in the way.
	t.Cleanup(func() { waitFor(t, "removal of "+dir, func() bool { return os.RemoveAll(dir) == nil }) })
	path := filepath.Join(dir, "hook")
	if err := os.WriteFile(path, []byte("#!/bin/sh\ndir="+dir+"\n"+body), 0o700); err != nil {
		t.Fatal(err)
	}
	return &hook.Host{
		Path: path, RuntimeDir: filepath.Join(dir, "run"), Token: secretToken,
		Runner: newRunner(t), Log: slog.New(slog.DiscardHandler),
	}, dir
}

func call(verb hook.Verb, id, blob string) hook.Call {
	c := hook.Call{Verb: verb, Attempt: 1, Command: command.Command{
		CommandID: id, MachineID: "m-1", ClusterID: "c-1", NodeName: "node-1", ProviderID: "test://m-1", GraceSeconds: 42,
	}}
	if blob != "" {
		c.Command.Blob = []byte(blob)
	}
	return c
}

func read(t *testing.T, path ...string) string {
	t.Helper()
	body, err := os.ReadFile(filepath.Join(path...))
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}

func waitFor(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(15 * time.Second); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not in time: %s", what)
		}
	}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return !errors.Is(err, fs.ErrNotExist)
}

func alive(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && !strings.Contains(string(stat), ") Z ")
}

func TestEnvironmentAndBlob(t *testing.T) {
	t.Setenv("NOTIFY_SOCKET", "/run/systemd/notify")
	t.Setenv("HTTPS_PROXY", "http://proxy.test:3128")
	h, dir := newHost(t, `env | sort >"$dir/env"
cat >"$dir/stdin"
cp "$BIGFLEET_BLOB_FILE" "$dir/file"
stat -c %a "$BIGFLEET_BLOB_FILE" >"$dir/mode"
echo "$BIGFLEET_BLOB_FILE" >"$dir/path"
ps -o pgid= -p $$ >"$dir/group" 2>/dev/null || cut -d' ' -f5 /proc/$$/stat >"$dir/group"
`)
	blob := "\x00\x01 binary\nwithout line break at the end \xff"
	if err := h.Run(t.Context(), call(hook.Configure, "op-1", blob)); err != nil {
		t.Fatal(err)
	}
	env := read(t, dir, "env")
	for _, want := range []string{
		"BIGFLEET_CLUSTER_ID=c-1", "BIGFLEET_MACHINE_ID=m-1", "BIGFLEET_NODE_NAME=node-1", "BIGFLEET_PROVIDER_ID=test://m-1",
		"BIGFLEET_GRACE_SECONDS=42", "BIGFLEET_COMMAND_ID=op-1", "BIGFLEET_ATTEMPT=1", "HTTPS_PROXY=http://proxy.test:3128", "HOME=/root",
	} {
		if !strings.Contains(env, want+"\n") {
			t.Errorf("%s is missing in:\n%s", want, env)
		}
	}
	if strings.Contains(env, "NOTIFY_SOCKET") {
		t.Error("the hook sees the service manager's socket")
	}
	if read(t, dir, "stdin") != blob || read(t, dir, "file") != blob {
		t.Error("the blob did not arrive verbatim")
	}
	if mode := read(t, dir, "mode"); mode != "600\n" {
		t.Errorf("the blob's file has mode %s", mode)
	}
	if exists(strings.TrimSpace(read(t, dir, "path"))) {
		t.Error("the blob's file stays")
	}
	if group := strings.TrimSpace(read(t, dir, "group")); group == strconv.Itoa(syscall.Getpgrp()) {
		t.Error("the hook is in the agent's process group")
	}
}

func TestOnlyConfigureHasABlob(t *testing.T) {
	h, dir := newHost(t, `env >"$dir/env-$1"; cat >"$dir/stdin-$1"`)
	for _, verb := range []hook.Verb{hook.Ready, hook.Drain} {
		if err := h.Run(t.Context(), call(verb, "op-1", "")); err != nil {
			t.Fatal(err)
		}
		if strings.Contains(read(t, dir, "env-"+string(verb)), "BIGFLEET_BLOB_FILE") || read(t, dir, "stdin-"+string(verb)) != "" {
			t.Errorf("%s has a blob", verb)
		}
	}
}

func TestFailures(t *testing.T) {
	tests := []struct {
		name, body string
		want       []string // parts of the error
		not        []string
	}{
		{"last lines", `for i in $(seq 1 100); do echo "line $i" >&2; done; exit 3`, []string{"exit status 3", "line 81 | ", "line 100"}, []string{"line 80 "}},
		{"no output", "exit 1", []string{"hook configure: exit status 1"}, nil},
		{"killed by a signal", "kill -KILL $$", []string{"exit status 137"}, nil},
		{"no line break", `head -c 200000 /dev/zero | tr '\0' x >&2; exit 1`, []string{"without line breaks"}, nil},
		{"one long line", `echo begin >&2; head -c 60000 /dev/zero | tr '\0' x >&2; exit 1`, []string{"xxx"}, []string{"begin"}},
		{"not text", `printf 'a\377b\033[0;31mc\033[m\007d\n' >&2; exit 1`, []string{"a?bc d"}, nil},
		{"interpreter missing", "exec /no/such/interpreter", []string{"/no/such/interpreter"}, nil},
		{"secrets", `echo "token ` + secretToken + `, blob $(cat)" >&2; exit 1`, []string{"token [redacted], blob [redacted]"}, []string{secretToken, "join-secret"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			h, _ := newHost(t, tt.body+"\n")
			err := h.Run(t.Context(), call(hook.Configure, "op-1", "join-secret-of-the-cluster"))
			if err == nil {
				t.Fatal("no error")
			}
			text := err.Error()
			for _, w := range tt.want {
				if !strings.Contains(text, w) {
					t.Errorf("%q is missing in %q", w, text)
				}
			}
			for _, n := range tt.not {
				if strings.Contains(text, n) {
					t.Errorf("%q is in %q", n, text)
				}
			}
			if len(text) > command.MaxErrorBytes {
				t.Errorf("the error has %d bytes", len(text))
			}
		})
	}
}

func TestEndlessOutputIsCut(t *testing.T) {
	h, dir := newHost(t, `echo first >&2
yes "a line that is repeated" | head -c 5000000 >&2
echo >"$dir/printed"
until [ -e "$dir/go" ]; do sleep 0.02; done
echo last >&2
exit 1`)
	result := make(chan error, 1)
	go func() { result <- h.Run(t.Context(), call(hook.Configure, "op-1", "x")) }()
	waitFor(t, "the output", func() bool { return exists(filepath.Join(dir, "printed")) })
	if n := runBytes(t, dir); n > 1<<20 {
		t.Errorf("the run has %d bytes while the hook runs", n)
	}
	write(t, dir, "go")
	if err := <-result; err == nil || !strings.Contains(err.Error(), "last") {
		t.Errorf("error %v", err)
	}
	if n := runBytes(t, dir); n > 1<<20 {
		t.Errorf("the run has %d bytes", n)
	}
}

// runBytes is what all runs have written into the runtime directory.
func runBytes(t *testing.T, dir string) int64 {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "run", "runs", "*", "*"))
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	var n int64
	for _, path := range files {
		if info, err := os.Stat(path); err == nil { // the keeper moves its files
			n += info.Size()
		}
	}
	return n
}

// The whole group dies at the deadline, also what ignores a polite request.
func TestDeadlineKillsTheGroup(t *testing.T) {
	for name, trap := range map[string]string{"polite": "", "stubborn": "trap '' TERM; "} {
		t.Run(name, func(t *testing.T) {
			h, dir := newHost(t, trap+`sh -c '`+trap+`echo $$ >`+"$0"+`/child; while :; do sleep 1; done' "$dir" &
echo working >&2
wait
while :; do sleep 1; done`)
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			result := make(chan error, 1)
			go func() { result <- h.Run(ctx, call(hook.Drain, "op-1", "")) }()
			waitFor(t, "the child", func() bool { return exists(filepath.Join(dir, "child")) && read(t, dir, "child") != "" })
			cancel(errors.New("the deadline passed"))
			err := <-result
			if err == nil || !strings.Contains(err.Error(), "the deadline passed") || !strings.Contains(err.Error(), "working") {
				t.Errorf("error %v", err)
			}
			child, err := strconv.Atoi(strings.TrimSpace(read(t, dir, "child")))
			if err != nil {
				t.Fatal(err)
			}
			if alive(child) {
				t.Errorf("process %d of the hook is alive", child)
			}
		})
	}
}

// A daemon that holds the hook's output neither delays the result nor dies, and
// cannot fill the tmpfs, whether or not an agent looks.
func TestDaemonOfASuccessfulHook(t *testing.T) {
	h, dir := newHost(t, `[ "$1" = configure ] || exit 0
sh -c 'echo $$ >"$0/daemon"; until [ -e "$0/talk" ]; do sleep 0.02; done; yes daemon | head -c 5000000 >&2; echo >"$0/talked"; exec sleep 60' "$dir" &
until [ -s "$dir/daemon" ]; do sleep 0.02; done`)
	begun := time.Now()
	if err := h.Run(t.Context(), call(hook.Configure, "op-1", "x")); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(begun); took > 10*time.Second {
		t.Errorf("the result took %s", took)
	}
	daemon, err := strconv.Atoi(strings.TrimSpace(read(t, dir, "daemon")))
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := syscall.Kill(-pgid(t, daemon), syscall.SIGKILL); err != nil {
			t.Error(err)
		}
	}()
	// Another run does not end it either.
	if err := h.Run(t.Context(), call(hook.Ready, "op-1", "")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "talk"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the daemon's output", func() bool {
		if n := runBytes(t, dir); n > 1<<20 {
			t.Fatalf("the runs have %d bytes", n)
		}
		return exists(filepath.Join(dir, "talked"))
	})
	if !alive(daemon) {
		t.Error("the daemon died")
	}
}

func pgid(t *testing.T, pid int) int {
	t.Helper()
	id, err := syscall.Getpgid(pid)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// What a failed hook left in the background must not go on beside the next one.
func TestFailedHookLeavesNothing(t *testing.T) {
	h, dir := newHost(t, `sleep 60 & echo $! >"$dir/child"; exit 1`)
	if err := h.Run(t.Context(), call(hook.Configure, "op-1", "x")); err == nil {
		t.Fatal("no error")
	}
	child, err := strconv.Atoi(strings.TrimSpace(read(t, dir, "child")))
	if err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the end of the child", func() bool { return !alive(child) })
}

func TestFind(t *testing.T) {
	h, dir := newHost(t, "exit 0")
	if path, err := h.Find(); err != nil || path != h.Path {
		t.Errorf("Find = %s, %v", path, err)
	}
	if err := os.Chmod(h.Path, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := h.Find(); err == nil || !strings.Contains(err.Error(), "chmod") {
		t.Errorf("not executable: %v", err)
	}
	if err := os.Chmod(h.Path, 0o707); err != nil {
		t.Fatal(err)
	}
	if _, err := h.Find(); err == nil || !strings.Contains(err.Error(), "everybody may write") {
		t.Errorf("writable by all: %v", err)
	}
	h.Path = filepath.Join(dir, "absent")
	if err := h.Run(t.Context(), call(hook.Drain, "op-1", "")); err == nil || !strings.Contains(err.Error(), "does not exist") {
		t.Errorf("absent: %v", err)
	}
}

func TestOldRunsAreRemoved(t *testing.T) {
	h, dir := newHost(t, "exit 0")
	for i := range 25 {
		if err := h.Run(t.Context(), call(hook.Configure, fmt.Sprintf("op-%d", i), "x")); err != nil {
			t.Fatal(err)
		}
	}
	entries, err := os.ReadDir(filepath.Join(dir, "run", "runs"))
	if err != nil || len(entries) > 16 {
		t.Errorf("%d run directories, %v", len(entries), err)
	}
}
