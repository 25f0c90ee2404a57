package scaleway

import (
	"log/slog"
	"net/http"
	"slices"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"bigfleet-providers/provider"
	"bigfleet-providers/provider/internal/fakecloud"
	"bigfleet-providers/provider/internal/telemetry"
)

// The real API is always limited, the fake in the process only on request.
func TestWhichBackendIsLimited(t *testing.T) {
	credentials := []string{"--access-key=" + fakecloud.DefaultAccessKey, "--secret-key=" + fakecloud.DefaultSecretKey, "--project-id=" + fakecloud.DefaultProjectID}
	for name, tt := range map[string]struct {
		args    []string
		fake    bool
		limited bool
	}{
		"real":                 {credentials, false, true},
		"real, with a rate":    {append([]string{"--api-rate=3"}, credentials...), false, true},
		"fake":                 {credentials, true, false},
		"fake, with a rate":    {append([]string{"--api-rate=3"}, credentials...), true, true},
		"fake, with a burst":   {append([]string{"--api-burst=3"}, credentials...), true, false},
		"fake, with the usual": {append([]string{"--api-rate=10"}, credentials...), true, true},
	} {
		t.Run(name, func(t *testing.T) {
			cfg, s, err := load(tt.args, nil)
			if err != nil {
				t.Fatal(err)
			}
			reg := prometheus.NewRegistry()
			o := provider.Opening{Version: "test", Transport: http.DefaultTransport, Metrics: reg, Log: slog.New(slog.DiscardHandler)}
			if tt.fake {
				o.Trial = new(provider.Trial)
			}
			if _, err := s.open(cfg, o, account{ClientConfig: s.credentials()}); err != nil {
				t.Fatal(err)
			}
			families, err := reg.Gather()
			if err != nil {
				t.Fatal(err)
			}
			var names []string
			for _, f := range families {
				names = append(names, f.GetName())
			}
			if got := slices.Contains(names, telemetry.MetricBudgetRate.Name); got != tt.limited {
				t.Errorf("limited: %v, want %v; metrics %q", got, tt.limited, names)
			}
		})
	}
}
