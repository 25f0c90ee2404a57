// Command scaleway is the BigFleet capacity provider for Scaleway.
package main

import (
	"os"

	"bigfleet-providers/provider"
)

// version is set by the linker.
var version = "dev"

func main() {
	os.Exit(provider.Main(version, os.Args[1:], os.Stdout, os.Stderr))
}
