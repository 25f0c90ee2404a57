package lifecycle

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"bigfleet-providers/provider/internal/machine"
)

// TestEveryClassIsDocumented holds the table in docs/troubleshooting.md to the
// classes that last_error can name, and to the advice at its end; what of that are
// Hints, their own test compares, where they are made.
func TestEveryClassIsDocumented(t *testing.T) {
	content, err := os.ReadFile("../../../docs/troubleshooting.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(content), "\n## What last_error says\n")
	section, _, _ = strings.Cut(section, "\n## ")
	rows := map[string]string{}
	for _, m := range regexp.MustCompile("(?m)^\\| `([a-z]+)` \\| (.+) \\|$").FindAllStringSubmatch(section, -1) {
		rows[m[1]] = m[2]
	}

	var classes, documented []string
	for _, class := range declaredClasses(t) {
		if class != classOK && class != classSkipped { // no failures of a transition
			classes = append(classes, class)
		}
	}
	for class := range rows {
		documented = append(documented, class)
	}
	slices.Sort(classes)
	slices.Sort(documented)
	if diff := cmp.Diff(classes, documented); diff != "" {
		t.Fatalf("classes (-failure.go +docs/troubleshooting.md):\n%s", diff)
	}
	for class, row := range rows {
		if class == classAgent {
			continue
		}
		if words := (Hints{CallRate: "--api-rate"}).advice(machine.Create, "", class); !strings.Contains(row, "*"+words+"*") {
			t.Errorf("class %s: docs/troubleshooting.md lacks the advice *%s*", class, words)
		}
	}
}

// declaredClasses are the values of the constants class… in failure.go.
func declaredClasses(t *testing.T) []string {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "failure.go", nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	var classes []string
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok {
			return true
		}
		for i, name := range spec.Names {
			if !strings.HasPrefix(name.Name, "class") || i >= len(spec.Values) {
				continue
			}
			if text, ok := spec.Values[i].(*ast.BasicLit); ok {
				class, err := strconv.Unquote(text.Value)
				if err != nil {
					t.Fatal(err)
				}
				classes = append(classes, class)
			}
		}
		return true
	})
	return classes
}
