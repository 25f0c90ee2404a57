// Fakecloud serves a stand-in for Scaleway's API, so that the provider and the
// vendor's own tools can be tried without an account and without a bill.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

// version is set by the linker.
var version = "dev"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	var misuse *usageError
	switch {
	case err == nil:
	case errors.As(err, &misuse):
		fmt.Fprintf(os.Stderr, "fakecloud: %v; see fakecloud --help\n", err)
		os.Exit(2)
	default:
		fmt.Fprintln(os.Stderr, "fakecloud:", err)
		os.Exit(1)
	}
}
