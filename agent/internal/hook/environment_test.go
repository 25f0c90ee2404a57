package hook_test

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"bigfleet-providers/agent/internal/hook"
)

// The page of hooks lists the variables that a hook gets, each for its verbs, and
// no others.
func TestPageListsTheVariables(t *testing.T) {
	if os.Getenv(runnerVar) == "systemd" {
		t.Skip("the page is not on a guest")
	}
	page := read(t, "../../../docs/hooks.md")
	_, page, _ = strings.Cut(page, "| Variable | Set for | |\n")
	table, _, _ := strings.Cut(page, "\n\n")
	listed := map[hook.Verb][]string{}
	for line := range strings.Lines(table) {
		cells := strings.Split(line, "|")
		if len(cells) < 4 || !strings.Contains(cells[1], "BIGFLEET_") {
			continue
		}
		for _, verb := range []hook.Verb{hook.Configure, hook.Ready, hook.Drain} {
			which := cells[2]
			if units() && strings.Contains(which, "without systemd") {
				continue
			}
			if strings.Contains(which, "all") || strings.Contains(which, string(verb)) {
				listed[verb] = append(listed[verb], regexp.MustCompile("[A-Z_]+").FindAllString(cells[1], -1)...)
			}
		}
	}
	h, dir := newHost(t, `tr '\0' '\n' </proc/$$/environ | cut -d= -f1 >"$dir/env-$1"; echo "$BIGFLEET_GRACE_SECONDS" >"$dir/grace-$1"`)
	h.Program = "/usr/bin/bigfleet-agent"
	for _, verb := range []hook.Verb{hook.Configure, hook.Ready, hook.Drain} {
		c := call(verb, "op-1", "")
		if verb != hook.Drain {
			c.Command.GraceSeconds = 0 // as a provider sends it
		}
		if err := h.Run(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		var got, others []string
		for name := range strings.FieldsSeq(read(t, dir, "env-"+string(verb))) {
			switch {
			case strings.HasPrefix(name, "BIGFLEET_") && name != runnerVar && name != strings.TrimSuffix(unitVar, "="):
				got = append(got, name)
			case !slices.Contains([]string{"HOME", "LANG", "PATH", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy", "PWD", "OLDPWD", "SHLVL", "_", strings.TrimSuffix(unitVar, "=")}, name):
				others = append(others, name)
			}
		}
		slices.Sort(got)
		slices.Sort(listed[verb])
		if diff := cmp.Diff(listed[verb], got); diff != "" {
			t.Errorf("%s (-page +hook):\n%s", verb, diff)
		}
		if len(others) > 0 {
			t.Errorf("%s: also %q", verb, others)
		}
		if grace := read(t, dir, "grace-"+string(verb)); (verb == hook.Drain) != (grace == "42\n") || (verb != hook.Drain) != (grace == "0\n") {
			t.Errorf("%s: a grace of %s", verb, grace)
		}
	}
}

// What keeps a run from being begun is told from what the hook did: it may pass.
func TestNotStarted(t *testing.T) {
	h, dir := newHost(t, `echo ran >"$dir/ran"`)
	if err := os.WriteFile(h.RuntimeDir, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	err := h.Run(t.Context(), call(hook.Drain, "op-1", ""))
	if !errors.Is(err, hook.ErrNotStarted) || exists(filepath.Join(dir, "ran")) {
		t.Errorf("without room for a run: %v", err)
	}
	if err := os.Remove(h.RuntimeDir); err != nil {
		t.Fatal(err)
	}
	if err := h.Run(t.Context(), call(hook.Drain, "op-1", "")); err != nil || !exists(filepath.Join(dir, "ran")) {
		t.Errorf("with room: %v", err)
	}
	if h.Path = "/no/such/hook"; errors.Is(h.Run(t.Context(), call(hook.Drain, "op-2", "")), hook.ErrNotStarted) {
		t.Error("a hook that is not there is waited for")
	}
}

// What a hook makes of its blob goes with it, should the hook be killed.
func TestScratchGoesWithTheBlob(t *testing.T) {
	for _, end := range []string{"exit 0", "exit 1", "kill -KILL $$"} {
		h, dir := newHost(t, `mkdir "$BIGFLEET_BLOB_FILE.d"; cp "$BIGFLEET_BLOB_FILE" "$BIGFLEET_BLOB_FILE.d/copy"; echo "$BIGFLEET_BLOB_FILE" >"$dir/path"; `+end+"\n")
		if err := h.Run(t.Context(), call(hook.Configure, "op-1", "join")); (err == nil) != (end == "exit 0") {
			t.Fatalf("%s: %v", end, err)
		}
		if exists(strings.TrimSpace(read(t, dir, "path")) + ".d") {
			t.Errorf("%s: a copy of the blob stays", end)
		}
	}
}
