package packaging

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestChart(t *testing.T) {
	pack := func(out string) []byte {
		cmd := exec.Command("./chart", "v1.2.3-rc.1", out)
		cmd.Env = append(os.Environ(), "SOURCE_DATE_EPOCH=1700000000")
		run(t, cmd)
		body, err := os.ReadFile(filepath.Join(out, "bigfleet-provider-1.2.3-rc.1.tgz"))
		if err != nil {
			t.Fatal(err)
		}
		return body
	}
	packed := pack(t.TempDir())
	if !bytes.Equal(packed, pack(t.TempDir())) {
		t.Error("two packs of the chart differ")
	}
	z, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, h.Name)
		if h.Name != "bigfleet-provider/Chart.yaml" {
			continue
		}
		text, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		for _, line := range []string{"\nversion: 1.2.3-rc.1\n", "\nappVersion: \"1.2.3-rc.1\"\n"} {
			if !bytes.Contains(text, []byte(line)) {
				t.Errorf("Chart.yaml has no %q:\n%s", line, text)
			}
		}
	}
	for _, want := range []string{"Chart.yaml", "values.yaml", "values.schema.json", "templates/deployment.yaml"} {
		if !slices.Contains(names, "bigfleet-provider/"+want) {
			t.Errorf("no %s in %q", want, names)
		}
	}
	for _, name := range names {
		if strings.Contains(name, "/ci/") || strings.Contains(name, "/.") {
			t.Errorf("%s is for those who work on the chart", name)
		}
	}
}

// What is not the clean tree of a tag that the changelog knows is no release.
func TestReleaseRefuses(t *testing.T) {
	need(t, "git", "bash")
	for name, c := range map[string]struct{ script, version, want string }{
		"no version":     {"", "0123abc", "is no version"},
		"no tag":         {"", "v1.0.1", "is not what is checked out"},
		"another commit": {"git commit -q --allow-empty -m later", "v1.0.0", "is not what is checked out"},
		"changes":        {"echo >>CHANGELOG.md", "v1.0.0", "changes that are in no commit"},
		"no change log":  {"git tag v1.1.0", "v1.1.0", "has no section [1.1.0]"},
		"left over":      {"touch ../out/file", "v1.0.0", "is not empty"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			tree := filepath.Join(dir, "tree")
			run(t, exec.Command("sh", "-euc", `
mkdir -p "$1/packaging" "$1/../out"
cp release "$1/packaging/"
cd "$1"
printf '## [1.0.0] - 2026-01-01\n' >CHANGELOG.md
git init -q
git config user.email test@bigfleet.invalid
git config user.name test
git add .
git commit -qm first
git tag v1.0.0
`+c.script, "-", tree))
			cmd := exec.Command("packaging/release", c.version, "../out")
			cmd.Dir = tree
			out, err := cmd.CombinedOutput()
			if err == nil || !strings.Contains(string(out), c.want) {
				t.Errorf("%v, %s; want %q", err, out, c.want)
			}
		})
	}
}
