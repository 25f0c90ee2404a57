package provider

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// metricRow is a row of the metrics table in docs/operations.md: name, type,
// labels.
var metricRow = regexp.MustCompile("(?m)^\\| `(bigfleet_[a-z_]+)` \\| (counter|gauge|histogram) \\| ([a-z, ]*?) ?\\|")

// TestEveryMetricIsDocumented keeps the table in docs/operations.md to the
// constants of package telemetry and what their comments say of type and labels.
func TestEveryMetricIsDocumented(t *testing.T) {
	page, err := os.ReadFile("../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	documented := map[string]string{}
	for _, m := range metricRow.FindAllStringSubmatch(string(page), -1) {
		documented[m[1]] = strings.TrimSuffix(m[2]+": "+m[3], ": ")
	}
	file, err := parser.ParseFile(token.NewFileSet(), "internal/telemetry/telemetry.go", nil, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok || !strings.HasPrefix(spec.Names[0].Name, "Metric") {
			return true
		}
		found++
		name, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
		if err != nil {
			t.Fatal(err)
		}
		got, ok := documented[name]
		delete(documented, name)
		// A comment says the type and labels, and after a semicolon what is
		// measured. The build info has none: its labels are not constants.
		want, _, _ := strings.Cut(strings.TrimSpace(spec.Comment.Text()), ";")
		if !ok || want != "" && got != want {
			t.Errorf("%s: docs/operations.md says %q (found: %v), telemetry.go says %q", name, got, ok, want)
		}
		return true
	})
	if found == 0 {
		t.Error("telemetry.go: no constant that begins with Metric")
	}
	for name := range documented {
		t.Errorf("%s: documented, but no constant of telemetry.go", name)
	}
}
