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
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"syscall"
	"time"
)

// version is set by the linker.
var version = "dev"

// The programs are told to stop when the thread that started them dies: it must
// be the main one, which lives as long as the process.
func init() { runtime.LockOSThread() }

func main() {
	o := options{out: os.Stdout, errs: os.Stderr}
	substrate := os.Getenv("SUBSTRATE")
	if substrate == "" {
		substrate = instances
	}
	flag.StringVar(&o.substrate, "substrate", substrate, "what the machines are: "+instances+" or "+elasticMetal+", which are never given back (env SUBSTRATE)")
	flag.StringVar(&o.bin, "bin", "", "folder that holds scaleway, fakecloud and bigfleet-agent (default: this program's own)")
	flag.IntVar(&o.machines, "machines", 5, "how many machines play, 1 to 20")
	flag.BoolVar(&o.keep, "keep", false, "keep the folder with logs, state file and certificates")
	flag.DurationVar(&o.timeout, "timeout", 3*time.Minute, "how long the play may take")
	showVersion := flag.Bool("version", false, "print the version")
	flag.Parse() // exits with 2 for a flag that it cannot read
	if *showVersion {
		fmt.Printf("demo %s (%s)\n", version, runtime.Version())
		return
	}
	if err := o.check(flag.Args()); err != nil {
		fmt.Fprintf(os.Stderr, "demo: %v\n", err)
		os.Exit(2)
	}

	// A pipe whose reader is gone, as in "demo | head", must not end the demo
	// before what it started: the failed write is an error then, and stops it. The
	// signal itself says nothing, as sockets raise it too.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	err := perform(ctx, o)
	stop()
	if err != nil {
		os.Exit(1) // perform has told why
	}
}
