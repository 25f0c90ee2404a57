package host

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"gopkg.in/yaml.v3"
)

// mergeCases are documents and rules; each pair is merged under each rule.
var mergeCases = struct{ pairs, rules []string }{
	pairs: []string{
		"{a: [1, 2, 3], s: x, d: {k: [1], t: u}, n: null}\n---\n{a: [4], s: y, d: {k: [2], t: v, w: 1}, n: [1]}",
		"{a: [{p: 1, q: [1]}, {p: 2}]}\n---\n{a: [{p: 3, q: [2, 3]}]}",
		"{a: [1], b: 1}\n---\n{b: null, c: 2}",
		"{a: text}\n---\n{a: other}",
		"{a: [[1, 2], x]}\n---\n{a: [[3], y, z]}",
		"{}\n---\n{a: [1], d: {}}",
	},
	rules: []string{
		"",
		"dict(replace)+list()+str()",
		"dict(no_replace,recurse_list)+list(prepend)+str()",
		"list(append)+dict(recurse_array)+str()",
		"dict(recurse_array,recurse_str,no_replace)+list(append)+str(append)",
		"dict(allow_delete,recurse_list)+list(no_replace)+str()",
		"dict(recurse_list,recurse_str)+list(recurse_dict,recurse_list,recurse_str)+str(append)",
		"dict(recurse_list)",
		"list(append)",
		" Dict(Recurse-Array) + List(Append) + list(prepend)",
	},
}

func mergePair(t *testing.T, pair, rule string) map[string]any {
	t.Helper()
	dec := yaml.NewDecoder(bytes.NewReader([]byte(pair)))
	var old, part map[string]any
	if err := dec.Decode(&old); err != nil {
		t.Fatal(err)
	}
	if err := dec.Decode(&part); err != nil {
		t.Fatal(err)
	}
	m, err := newMerger(part, rule)
	if err != nil {
		t.Fatal(err)
	}
	out, ok := m.merge(old, part).(map[string]any)
	if !ok {
		t.Fatal("not a mapping")
	}
	return out
}

// The results in testdata were made by cloud-init 22.4.2. Where it is installed
// they are made again and compared.
func TestMergeIsCloudInits(t *testing.T) {
	const golden = "testdata/merged.json"
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	var results []map[string]any
	if err := json.Unmarshal(want, &results); err != nil {
		t.Fatal(err)
	}
	i := 0
	for _, pair := range mergeCases.pairs {
		for _, rule := range mergeCases.rules {
			got := mergePair(t, pair, rule)
			raw, err := json.Marshal(got)
			if err != nil {
				t.Fatal(err)
			}
			got = nil
			if err := json.Unmarshal(raw, &got); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(results[i], got); diff != "" {
				t.Errorf("rule %q on\n%s\n(-cloud-init +ours):\n%s", rule, pair, diff)
			}
			i++
		}
	}
	if i != len(results) {
		t.Errorf("%d cases, %d results", i, len(results))
	}
}

func TestMergeResultsAreCurrent(t *testing.T) {
	if _, err := exec.LookPath("cloud-init"); err != nil {
		t.Skip("cloud-init is not installed: apt-get install cloud-init")
	}
	cases := filepath.Join(t.TempDir(), "cases.json")
	raw, err := json.Marshal(map[string]any{"pairs": mergeCases.pairs, "rules": mergeCases.rules})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(cases, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("/usr/bin/python3", "testdata/merge.py", cases).Output()
	if err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile("testdata/merged.json")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(out)); diff != "" {
		t.Errorf("testdata/merge.py gives other results (-file +now):\n%s", diff)
	}
}

func TestMergeRuleErrors(t *testing.T) {
	for _, rule := range []string{"append", "tuple(x)", "dict(", "list()+nonsense"} {
		if _, err := newMerger(map[string]any{}, rule); err == nil {
			t.Errorf("%q is taken", rule)
		}
	}
	for _, how := range []any{1, []any{"x"}, []any{map[string]any{"name": "set"}}} {
		if _, err := newMerger(map[string]any{"merge_how": how}, ""); err == nil {
			t.Errorf("%s is taken", fmt.Sprint(how))
		}
	}
}

func TestMergeHowAsList(t *testing.T) {
	part := map[string]any{"merge_how": []any{
		map[string]any{"name": "list", "settings": []any{"append"}},
		map[string]any{"name": "dict", "settings": []any{"no_replace", "recurse_list"}},
	}, "a": []any{2}}
	m, err := newMerger(part, "list(prepend)")
	if err != nil {
		t.Fatal(err)
	}
	got := m.merge(map[string]any{"a": []any{1}}, part)
	if diff := cmp.Diff(map[string]any{"a": []any{1, 2}}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
