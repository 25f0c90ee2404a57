package scaleway

import (
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"bigfleet-providers/provider"
	"bigfleet-providers/provider/internal/offering"
	"bigfleet-providers/provider/providertest"
)

// load reads a command line, and returns what of it is Scaleway's as well.
func load(args []string, vars map[string]string) (*provider.Config, *settings, error) {
	v, s := Vendor(), new(settings)
	v.Settings = func() provider.Settings { return s }
	cfg, err := provider.Load(v, args, func(name string) (string, bool) {
		value, ok := vars[name]
		return value, ok
	})
	return cfg, s, err
}

func writeFile(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestKeyInClear: the secret key is in every call, so that an address without
// TLS is worth a warning unless it is on this host.
func TestKeyInClear(t *testing.T) {
	for address, want := range map[string]bool{
		"": false, "https://api.example": false, "http://127.0.0.1:8080": false, "http://[::1]:8080": false, "http://localhost:8080": false, "http://LOCALHOST.:8080": false, "http://127.1.2.3": false,
		"http://api.example": true, "http://10.0.0.1:8080": true, "HTTP://api.example": true, "http://[2001:db8::1]": true, "http://localhost.example": true,
	} {
		if got := inClear(address); got != want {
			t.Errorf("inClear(%q) = %v", address, got)
		}
	}
}

var update = flag.Bool("update", false, "write the list of flags into docs/configuration.md")

func TestEveryFlagIsDocumented(t *testing.T) {
	providertest.Flags(t, Vendor(), providertest.Page{
		Path: "../../docs/configuration.md",
		FurtherReading: map[string]string{
			"substrate":  "elastic-metal.md",
			"access-key": "credentials.md#1-the-api-key",
			"api-rate":   "operations.md#api-budget",
			"fake-hosts": "fakecloud.md#hosts",
		},
		Defaults: map[string]string{"zone": defaultZone},
	}, *update)
}

func TestBuiltin(t *testing.T) {
	for _, tc := range []struct {
		substrate string
		count     int
		want      map[string]int
	}{
		{offering.Instances, 5, map[string]int{"DEV1-S": 3, "GP1-XS": 2}},
		{offering.Instances, 1, map[string]int{"DEV1-S": 1}},
		{offering.ElasticMetal, 4, map[string]int{"EM-A210R-HDD": 2, "EM-B112X-SSD": 2}},
		{offering.ElasticMetal, 0, map[string]int{}},
		{"mainframe", 4, map[string]int{}},
	} {
		got := map[string]int{}
		for _, o := range (&settings{Substrate: tc.substrate, Zone: "fr-par-2"}).Builtin(tc.count) {
			got[o.CommercialType] = o.Count
			if o.Zone != "fr-par-2" || o.Capacity != offering.Capacity(tc.substrate) || len(o.Resources) == 0 {
				t.Errorf("%s: offering %+v", tc.substrate, o)
			}
		}
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("Builtin(%q, %d) (-want +got):\n%s", tc.substrate, tc.count, diff)
		}
	}
}
