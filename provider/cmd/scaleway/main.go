// Command scaleway is the BigFleet capacity provider for Scaleway.
package main

import (
	"os"

	"bigfleet-providers/provider"
	"bigfleet-providers/provider/scaleway"
)

// version is set by the linker.
var version = "dev"

func main() {
	os.Exit(provider.Main(scaleway.Vendor(), version, os.Args[1:], os.Stdout, os.Stderr))
}
