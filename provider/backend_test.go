package provider

import (
	"log/slog"
	"slices"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"bigfleet-providers/provider/internal/fakecloud"
	"bigfleet-providers/provider/internal/telemetry"
)

// The real API is always limited, the fake in the process only on request.
func TestWhichBackendIsLimited(t *testing.T) {
	credentials := []string{"--access-key=" + fakecloud.DefaultAccessKey, "--secret-key=" + fakecloud.DefaultSecretKey, "--project-id=" + fakecloud.DefaultProjectID}
	fake := &fakeWorld{
		accessKey: fakecloud.DefaultAccessKey, secretKey: fakecloud.DefaultSecretKey, projectID: fakecloud.DefaultProjectID, url: "http://127.0.0.1:1",
	}
	for name, tt := range map[string]struct {
		args    []string
		fake    *fakeWorld
		limited bool
	}{
		"real":                 {credentials, nil, true},
		"real, with a rate":    {append([]string{"--api-rate=3"}, credentials...), nil, true},
		"fake":                 {nil, fake, false},
		"fake, with a rate":    {[]string{"--api-rate=3"}, fake, true},
		"fake, with a burst":   {[]string{"--api-burst=3"}, fake, false},
		"fake, with the usual": {[]string{"--api-rate=10"}, fake, true},
	} {
		t.Run(name, func(t *testing.T) {
			cfg, err := Load(tt.args, lookupIn(nil))
			if err != nil {
				t.Fatal(err)
			}
			reg := prometheus.NewRegistry()
			if _, err := openScaleway(cfg, tt.fake, "test", reg, nil, slog.New(slog.DiscardHandler)); err != nil {
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
