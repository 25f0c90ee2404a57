package e2e

import (
	"io"
	"net/http"
	"regexp"
	"strconv"
	"testing"
)

// scrape returns the body of an endpoint of the metrics port.
func (p *provider) scrape(t *testing.T, path string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+p.line(`msg=serving .*metrics=(\S+)`)[1]+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

// counter returns the value of a metric, by its name and labels as they are
// printed.
func (p *provider) counter(t *testing.T, series string) float64 {
	t.Helper()
	_, body := p.scrape(t, "/metrics")
	m := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(series) + ` (\S+)$`).FindStringSubmatch(body)
	if m == nil {
		t.Fatalf("no metric %s", series)
	}
	v, err := strconv.ParseFloat(m[1], 64)
	if err != nil {
		t.Fatal(err)
	}
	return v
}
