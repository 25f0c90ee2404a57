package provider

import (
	"cmp"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

// flagRow is a row of the tables in docs/configuration.md: flag, default,
// environment. "none" stands for the empty default.
var flagRow = regexp.MustCompile("(?m)^\\| `--([a-z-]+)` \\| (none|`[^`]+`) \\| (`[A-Z_]+`)? ?\\| (.+) \\|$")

// TestEveryFlagIsDocumented keeps docs/configuration.md to what the program
// does: its flags, their defaults and the variables they fall back to.
func TestEveryFlagIsDocumented(t *testing.T) {
	page, err := os.ReadFile("../docs/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	type row struct{ value, variable string }
	documented := map[string]row{}
	for _, m := range flagRow.FindAllStringSubmatch(string(page), -1) {
		if _, twice := documented[m[1]]; twice {
			t.Errorf("--%s: documented twice", m[1])
		}
		value := strings.Trim(m[2], "`")
		if m[2] == "none" {
			value = ""
		}
		documented[m[1]] = row{value, strings.Trim(m[3], "`")}
	}
	variables := map[string]string{}
	for _, e := range environment {
		variables[e.flag] = e.variable
	}
	(&Config{}).flags().VisitAll(func(f *pflag.Flag) {
		got, ok := documented[f.Name]
		delete(documented, f.Name)
		value := f.DefValue
		if f.Name == "zone" { // Load sets it, after the environment
			value = cmp.Or(value, defaultZone)
		}
		if want := (row{value, variables[f.Name]}); !ok || got != want {
			t.Errorf("--%s: docs/configuration.md says %+v (found: %v), the program %+v", f.Name, got, ok, want)
		}
	})
	for name := range documented {
		t.Errorf("--%s: documented, but no flag of the program", name)
	}
}
