// Fakecloud serves a stand-in for Scaleway's API, so that the provider and the
// vendor's own tools can be tried without an account and without a bill.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "fakecloud:", err)
		os.Exit(1)
	}
}
