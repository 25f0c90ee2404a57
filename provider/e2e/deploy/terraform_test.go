package deploy

import (
	"bytes"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/ext/tryfunc"
	"github.com/hashicorp/hcl/v2/hclparse"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/hashicorp/hcl/v2/hclwrite"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/function"
	"github.com/zclconf/go-cty/cty/function/stdlib"
)

const iamFolder = "../../../deploy/iam/scaleway"

// arguments are what the vendor's Terraform provider takes in each resource that
// the module uses (its documentation, release 2.x), and the attributes that it
// gives back.
var arguments = map[string]struct{ takes, blocks, gives []string }{
	"scaleway_iam_application": {
		takes: []string{"name", "description", "organization_id", "tags"},
		gives: []string{"id", "created_at", "updated_at", "editable"},
	},
	"scaleway_iam_policy": {
		takes:  []string{"name", "description", "tags", "organization_id", "user_id", "group_id", "application_id", "no_principal"},
		blocks: []string{"rule"},
		gives:  []string{"id", "created_at", "updated_at", "editable"},
	},
	"scaleway_iam_api_key": {
		takes: []string{"application_id", "user_id", "description", "expires_at", "default_project_id"},
		gives: []string{"id", "access_key", "secret_key", "created_at", "updated_at", "editable", "creation_ip"},
	},
}

// ruleTakes are the arguments of a policy's rule.
var ruleTakes = []string{"organization_id", "project_ids", "permission_set_names", "condition"}

// metaArguments are Terraform's own, in any resource.
var metaArguments = []string{"depends_on", "count", "for_each", "provider"}

// module is the parsed folder.
type module struct {
	variables, resources map[string]*hclsyntax.Block
	outputs              map[string]*hclsyntax.Block
	locals               hclsyntax.Attributes
}

func parseModule(t *testing.T) module {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(iamFolder, "*.tf"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no files: %v", err)
	}
	m := module{map[string]*hclsyntax.Block{}, map[string]*hclsyntax.Block{}, map[string]*hclsyntax.Block{}, hclsyntax.Attributes{}}
	parser := hclparse.NewParser()
	for _, file := range files {
		parsed, diags := parser.ParseHCLFile(file)
		if diags.HasErrors() {
			t.Fatal(diags)
		}
		for _, block := range parsed.Body.(*hclsyntax.Body).Blocks {
			switch block.Type {
			case "variable":
				m.variables[block.Labels[0]] = block
			case "output":
				m.outputs[block.Labels[0]] = block
			case "resource":
				m.resources[block.Labels[0]] = block
				if block.Labels[1] != "provider" {
					t.Errorf("resource %q: the documentation calls each one provider", block.Labels)
				}
			case "locals":
				maps.Copy(m.locals, block.Body.Attributes)
			case "terraform", "provider":
			default:
				t.Errorf("%s: a block that no test knows", block.Type)
			}
		}
	}
	return m
}

func TestTerraformIsFormatted(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(iamFolder, "*.tf"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(hclwrite.Format(content), content) {
			t.Errorf("%s is not formatted; run: tofu fmt", file)
		}
	}
}

// TestTerraformIsOfTheProvider: what the module says to the vendor's provider is
// in that one's documentation. The plugin itself is not at hand in a test.
func TestTerraformIsOfTheProvider(t *testing.T) {
	m := parseModule(t)
	for name := range arguments {
		if m.resources[name] == nil {
			t.Errorf("no %s", name)
		}
	}
	for name, block := range m.resources {
		known, ok := arguments[name]
		if !ok {
			t.Errorf("resource %s: not among those the documentation was read for", name)
		}
		for attribute := range block.Body.Attributes {
			if !slices.Contains(known.takes, attribute) && !slices.Contains(metaArguments, attribute) {
				t.Errorf("%s.%s: no such argument", name, attribute)
			}
		}
		for _, inner := range block.Body.Blocks {
			switch {
			case inner.Type == "lifecycle":
			case slices.Contains(known.blocks, inner.Type):
				for attribute := range inner.Body.Attributes {
					if !slices.Contains(ruleTakes, attribute) {
						t.Errorf("%s.%s.%s: no such argument", name, inner.Type, attribute)
					}
				}
			default:
				t.Errorf("%s.%s: no such block", name, inner.Type)
			}
		}
		m.checkReferences(t, block.Body)
	}
	for _, output := range m.outputs {
		m.checkReferences(t, output.Body)
	}
	for _, secret := range []string{"access_key", "secret_key"} {
		sensitive := m.outputs[secret].Body.Attributes["sensitive"]
		if sensitive == nil {
			t.Errorf("output %s is printed by every apply", secret)
			continue
		}
		if v, diags := sensitive.Expr.Value(nil); diags.HasErrors() || v.False() {
			t.Errorf("output %s is printed by every apply", secret)
		}
	}
}

func (m module) checkReferences(t *testing.T, body *hclsyntax.Body) {
	t.Helper()
	for _, attribute := range body.Attributes {
		for _, traversal := range attribute.Expr.Variables() {
			m.checkReference(t, traversal)
		}
	}
	for _, inner := range body.Blocks {
		m.checkReferences(t, inner.Body)
	}
}

// checkReference: what an expression names has to be there.
func (m module) checkReference(t *testing.T, traversal hcl.Traversal) {
	t.Helper()
	second := ""
	if len(traversal) > 1 {
		if attribute, ok := traversal[1].(hcl.TraverseAttr); ok {
			second = attribute.Name
		}
	}
	switch root := traversal.RootName(); {
	case root == "var" && m.variables[second] != nil:
	case root == "local" && m.locals[second] != nil:
	case m.resources[root] != nil && second == "provider":
		if len(traversal) > 2 {
			if attribute, ok := traversal[2].(hcl.TraverseAttr); ok && !slices.Contains(slices.Concat(arguments[root].gives, arguments[root].takes), attribute.Name) {
				t.Errorf("%s.%s: no such attribute", root, attribute.Name)
			}
		}
	default:
		t.Errorf("%s.%s: nothing has this name", root, second)
	}
}

// TestTerraformKeepsTheIdentity: a destroy with servers still running must not
// take away the only key that can delete them, and a new key comes before the
// old one goes.
func TestTerraformKeepsTheIdentity(t *testing.T) {
	m := parseModule(t)
	for resource, guard := range map[string]string{"scaleway_iam_application": "prevent_destroy", "scaleway_iam_api_key": "create_before_destroy"} {
		set := false
		for _, inner := range m.resources[resource].Body.Blocks {
			if inner.Type == "lifecycle" && inner.Body.Attributes[guard] != nil {
				v, diags := inner.Body.Attributes[guard].Expr.Value(nil)
				set = !diags.HasErrors() && v.True()
			}
		}
		if !set {
			t.Errorf("%s: no %s", resource, guard)
		}
	}
}

// scope evaluates expressions as Terraform does, as far as the module goes.
type scope struct {
	t      *testing.T
	values map[string]cty.Value
}

// open sets the variables, with their defaults, and works out the locals.
func (m module) open(t *testing.T, set map[string]cty.Value) *scope {
	t.Helper()
	s := &scope{t: t, values: map[string]cty.Value{}}
	variables := map[string]cty.Value{}
	for name, block := range m.variables {
		value, given := set[name]
		if !given {
			attribute := block.Body.Attributes["default"]
			if attribute == nil {
				t.Fatalf("variable %s has no default and is not set", name)
			}
			value = s.value(attribute.Expr)
		}
		variables[name] = value
	}
	for name := range set {
		if m.variables[name] == nil {
			t.Fatalf("no variable %s", name)
		}
	}
	s.values["var"] = cty.ObjectVal(variables)
	for name, block := range m.variables {
		for _, inner := range block.Body.Blocks {
			if inner.Type == "validation" && s.value(inner.Body.Attributes["condition"].Expr).False() {
				t.Errorf("variable %s: %s", name, s.value(inner.Body.Attributes["error_message"].Expr).AsString())
			}
		}
	}
	locals := map[string]cty.Value{}
	for name, attribute := range m.locals {
		locals[name] = s.value(attribute.Expr)
	}
	s.values["local"] = cty.ObjectVal(locals)
	return s
}

func (s *scope) value(e hcl.Expression) cty.Value {
	s.t.Helper()
	v, diags := e.Value(&hcl.EvalContext{Variables: s.values, Functions: map[string]function.Function{
		"concat": stdlib.ConcatFunc, "can": tryfunc.CanFunc, "regex": stdlib.RegexFunc,
	}})
	if diags.HasErrors() {
		s.t.Fatal(diags)
	}
	return v
}

// text is a string argument of a body; nil where it is not given or null.
func (s *scope) text(body *hclsyntax.Body, name string) *string {
	s.t.Helper()
	attribute := body.Attributes[name]
	if attribute == nil {
		return nil
	}
	v := s.value(attribute.Expr)
	if v.IsNull() {
		return nil
	}
	return new(v.AsString())
}

// list is a list of strings.
func (s *scope) list(body *hclsyntax.Body, name string) []string {
	s.t.Helper()
	var out []string
	for _, v := range s.value(body.Attributes[name].Expr).AsValueSlice() {
		out = append(out, v.AsString())
	}
	return out
}
