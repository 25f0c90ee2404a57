package scaleway

import (
	"flag"
	"testing"

	"bigfleet-providers/provider/providertest"
)

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
