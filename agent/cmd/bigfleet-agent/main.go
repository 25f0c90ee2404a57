// Command bigfleet-agent is the on-host agent. See package agent.
package main

import (
	"context"
	"os"

	"bigfleet-providers/agent/internal/cli"
)

// version is set at link time with -X main.version=...
var version = "dev"

func main() {
	os.Exit(cli.Main(context.Background(), version, os.Args[1:], os.Stdout, os.Stderr))
}
