// Package monitoring makes what an operator's Prometheus and Grafana are given
// out of one description: alert rules, a dashboard, and the lists of metrics and
// alerts in docs/observability.md. A provider of another cloud gets its own by
// another prefix. What it makes is in the repository; `make generate` makes it
// again, and a test compares.
package monitoring

import (
	"bytes"
	"fmt"
	"strings"

	"bigfleet-providers/provider/internal/telemetry"
)

// Clouds are those whose files are in the repository.
func Clouds() []string { return []string{"scaleway"} }

// DocsFile is the page that holds the lists, and the runbooks.
const DocsFile = "docs/observability.md"

// Files returns what is generated for a cloud, by its path in the repository.
func Files(cloud string) (map[string][]byte, error) {
	rules, err := Rules(cloud)
	if err != nil {
		return nil, err
	}
	dashboard, err := Dashboard(cloud)
	if err != nil {
		return nil, err
	}
	return map[string][]byte{
		"deploy/monitoring/" + cloud + "-rules.yaml":     rules,
		"deploy/monitoring/" + cloud + "-dashboard.json": dashboard,
	}, nil
}

// expand puts the cloud's prefix in place of the short one, with which
// expressions are written here.
func expand(cloud, expr string) string {
	return strings.ReplaceAll(expr, "bigfleet_", telemetry.Prefix(cloud))
}

// Docs returns the page with its generated lists renewed. Each stands between
// two marks, which the page must have.
func Docs(cloud string, page []byte) ([]byte, error) {
	for name, list := range map[string]string{"metrics": metricList(cloud), "alerts": alertList()} {
		begin, end := []byte("<!-- "+name+": generated -->\n"), []byte("<!-- end of "+name+" -->")
		i, j := bytes.Index(page, begin), bytes.Index(page, end)
		if i < 0 || j < i {
			return nil, fmt.Errorf("%s: it lacks the lines %q and %q", DocsFile, begin, end)
		}
		page = bytes.Join([][]byte{page[:i], begin, []byte(list), page[j:]}, nil)
	}
	return page, nil
}

func metricList(cloud string) string {
	var b strings.Builder
	b.WriteString("\n| Name | Type | Labels | |\n|---|---|---|---|\n")
	for _, m := range telemetry.Metrics() {
		fmt.Fprintf(&b, "| `%s%s` | %s | %s | %s |\n", telemetry.Prefix(cloud), m.Name, m.Type, strings.Join(m.Labels, ", "), m.Help)
	}
	b.WriteString("\n")
	return b.String()
}

func alertList() string {
	var b strings.Builder
	b.WriteString("\n| Alert | Severity | Fires when |\n|---|---|---|\n")
	for _, a := range alerts() {
		fmt.Fprintf(&b, "| [%s](#%s) | %s | %s |\n", a.name, a.anchor(), a.severity, a.when)
	}
	b.WriteString("\n")
	return b.String()
}
