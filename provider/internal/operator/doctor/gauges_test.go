package doctor

import (
	"os"
	"strings"
	"testing"
)

// TestGaugesExist: each metric that is judged, and each runbook that is named, is
// on the page that the provider's own tests compare with the program.
func TestGaugesExist(t *testing.T) {
	page, err := os.ReadFile("../../../../docs/observability.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, g := range gauges {
		if !strings.Contains(string(page), "| `bigfleet_scaleway_"+g.metric+"` |") {
			t.Errorf("%s: there is no metric %s", g.check, g.metric)
		}
		if !strings.Contains(string(page), "\n### "+g.runbook+"\n") {
			t.Errorf("%s: there is no runbook %s", g.check, g.runbook)
		}
	}
}
