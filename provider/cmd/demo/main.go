// Command demo plays BigFleet against a provider on this machine. It starts
// bin/fakecloud, whose servers are processes that run bin/bigfleet-agent, and
// bin/scaleway with mutual TLS; walks five machines through their whole life
// with fencing tokens, with a kill -9 of the provider in the middle; and ends
// with a count of what is left. It exits 0 only when every step held and
// nothing is left.
package main

import (
	"context"
	"flag"
	"os"
	"os/signal"
	"syscall"
	"time"
)

func main() {
	o := options{out: os.Stdout}
	flag.StringVar(&o.bin, "bin", "", "folder that holds scaleway, fakecloud and bigfleet-agent (default: this program's own)")
	flag.IntVar(&o.machines, "machines", 5, "how many machines play, 1 to 20")
	flag.BoolVar(&o.keep, "keep", false, "keep the folder with logs, state file and certificates")
	flag.DurationVar(&o.timeout, "timeout", time.Minute, "how long the play may take")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := perform(ctx, o)
	stop()
	if err != nil {
		os.Exit(1) // perform has told why
	}
}
