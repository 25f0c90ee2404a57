package deploy

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestDocumentedTerraformNames: what the credentials page types at tofu is in the
// module. The commands themselves need an account.
func TestDocumentedTerraformNames(t *testing.T) {
	content, err := os.ReadFile(filepath.Join(docs, "credentials.md"))
	if err != nil {
		t.Fatal(err)
	}
	m := parseModule(t)
	names := func(pattern string) (found []string) {
		for _, match := range regexp.MustCompile(pattern).FindAllStringSubmatch(string(content), -1) {
			found = append(found, match[1])
		}
		slices.Sort(found)
		return slices.Compact(found)
	}
	variables, outputs, addresses := names(`-var (\w+)=`), names(`tofu output -raw (\w+)`), names(`\b(scaleway_\w+\.\w+)\b`)
	for _, v := range variables {
		if m.variables[v] == nil {
			t.Errorf("the page sets %s, which is no variable of the module", v)
		}
	}
	for _, o := range outputs {
		if m.outputs[o] == nil {
			t.Errorf("the page reads %s, which is no output of the module", o)
		}
	}
	for _, a := range addresses {
		kind, name, _ := strings.Cut(a, ".")
		if r := m.resources[kind]; r == nil || r.Labels[1] != name {
			t.Errorf("the page names %s, which is no resource of the module", a)
		}
	}
	for what, want := range map[string]bool{
		"organization_id, project_id and name": slices.Contains(variables, "organization_id") && slices.Contains(variables, "project_id") && slices.Contains(variables, "name"),
		"the key's outputs":                    slices.Contains(outputs, "access_key") && slices.Contains(outputs, "secret_key") && slices.Contains(outputs, "project_id"),
		"the key's address":                    slices.Contains(addresses, "scaleway_iam_api_key.provider"),
	} {
		if !want {
			t.Errorf("the page no longer names %s; so this test looks at nothing", what)
		}
	}
}
