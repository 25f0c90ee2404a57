package identity

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"bigfleet-providers/agent/internal/statedir"
	"bigfleet-providers/shared/token"
)

func open(t *testing.T, path string) *statedir.Dir {
	t.Helper()
	dir, err := statedir.Open(path, statedir.Owner{MachineID: "m-1"}, "", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := dir.Close(); err != nil {
			t.Error(err)
		}
	})
	return dir
}

func TestHostIDStays(t *testing.T) {
	at := t.TempDir()
	dir := open(t, at)
	if got := FindHostID(at); got != "" {
		t.Errorf("found %q in an empty directory", got)
	}
	first, damaged, err := HostID(dir)
	if err != nil || damaged || len(first) != 2*idBytes {
		t.Fatalf("%q, %t, %v", first, damaged, err)
	}
	again, damaged, err := HostID(dir)
	if again != first || damaged || err != nil || FindHostID(at) != first {
		t.Errorf("the second time %q, %t, %v; the first time %q", again, damaged, err, first)
	}
	if other, _, _ := HostID(open(t, t.TempDir())); other == first {
		t.Error("two hosts have one id")
	}
	path := filepath.Join(at, hostFile)
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	for _, content := range []string{"", "\x00\x00", first[:10], first + first} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := FindHostID(at); got != "" {
			t.Errorf("%q counts as an id", content)
		}
		id, damaged, err := HostID(dir)
		if !damaged || err != nil || len(id) != 2*idBytes {
			t.Errorf("after %q: %q, %t, %v", content, id, damaged, err)
		}
	}
	if left, err := filepath.Glob(filepath.Join(at, "*.tmp*")); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	file := filepath.Join(at, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	unwritable := open(t, filepath.Join(file, "below"))
	if id, _, err := HostID(unwritable); err == nil || id != "" {
		t.Errorf("an id that is not kept: %q, %v", id, err)
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if id, damaged, err := HostID(unwritable); err != nil || damaged || id == "" || FindHostID(filepath.Join(file, "below")) != id {
		t.Errorf("once it can be kept: %q, %t, %v", id, damaged, err)
	}
}

func TestTokenReplacesTheConfiguredOne(t *testing.T) {
	at := t.TempDir()
	dir := open(t, at)
	derive := func(secret string) string {
		t.Helper()
		s, err := token.NewSecret([]byte(strings.Repeat(secret, token.MinSecretBytes)))
		if err != nil {
			t.Fatal(err)
		}
		return token.Derive(s, "m", "op-1")
	}
	configured, replacement := derive("a"), derive("b")
	want := func(what, configured, want string) {
		t.Helper()
		if got, err := Token(dir, configured); got != want || err != nil {
			t.Errorf("%s: %q, %v; want %q", what, got, err, want)
		}
		if got, err := FindToken(at, configured); got != want || err != nil {
			t.Errorf("%s: found %q, %v; want %q", what, got, err, want)
		}
	}
	want("none", configured, "")
	if err := SaveToken(dir, configured, "no token"); err == nil {
		t.Error("what is no token is kept")
	}
	if err := SaveToken(dir, configured, replacement); err != nil {
		t.Fatal(err)
	}
	want("kept", configured, replacement)
	want("another configuration", derive("c"), "")
	path := filepath.Join(at, tokenFile)
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	for _, damage := range []string{"", "{", replacement, `{"replaces":"` + sum(configured) + `","token":"canary"}`} {
		if err := os.WriteFile(path, []byte(damage), 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := Token(dir, configured)
		if got != "" || err == nil || strings.Contains(err.Error(), replacement) || strings.Contains(err.Error(), "canary") {
			t.Errorf("%q: %q, %v", damage, got, err)
		}
	}
}

func TestLinksStayLinks(t *testing.T) {
	at := t.TempDir()
	dir := open(t, at)
	link := filepath.Join(at, "host-id")
	if err := os.Symlink(filepath.Join(t.TempDir(), "elsewhere"), link); err != nil {
		t.Fatal(err)
	}
	id, _, err := HostID(dir)
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Lstat(link); err != nil || info.Mode().Type() != os.ModeSymlink {
		t.Errorf("the link is one no more: %v", err)
	}
	if again, _, err := HostID(dir); err != nil || again != id {
		t.Errorf("got %q, %v; want %q", again, err, id)
	}
}
