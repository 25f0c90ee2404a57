package structure

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const root = "../../.."

var (
	// proof is how a page names tests: the package, by the end of its path, and
	// the tests in it.
	proof = regexp.MustCompile("`([a-z0-9/-]+)`:\\s+((?:`(?:Test|Fuzz)[A-Z][A-Za-z0-9]*`(?:,\\s+)?)+)")
	named = regexp.MustCompile("`((?:Test|Fuzz)[A-Z][A-Za-z0-9]*)`")
)

// TestProofsExist: pages that name tests as proofs name tests that exist, with
// their package.
func TestProofsExist(t *testing.T) {
	packages := tests(t)
	pages, err := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range append(pages, filepath.Join(root, "ARCHITECTURE.md")) {
		content, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		page := filepath.Base(path)
		for _, fault := range proofFaults(string(content), packages) {
			t.Errorf("%s: %s", page, fault)
		}
		if (page == "ARCHITECTURE.md" || page == "security.md") && !proof.Match(content) {
			t.Errorf("%s names no proof", page)
		}
	}
}

// proofFaults says which proofs of a text do not exist.
func proofFaults(text string, packages map[string][]string) []string {
	var faults []string
	for _, m := range proof.FindAllStringSubmatch(text, -1) {
		for _, name := range named.FindAllStringSubmatch(m[2], -1) {
			found := false
			for dir, tests := range packages {
				found = found || strings.HasSuffix("/"+dir, "/"+m[1]) && slices.Contains(tests, name[1])
			}
			if !found {
				faults = append(faults, "no package "+m[1]+" has "+name[1])
			}
		}
	}
	// Elsewhere a test may be named by itself, and must exist all the same.
	for _, name := range named.FindAllStringSubmatch(proof.ReplaceAllString(text, ""), -1) {
		found := false
		for _, tests := range packages {
			found = found || slices.Contains(tests, name[1])
		}
		if !found {
			faults = append(faults, "there is no "+name[1])
		}
	}
	return faults
}

func TestProofFaults(t *testing.T) {
	packages := map[string][]string{"a/store": {"TestA", "FuzzB"}, "c": {"TestC"}}
	for text, want := range map[string]int{
		"`store`: `TestA`,\n`FuzzB`; `c`: `TestC` and by itself `TestC`": 0,
		"`a/store`: `TestA`":          0,
		"`ore`: `TestA`":              1,
		"`store`: `TestC`":            1,
		"`store`: `TestA`, `TestNo`.": 1,
		"by itself `TestNo`":          1,
	} {
		if got := proofFaults(text, packages); len(got) != want {
			t.Errorf("%q has the faults %q, want %d", text, got, want)
		}
	}
}

// tests lists the tests and fuzz targets of every package, by its folder.
func tests(t *testing.T) map[string][]string {
	t.Helper()
	found := map[string][]string{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		dir, err := filepath.Rel(root, filepath.Dir(path))
		if err != nil {
			return err
		}
		for _, decl := range file.Decls {
			if f, ok := decl.(*ast.FuncDecl); ok && f.Recv == nil {
				found[filepath.ToSlash(dir)] = append(found[filepath.ToSlash(dir)], f.Name.Name)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}
