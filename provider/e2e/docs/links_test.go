package docs

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/google/go-cmp/cmp"
)

var (
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading = regexp.MustCompile(`(?m)^#+ +(.+)$`)
	fenced  = regexp.MustCompile("(?ms)^ *```.*?\n *```$")
	// inCode is a path in backticks: of a folder at the root, or a Go file.
	inCode = regexp.MustCompile("`((?:\\.ci|agent|cloudinit|deploy|docs|packaging|proto|provider|shared)/[\\w./*-]+|[\\w./-]+/[\\w-]+\\.go)`")
	// mention is a page that other files name.
	mention = regexp.MustCompile(`\bdocs/([a-z-]+\.md)(?:#([a-z0-9-]+))?`)
)

// TestLinks: what the pages link to and what they name is there.
func TestLinks(t *testing.T) {
	tree := files(t)
	read := func(path string) string {
		content, err := os.ReadFile(filepath.Join(root, path))
		if err != nil {
			t.Fatal(err)
		}
		return string(content)
	}
	for _, name := range append(pages(t), "ARCHITECTURE.md", "SECURITY.md", "CHANGELOG.md") {
		text := read(name)
		for _, fault := range linkFaults(name, text, tree, read) {
			t.Errorf("%s: %s", name, fault)
		}
	}
	for path := range tree {
		switch filepath.Ext(path) {
		case ".go", ".yaml", ".yml", ".json", ".tf", ".txt", ".sh", ".service", ".example", "":
		default:
			continue
		}
		for _, m := range mention.FindAllStringSubmatch(read(path), -1) {
			page := "docs/" + m[1]
			switch {
			case !tree[page]:
				t.Errorf("%s names %s, which is not there", path, page)
			case m[2] != "" && !slices.Contains(anchors(read(page)), m[2]):
				t.Errorf("%s names %s, which has no such heading", path, m[0])
			}
		}
	}
}

// TestIndexIsWhole: docs/README.md leads to every page.
func TestIndexIsWhole(t *testing.T) {
	index, err := os.ReadFile(filepath.Join(root, "docs/README.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range pages(t) {
		page, ok := strings.CutPrefix(name, "docs/")
		if ok && page != "README.md" && !strings.Contains(string(index), "]("+page+")") {
			t.Errorf("docs/README.md has no link to %s", page)
		}
	}
}

// files are those of the repository, by their path from its root.
func files(t *testing.T) map[string]bool {
	t.Helper()
	tree := map[string]bool{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		if d.IsDir() {
			if slices.Contains([]string{".git", "bin", "dist", ".demo"}, name) {
				return filepath.SkipDir
			}
			return nil
		}
		if d.Type().IsRegular() {
			tree[name] = true
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return tree
}

// linkFaults says which links and paths of a page lead nowhere.
func linkFaults(name, text string, tree map[string]bool, read func(string) string) []string {
	var faults []string
	prose := fenced.ReplaceAllString(text, "")
	for _, m := range link.FindAllStringSubmatch(prose, -1) {
		if strings.Contains(m[1], "://") || strings.HasPrefix(m[1], "mailto:") {
			continue
		}
		target, anchor, _ := strings.Cut(m[1], "#")
		path := name
		if target != "" {
			path = filepath.Join(filepath.Dir(name), target)
		}
		if _, err := os.Stat(filepath.Join(root, path)); err != nil {
			faults = append(faults, fmt.Sprintf("the link %s leads nowhere", m[1]))
			continue
		}
		if anchor != "" && !slices.Contains(anchors(read(path)), anchor) {
			faults = append(faults, fmt.Sprintf("the link %s: there is no such heading", m[1]))
		}
	}
	for _, m := range inCode.FindAllStringSubmatch(prose, -1) {
		if !exists(m[1], tree) {
			faults = append(faults, fmt.Sprintf("there is no %s", m[1]))
		}
	}
	return faults
}

// exists tells whether a path that a page names is there: from the root, as a
// file, a folder or a pattern, or for a Go file as the end of its path.
func exists(path string, tree map[string]bool) bool {
	path = strings.TrimSuffix(path, "/...")
	if found, err := filepath.Glob(filepath.Join(root, path)); err == nil && len(found) > 0 {
		return true
	}
	for name := range tree {
		if strings.HasSuffix(name, "/"+path) {
			return true
		}
	}
	return false
}

// anchors are the ids that renderers give to a page's headings.
func anchors(text string) []string {
	var ids []string
	for _, m := range heading.FindAllStringSubmatch(fenced.ReplaceAllString(text, ""), -1) {
		id := strings.Map(func(r rune) rune {
			switch {
			case r == ' ':
				return '-'
			case r == '-' || r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r):
				return unicode.ToLower(r)
			default:
				return -1
			}
		}, m[1])
		ids = append(ids, id)
	}
	return ids
}

func TestAnchors(t *testing.T) {
	got := anchors("# A title\n\n```\n# no title\n```\n## 1. The `API` key, and_more\n")
	if want := []string{"a-title", "1-the-api-key-and_more"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestLinkFaults(t *testing.T) {
	text := "[a](nowhere.md) [b](#none) [c](https://example.org/x) `provider/none.go` `Makefile` `store/commit.go`"
	got := linkFaults("docs/README.md", text, files(t), func(string) string { return text })
	want := []string{"the link nowhere.md leads nowhere", "the link #none: there is no such heading", "there is no provider/none.go"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("faults (-want +got):\n%s", diff)
	}
}
