package deploy

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// parentChart is a chart with this one below it, once by its name and once under
// another, each with the values of production.
func parentChart(t *testing.T, values map[string]any) string {
	t.Helper()
	dir := t.TempDir()
	production := map[string]any{}
	if err := yaml.Unmarshal([]byte(read(t, filepath.Join(chart, "ci", "2-production.yaml"))), &production); err != nil {
		t.Fatal(err)
	}
	aliased := map[string]any{}
	maps.Copy(aliased, production)
	aliased["fullnameOverride"] = "second"
	all := map[string]any{"bigfleet-provider": production, "other": aliased}
	for k, v := range values {
		if below, ok := all[k].(map[string]any); ok {
			maps.Copy(below, v.(map[string]any))
			continue
		}
		all[k] = v
	}
	content, err := yaml.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	const about = `apiVersion: v2
name: parent
version: 1.0.0
dependencies:
  - {name: bigfleet-provider, version: "*", condition: bigfleet-provider.enabled, tags: [fleet]}
  - {name: bigfleet-provider, version: "*", alias: other, condition: other.enabled, tags: [fleet]}
`
	err = errors.Join(
		os.CopyFS(filepath.Join(dir, "charts", "bigfleet-provider"), os.DirFS(chart)),
		os.WriteFile(filepath.Join(dir, "Chart.yaml"), []byte(about), 0o600),
		os.WriteFile(filepath.Join(dir, "values.yaml"), content, 0o600),
	)
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestAsSubchart: what Helm and a parent chart put into a subchart's values
// passes the schema, and switches it on and off.
func TestAsSubchart(t *testing.T) {
	type of = map[string]any
	for name, tc := range map[string]struct {
		values of
		want   []string // names of Deployments
	}{
		"no condition":          {of{}, []string{"release", "second"}},
		"condition says yes":    {of{"bigfleet-provider": of{"enabled": true}, "other": of{"enabled": true}}, []string{"release", "second"}},
		"condition says no":     {of{"bigfleet-provider": of{"enabled": false}, "other": of{"enabled": true}}, []string{"second"}},
		"tags":                  {of{"tags": of{"fleet": false}, "bigfleet-provider": of{"enabled": true}}, []string{"release"}},
		"globals":               {of{"global": of{"imageRegistry": "registry.example", "deep": of{"er": []string{"x"}}}}, []string{"release", "second"}},
		"tags among its own":    {of{"bigfleet-provider": of{"tags": of{"fleet": true}}}, []string{"release", "second"}},
		"globals among its own": {of{"bigfleet-provider": of{"global": of{"x": "y"}}}, []string{"release", "second"}},
	} {
		t.Run(name, func(t *testing.T) {
			parent := parentChart(t, tc.values)
			stdout, stderr, err := helm(t, "template", "release", parent, "--namespace", namespace, "--kube-version", "1.37.2")
			if err != nil {
				t.Fatalf("%v\n%s", err, stderr)
			}
			var got []string
			for document := range strings.SplitSeq(stdout, "\n---\n") {
				var o struct {
					Kind     string `json:"kind"`
					Metadata struct {
						Name string `json:"name"`
					} `json:"metadata"`
				}
				if err := yaml.Unmarshal([]byte(document), &o); err != nil {
					t.Fatal(err)
				}
				if o.Kind == "Deployment" {
					got = append(got, o.Metadata.Name)
				}
			}
			if strings.Join(got, " ") != strings.Join(tc.want, " ") {
				t.Errorf("Deployments %q, want %q", got, tc.want)
			}
			if stdout, stderr, err = helm(t, "lint", parent, "--with-subcharts"); err != nil {
				t.Errorf("lint: %v\n%s%s", err, stdout, stderr)
			}
		})
	}
}
