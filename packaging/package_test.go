package packaging

import (
	"bytes"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"bigfleet-providers/agent"
)

var update = flag.Bool("update", false, "write the golden files")

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got; go test -update writes it):\n%s", path, diff)
	}
}

// The size and time of a file are no part of the list.
var listed = regexp.MustCompile(`(?m)^(\S+ root/root) +\d+ \S+ \S+ (.*)$`)

func TestContents(t *testing.T) {
	for _, arch := range []string{"amd64", "arm64"} {
		list := run(t, exec.Command("dpkg-deb", "--contents", deb(t, "v1.2.3", arch)))
		golden(t, "contents.golden", listed.ReplaceAllString(list, "$1 $2"))
	}
}

func TestControl(t *testing.T) {
	for _, arch := range []string{"amd64", "arm64"} {
		path := deb(t, "v1.2.3", arch)
		if want := "bigfleet-agent_1.2.3-1_" + arch + ".deb"; filepath.Base(path) != want {
			t.Errorf("name %s, want %s", filepath.Base(path), want)
		}
		dir := t.TempDir()
		run(t, exec.Command("dpkg-deb", "--control", path, dir))
		control, err := os.ReadFile(filepath.Join(dir, "control"))
		if err != nil {
			t.Fatal(err)
		}
		text := regexp.MustCompile(`(?m)^Installed-Size: \d+$`).ReplaceAllString(string(control), "Installed-Size: SIZE")
		golden(t, "control.golden", strings.Replace(text, "Architecture: "+arch, "Architecture: ARCH", 1))
		// A conffile would be asked about when the first boot has written it.
		if _, err := os.Stat(filepath.Join(dir, "conffiles")); err == nil {
			t.Error("the package has conffiles")
		}
	}
}

func TestSize(t *testing.T) {
	for _, arch := range []string{"amd64", "arm64"} {
		info, err := os.Stat(deb(t, "v1.2.3", arch))
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%s: %d bytes", arch, info.Size())
		if info.Size() > 5<<20 {
			t.Errorf("%s has %d bytes, the limit is 5 MiB", arch, info.Size())
		}
	}
}

func TestLintian(t *testing.T) {
	need(t, "lintian")
	for _, arch := range []string{"amd64", "arm64"} {
		cmd := exec.Command("lintian", "--allow-root", "--pedantic", "--display-info", "--fail-on", "error,warning,info,pedantic", deb(t, "v1.2.3", arch))
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
	}
}

// Two copies of the tree in different folders, with other permissions, times,
// umask and time zone, give the same bytes.
func TestReproducible(t *testing.T) {
	tool := nfpm(t)
	need(t, "git", "dpkg-deb")
	if _, err := os.Stat("../.git"); err != nil {
		t.Skip("not a clone")
	}
	dir := t.TempDir()
	first, second := filepath.Join(dir, "a"), filepath.Join(dir, "b", "elsewhere")
	run(t, exec.Command("sh", "-euc", `
mkdir -p "$1" "$2"
cd ..
git ls-files -z --cached --others --exclude-standard -- go.mod go.sum LICENSE CHANGELOG.md agent shared packaging |
  xargs -0 sh -c 'for f; do [ ! -e "$f" ] || printf "%s\0" "$f"; done' - | xargs -0 cp --parents -t "$1"
cp -r "$1/." "$2"
chmod -R go-rwx "$2"`, "-", first, second))
	one := build(t, filepath.Join(first, "packaging"), tool, "v1.2.3", filepath.Join(dir, "1"), native)
	two := build(t, filepath.Join(second, "packaging"), tool, "v1.2.3", filepath.Join(dir, "2"), native, "TZ=Asia/Kathmandu", "LC_ALL=C", "GOAMD64=v3", "GOFLAGS=-ldflags=-X=main.version=other")
	if same, diff := equal(t, one, two); !same {
		t.Errorf("two builds differ: %s", diff)
	}
}

func equal(t *testing.T, one, two string) (bool, string) {
	t.Helper()
	a, err := os.ReadFile(one)
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(two)
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Equal(a, b) {
		return true, ""
	}
	out, _ := exec.Command("cmp", one, two).CombinedOutput() // it fails where they differ
	return false, string(out)
}

// Each field of the configuration is in its manual page, and each command and
// flag in the agent's.
func TestManuals(t *testing.T) {
	page, err := os.ReadFile("man/bigfleet-agent-config.5")
	if err != nil {
		t.Fatal(err)
	}
	for field := range reflect.TypeFor[agent.Config]().Fields() {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		if !bytes.Contains(page, []byte("\n.It Cm "+name+"\n")) {
			t.Errorf("bigfleet-agent-config.5 has no %s", name)
		}
	}
	page, err = os.ReadFile("man/bigfleet-agent.8")
	if err != nil {
		t.Fatal(err)
	}
	help := run(t, exec.Command("go", "run", "../agent/cmd/bigfleet-agent", "--help"))
	words := regexp.MustCompile(`(?m)^(?:  |      --)([a-z]+)(?:  | string | ready)`).FindAllStringSubmatch(help, -1)
	if len(words) < 5 {
		t.Fatalf("found %q in:\n%s", words, help)
	}
	for _, word := range words {
		if !regexp.MustCompile(`(?m)^\.It (Cm|Fl Fl) ` + word[1] + `\b`).Match(page) {
			t.Errorf("bigfleet-agent.8 has no %s", word[1])
		}
	}
}
