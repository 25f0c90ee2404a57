// Command capacityctl is the operator's command line of a capacity provider: it
// shows machines, drives one by hand, and looks after state files.
package main

import (
	"os"

	"bigfleet-providers/provider/internal/operator"
)

// version is set by the linker.
var version = "dev"

func main() {
	os.Exit(operator.Main(version, os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}
