package identity

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"bigfleet-providers/shared/token"
)

func TestHostIDStays(t *testing.T) {
	dir := t.TempDir()
	if got := FindHostID(dir); got != "" {
		t.Errorf("found %q in an empty directory", got)
	}
	first, damaged, err := HostID(dir)
	if err != nil || damaged || len(first) != 2*idBytes {
		t.Fatalf("%q, %t, %v", first, damaged, err)
	}
	again, damaged, err := HostID(dir)
	if again != first || damaged || err != nil || FindHostID(dir) != first {
		t.Errorf("the second time %q, %t, %v; the first time %q", again, damaged, err, first)
	}
	if other, _, _ := HostID(t.TempDir()); other == first {
		t.Error("two hosts have one id")
	}
	path := filepath.Join(dir, hostFile)
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	for _, content := range []string{"", "\x00\x00", first[:10], first + first} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := FindHostID(dir); got != "" {
			t.Errorf("%q counts as an id", content)
		}
		id, damaged, err := HostID(dir)
		if !damaged || err != nil || len(id) != 2*idBytes {
			t.Errorf("after %q: %q, %t, %v", content, id, damaged, err)
		}
	}
	if left, err := filepath.Glob(filepath.Join(dir, "*.new*")); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	if id, _, err := HostID(filepath.Join(dir, "missing")); err == nil || id != "" {
		t.Errorf("an id that is not kept: %q, %v", id, err)
	}
}

func TestTokenReplacesTheConfiguredOne(t *testing.T) {
	dir := t.TempDir()
	derive := func(secret string) string {
		t.Helper()
		s, err := token.NewSecret([]byte(strings.Repeat(secret, token.MinSecretBytes)))
		if err != nil {
			t.Fatal(err)
		}
		return token.Derive(s, "m")
	}
	configured, replacement := derive("a"), derive("b")
	want := func(what, configured, want string) {
		t.Helper()
		if got, err := Token(dir, configured); got != want || err != nil {
			t.Errorf("%s: %q, %v; want %q", what, got, err, want)
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
	path := filepath.Join(dir, tokenFile)
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
	dir := t.TempDir()
	link := filepath.Join(dir, "host-id")
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
