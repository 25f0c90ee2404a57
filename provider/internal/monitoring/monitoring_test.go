package monitoring

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"gopkg.in/yaml.v3"

	"bigfleet-providers/provider/internal/telemetry"
)

const root = "../../../"

func read(t *testing.T, path string) []byte {
	t.Helper()
	content, err := os.ReadFile(root + path)
	if err != nil {
		t.Fatal(err)
	}
	return content
}

// TestFilesAreCurrent fails when `make generate` would change something.
func TestFilesAreCurrent(t *testing.T) {
	for _, cloud := range Clouds() {
		files, err := Files(cloud)
		if err != nil {
			t.Fatal(err)
		}
		for path, want := range files {
			if diff := cmp.Diff(string(want), string(read(t, path))); diff != "" {
				t.Errorf("%s: run make generate (-generated +file):\n%s", path, diff)
			}
		}
	}
	page := read(t, DocsFile)
	want, err := Docs(Clouds()[0], page)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(page)); diff != "" {
		t.Errorf("%s: run make generate (-generated +file):\n%s", DocsFile, diff)
	}
	if _, err := Docs("scaleway", []byte("no marks")); err == nil {
		t.Error("a page without marks was taken")
	}
}

func TestPrefixIsTheCloudsOwn(t *testing.T) {
	files, err := Files("hetzner")
	if err != nil {
		t.Fatal(err)
	}
	if len(files) != 2 {
		t.Errorf("%d files", len(files))
	}
	for path, content := range files {
		if !strings.Contains(path, "hetzner") || !bytes.Contains(content, []byte("bigfleet_hetzner_")) || bytes.Contains(content, []byte("scaleway")) {
			t.Errorf("%s is not only about its cloud", path)
		}
	}
}

// expressions are those of the rules and of the dashboard, by where they are.
func expressions() map[string]string {
	all := map[string]string{}
	for _, a := range alerts() {
		all["alert "+a.name] = a.expr
	}
	for _, s := range sections() {
		for _, c := range s.charts {
			for i, line := range c.series {
				all[fmt.Sprintf("chart %s, %s, %d", s.title, c.title, i)] = line.expr
			}
		}
	}
	return all
}

var (
	metricName = regexp.MustCompile(`bigfleet_([a-z_]+)(\{[^}]*\})?`)
	matcher    = regexp.MustCompile(`([a-z_]+)\s*(=|!=|=~|!~)\s*"([^"]*)"`)
	grouping   = regexp.MustCompile(`(?:by|without|ignoring|on) \(([^)]*)\)`)
)

// TestExpressionsNameWhatExists: a metric or label that does not exist is no
// error to Prometheus; the alert would never fire.
func TestExpressionsNameWhatExists(t *testing.T) {
	known := map[string]telemetry.Metric{}
	for _, m := range telemetry.Metrics() {
		known[m.Name] = m
		if m.Type == telemetry.Histogram {
			for _, suffix := range []string{"_bucket", "_sum", "_count"} {
				known[m.Name+suffix] = m
			}
			delete(known, m.Name)
		}
	}
	used := map[string]bool{}
	for place, expr := range expressions() {
		labels := []string{"le", "instance", "job", "namespace", ""} // of histograms, and of the target
		for _, found := range metricName.FindAllStringSubmatch(expr, -1) {
			m, ok := known[found[1]]
			if !ok {
				t.Errorf("%s: no metric %s", place, found[1])
				continue
			}
			used[m.Name] = true
			labels = append(labels, m.Labels...)
			for _, l := range matcher.FindAllStringSubmatch(found[2], -1) {
				if !slices.Contains(m.Labels, l[1]) && l[1] != "instance" {
					t.Errorf("%s: %s has no label %s", place, found[1], l[1])
				}
			}
		}
		for _, g := range grouping.FindAllStringSubmatch(expr, -1) {
			for l := range strings.SplitSeq(g[1], ",") {
				if l = strings.TrimSpace(l); !slices.Contains(labels, l) {
					t.Errorf("%s: groups by %s, which none of its metrics has", place, l)
				}
			}
		}
	}
	for _, m := range telemetry.Metrics() {
		if !used[m.Name] && !slices.Contains(unused, m.Name) {
			t.Errorf("%s is in no alert and no chart: show it, or say in this test why not", m.Name)
		}
	}
}

// unused metrics are for questions that a dashboard does not ask.
var unused = []string{
	"cloud_requests_in_flight",         // an instant's value, for debugging
	"certificate_reloads_total",        // the log has each
	"channel_contested_machines",       // capacityctl names them
	"channel_previous_secret_machines", // during a rotation
}

func TestEveryAlertIsComplete(t *testing.T) {
	page := string(read(t, DocsFile))
	seen := map[string]bool{}
	for _, a := range alerts() {
		if seen[a.name] {
			t.Errorf("%s: twice", a.name)
		}
		seen[a.name] = true
		_, runbook, found := strings.Cut(page, "\n### "+a.name+"\n\n")
		runbook, _, _ = strings.Cut(runbook, "\n##")
		if !found || len(runbook) < 40 {
			t.Errorf("%s: %s has no runbook of that name", a.name, DocsFile)
		}
		if a.severity != critical && a.severity != warning {
			t.Errorf("%s: severity %q", a.name, a.severity)
		}
		if a.summary == "" || !strings.HasSuffix(a.when, ".") {
			t.Errorf("%s: summary %q, when %q", a.name, a.summary, a.when)
		}
	}
	for _, heading := range regexp.MustCompile(`(?m)^### (BigFleet\w+)$`).FindAllStringSubmatch(page, -1) {
		if !seen[heading[1]] {
			t.Errorf("%s: a runbook of %s, which is no alert", DocsFile, heading[1])
		}
	}
}

// promtool runs Prometheus' own checker.
func promtool(t *testing.T, args ...string) {
	t.Helper()
	path, err := exec.LookPath("promtool")
	if err != nil {
		t.Skip("promtool is not installed; make setup brings it")
	}
	if out, err := exec.CommandContext(t.Context(), path, args...).CombinedOutput(); err != nil {
		t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// TestRulesFire runs the scenarios beside the rules; each alert must fire in one.
func TestRulesFire(t *testing.T) {
	const tests = "deploy/monitoring/scaleway-rules-test.yaml"
	scenarios := string(read(t, tests))
	for _, a := range alerts() {
		if !strings.Contains(scenarios, `"`+a.name+`"`) {
			t.Errorf("%s: fires in no scenario of %s", a.name, tests)
		}
	}
	promtool(t, "test", "rules", root+tests)
}

// TestExpressionsParse has Prometheus parse the rules, and the dashboard's
// expressions as if they were some.
func TestExpressionsParse(t *testing.T) {
	promtool(t, "check", "rules", root+"deploy/monitoring/scaleway-rules.yaml")
	type recording struct{ Record, Expr string }
	var all []recording
	for i, place := range slices.Sorted(func(yield func(string) bool) {
		for place := range expressions() {
			if !yield(place) {
				return
			}
		}
	}) {
		expr := strings.NewReplacer("$__rate_interval", "5m", "$instance", ".*").Replace(expand("scaleway", expressions()[place]))
		if strings.Contains(expr, "$") {
			t.Errorf("%s: a variable that the dashboard does not have: %s", place, expr)
		}
		all = append(all, recording{fmt.Sprint("expression:", i), expr})
	}
	content, err := yaml.Marshal(map[string]any{"groups": []any{map[string]any{"name": "dashboard", "rules": all}}})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "dashboard-rules.yaml")
	if err := os.WriteFile(file, content, 0o600); err != nil {
		t.Fatal(err)
	}
	promtool(t, "check", "rules", file)
}

// TestDashboardModel checks what Grafana expects of a model of this version, and
// that no chart hides another.
func TestDashboardModel(t *testing.T) {
	content, err := Dashboard("scaleway")
	if err != nil {
		t.Fatal(err)
	}
	var model map[string]any
	if err := json.Unmarshal(content, &model); err != nil {
		t.Fatal(err)
	}
	for _, field := range []string{"uid", "title", "tags", "schemaVersion", "refresh", "time", "templating", "annotations", "panels", "editable", "graphTooltip", "timezone"} {
		if _, ok := model[field]; !ok {
			t.Errorf("no %s", field)
		}
	}
	var d dashboard
	if err := json.Unmarshal(content, &d); err != nil {
		t.Fatal(err)
	}
	if len(d.UID) > 40 || d.SchemaVersion < 36 { // 36 brought data sources as objects
		t.Errorf("uid %q, schemaVersion %d", d.UID, d.SchemaVersion)
	}
	ids, taken := map[int]bool{}, map[[2]int]string{}
	for _, p := range d.Panels {
		if p.ID == 0 || ids[p.ID] {
			t.Errorf("%s: id %d is taken", p.Title, p.ID)
		}
		ids[p.ID] = true
		if g := p.GridPos; g.W < 1 || g.H < 1 || g.X < 0 || g.X+g.W > columns {
			t.Errorf("%s: at %+v", p.Title, g)
		}
		for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
			for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
				if other := taken[[2]int{x, y}]; other != "" {
					t.Fatalf("%s lies over %s", p.Title, other)
				}
				taken[[2]int{x, y}] = p.Title
			}
		}
		if p.Type == "row" {
			continue
		}
		if p.Title == "" || p.Datasource == nil || p.Datasource.UID != "${datasource}" || p.FieldConfig == nil || len(p.Targets) == 0 {
			t.Errorf("%s: incomplete", p.Title)
		}
		refs := map[string]bool{}
		for _, target := range p.Targets {
			if target.Expr == "" || target.RefID == "" || refs[target.RefID] || target.Range == target.Instant {
				t.Errorf("%s: target %+v", p.Title, target)
			}
			refs[target.RefID] = true
			if len(p.Targets) > 1 && target.LegendFormat == "" {
				t.Errorf("%s: a line without a name", p.Title)
			}
		}
	}
}
