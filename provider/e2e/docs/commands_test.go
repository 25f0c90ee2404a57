package docs

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"bigfleet-providers/provider/e2e/docs/page"
)

// elsewhere are the pages whose plain blocks need a cluster's API server;
// provider/e2e/deploy runs them.
var elsewhere = []string{"docs/credentials.md", "docs/deploy.md"}

// stages make what blocks are tested with. Each is run once before the page's
// first block.
var stages = map[string]string{
	"":           "",
	"a provider": provider,
	"a fleet": provider + `
set -- $(capacityctl list -o name)
capacityctl create "$1" "$2" --wait >"$out/fleet.log" 2>&1
printf '#!/bin/sh\ntrue\n' | capacityctl configure "$1" --cluster prod --blob-file - --wait >>"$out/fleet.log" 2>&1
`,
	"a fake cloud": `
start fakecloud.log 'SCW_DEFAULT_ZONE' fakecloud --hosts=process --scale=0.01
eval "$(grep '^export ' "$out/fakecloud.log")"
`,
}

const provider = `
start provider.log 'ready: calls are accepted' scaleway --use-fake-backend --provider=scaleway-fr-par
export CAPACITYCTL_INSECURE=true
`

// prelude is what every script begins with. In it $out is the folder for the
// blocks' output.
const prelude = `
set -euo pipefail
await() {  # PID FILE WORDS
  for _ in $(seq 600); do
    ! grep -q -- "$3" "$2" || return 0
    kill -0 "$1" || { echo "it ended:" >&2; cat "$2" >&2; return 1; }
    sleep 0.05
  done
  echo "it does not say $3:" >&2; cat "$2" >&2; return 1
}
start() {  # FILE WORDS COMMAND...
  "${@:3}" >"$out/$1" 2>&1 &
  await $! "$out/$1" "$2"
}
`

// standIns are programs that pages call and that a sandbox need not run: what
// make builds is there already.
const makeStandIn = `#!/bin/sh
for target; do
  case $target in *=*) continue ;; esac
  grep -q "^$target:" MAKEFILE || { echo "make: there is no target $target" >&2; exit 2; }
done
`

// TestCommands runs the commands of every page.
func TestCommands(t *testing.T) {
	tested := 0
	for _, name := range pages(t) {
		blocks, err := page.Read(filepath.Join(root, name))
		if err != nil {
			t.Error(err)
			continue
		}
		if slices.Contains(elsewhere, name) {
			blocks = slices.DeleteFunc(blocks, func(b page.Block) bool { return b.With == "" })
		}
		for _, b := range blocks {
			if b.Kind == page.CI {
				inCI(t, name, b)
			}
		}
		blocks = slices.DeleteFunc(blocks, func(b page.Block) bool { return b.Kind == page.Excused || b.Kind == page.CI })
		if len(blocks) == 0 {
			continue
		}
		tested++
		t.Run(strings.TrimSuffix(filepath.Base(name), ".md"), func(t *testing.T) {
			t.Parallel()
			follow(t, name, blocks)
		})
	}
	if tested == 0 {
		t.Error("no page has a tested block")
	}
}

// inCI holds a block to what .ci/run has.
func inCI(t *testing.T, name string, b page.Block) {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(root, ".ci/run"))
	if err != nil {
		t.Fatal(err)
	}
	has := strings.Split(string(content), "\n")
	for line := range strings.Lines(b.Text) {
		command, _, _ := strings.Cut(line, " #")
		command = " " + strings.TrimSpace(command) // after "stage NAME" or "exec"
		if !slices.ContainsFunc(has, func(line string) bool { return strings.HasSuffix(line, command) }) {
			t.Errorf("%s:%d: .ci/run has no line %q", name, b.Line, command)
		}
	}
}

// pages are those that people read, from the repository's root.
func pages(t *testing.T) []string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	if err != nil || len(found) == 0 {
		t.Fatalf("%v, %v", found, err)
	}
	names := []string{"README.md", "CONTRIBUTING.md"}
	for _, path := range found {
		names = append(names, "docs/"+filepath.Base(path))
	}
	return names
}

// follow does what a page says, in one shell, in a folder like a checkout after
// `make build`.
func follow(t *testing.T, name string, blocks []page.Block) {
	dir, out := t.TempDir(), t.TempDir()
	settle(t, dir)
	var script strings.Builder
	fmt.Fprintf(&script, "out=%s\n%s", out, prelude)
	done := map[string]bool{}
	for i, b := range blocks {
		stage, known := stages[b.With]
		if !known {
			t.Fatalf("%s:%d: there is no stage with %s", name, b.Line, b.With)
		}
		if !done[b.With] {
			done[b.With] = true
			script.WriteString(stage)
		}
		log := fmt.Sprintf(`"$out/%d"`, i)
		fmt.Fprintf(&script, "echo %d >\"$out/at\"\n", i)
		switch b.Kind {
		case page.Commands:
			fmt.Fprintf(&script, "{\n%s\n} >%s 2>&1\n", b.Text, log)
		case page.Background:
			fmt.Fprintf(&script, "{\n%s\n} >%s 2>&1 &\nawait $! %s '%s'\n", b.Text, log, log, b.Name)
		case page.File:
			fmt.Fprintf(&script, "cat >%s <<'END OF FILE'\n%sEND OF FILE\n", b.Name, b.Text)
		}
	}
	path := filepath.Join(out, "script")
	if err := os.WriteFile(path, []byte(script.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	printed := func(i int) string {
		content, err := os.ReadFile(filepath.Join(out, fmt.Sprint(i)))
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
		return string(content)
	}
	if err := run(t, dir, path); errors.Is(err, errNoNamespaces) {
		t.Skip(err)
	} else if err != nil {
		at := 0
		if content, readErr := os.ReadFile(filepath.Join(out, "at")); readErr == nil {
			if at, readErr = strconv.Atoi(strings.TrimSpace(string(content))); readErr != nil {
				t.Error(readErr)
			}
		}
		t.Fatalf("%s:%d: %v\n%s\nprinted:\n%s", name, blocks[at].Line, err, blocks[at].Text, printed(at))
	}
	for i, b := range blocks {
		if b.Kind != page.Output {
			continue
		}
		if i == 0 {
			t.Fatalf("%s:%d: output of nothing", name, b.Line)
		}
		if missing := firstMissing(b.Text, printed(i-1)); missing != "" {
			t.Errorf("%s:%d: not printed, or not in this order:\n%s\nwhat was printed:\n%s", name, b.Line, missing, printed(i-1))
		}
	}
}

// settle lays out a folder as a checkout is after `make build deb`.
func settle(t *testing.T, dir string) {
	t.Helper()
	top, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"deploy", "packaging", "docs"} {
		if err := os.Symlink(filepath.Join(top, name), filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(bin, filepath.Join(dir, "bin")); err != nil {
		t.Fatal(err)
	}
	for _, folder := range []string{"dist", ".stand-ins"} {
		if err := os.Mkdir(filepath.Join(dir, folder), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	standIn := strings.ReplaceAll(makeStandIn, "MAKEFILE", filepath.Join(top, "Makefile"))
	for path, content := range map[string]string{
		".stand-ins/make": standIn, "dist/bigfleet-agent_1.0.0-1_amd64.deb": "amd64", "dist/bigfleet-agent_1.0.0-1_arm64.deb": "arm64",
	} {
		if err := os.WriteFile(filepath.Join(dir, path), []byte(content), 0o755); err != nil {
			t.Fatal(err)
		}
	}
}

// differs is what differs between two runs: ids, numbers, and the widths that
// follow from them.
var differs = regexp.MustCompile(`[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|[0-9a-f]{6,}|[0-9]+|[ \t]+`)

// shape is a line without what differs between two runs.
func shape(line string) string {
	return strings.TrimSpace(differs.ReplaceAllStringFunc(line, func(s string) string {
		if strings.TrimSpace(s) == "" {
			return " "
		}
		return "#"
	}))
}

// firstMissing returns the first line of want that printed lacks: each must be
// there, in order, but for ids and numbers. An ellipsis stands for any lines, or
// for any part of one.
func firstMissing(want, printed string) string {
	lines := strings.Split(printed, "\n")
	for line := range strings.Lines(want) {
		w := shape(line)
		if w == "" || w == "…" {
			continue
		}
		pattern := regexp.MustCompile("^" + strings.ReplaceAll(regexp.QuoteMeta(w), "…", ".*") + "$")
		i := slices.IndexFunc(lines, func(have string) bool { return pattern.MatchString(shape(have)) })
		if i < 0 {
			return line
		}
		lines = lines[i+1:]
	}
	return ""
}

func TestFirstMissing(t *testing.T) {
	printed := "ID        STATE\ntrial-68b004-0001  IDLE  0.0028\ntrial-68b004-0002  FAILED  boot took 3s\n"
	for want, missing := range map[string]string{
		"ID  STATE\n…\ntrial-aaa111-0009  FAILED  boot…\n": "",
		"ID…STATE\n… FAILED … 5s":                          "",
		"trial-68b004-0001  CREATING  1.5\n":               "trial-68b004-0001  CREATING  1.5\n",
		"trial-68b004-0001  IDLE 0.0028\nID  STATE\n":      "ID  STATE\n",
	} {
		if got := firstMissing(want, printed); got != missing {
			t.Errorf("%q: %q is missing, want %q", want, got, missing)
		}
	}
}
