package provider

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/pflag"

	"bigfleet-providers/provider/internal/telemetry"
)

// Exit codes of Main.
const (
	exitOK     = 0
	exitFailed = 1 // it ran and could not go on
	exitUsage  = 2 // it was told something it cannot use
)

// Main is the main function of a vendor's provider: it reads the command line and
// the environment, runs the command and returns the exit code. args are without
// the program's name.
func Main(v Vendor, version string, args []string, stdout, stderr io.Writer) int {
	command := "serve"
	switch {
	case slices.Contains(args, "--version"):
		command = "version" // of whichever command
		args = slices.DeleteFunc(slices.Clone(args), func(a string) bool { return a == "--version" || a == "serve" || a == checkCommand })
	case len(args) > 0 && !strings.HasPrefix(args[0], "-"):
		command, args = args[0], args[1:]
	}
	switch command {
	case "serve", checkCommand:
	case "version":
		if len(args) > 0 {
			fmt.Fprintf(stderr, "version takes no %s; see --help\n", shown(args[0]))
			return exitUsage
		}
		fmt.Fprintf(stdout, "%s %s (%s)\n", v.Name, version, runtime.Version())
		return exitOK
	case "help":
		usage(stdout, v)
		return exitOK
	default:
		fmt.Fprintf(stderr, "unknown command %s; see --help\n", shown(command))
		return exitUsage
	}
	cfg, err := Load(v, args, os.LookupEnv)
	if errors.Is(err, pflag.ErrHelp) {
		usage(stdout, v)
		return exitOK
	}
	var inUse bool
	if cfg != nil {
		err = errors.Join(err, cfg.Validate())
		if cfg.Live && command != checkCommand {
			err = errors.Join(err, errors.New("--live: only check-config has it"))
		}
		// By themselves they are no reason to give up: see checkPlaces.
		if command == checkCommand || err != nil {
			var faults error
			inUse, faults = checkPlaces(cfg)
			err = errors.Join(err, faults)
		}
	}
	if err != nil {
		fmt.Fprintf(stderr, "the configuration cannot be used:\n%s\n\nSee --help for every flag.\n", indent(err))
		return exitUsage
	}
	log, err := telemetry.NewLogger(stderr, cfg.LogFormat, cfg.LogLevel)
	if err != nil {
		fmt.Fprintf(stderr, "the configuration cannot be used:\n%s\n", indent(err))
		return exitUsage
	}
	log = log.With("provider", cfg.Provider, telemetry.KeyZone, cfg.settings.Scope(cfg).Zone)
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	// Once told to stop, a second signal ends the process at once.
	context.AfterFunc(ctx, stop)
	if command == checkCommand {
		return checkConfig(ctx, cfg, inUse, version, stdout, stderr)
	}
	if err := Run(ctx, cfg, version, log); err != nil {
		log.Error("the provider stopped", telemetry.KeyError, err.Error())
		return exitFailed
	}
	return exitOK
}

func usage(w io.Writer, v Vendor) {
	try := ""
	if v.Fakes {
		try = "\nTry it without an account:\n  " + v.Name + " --use-fake-backend --provider=trial\n"
	}
	fmt.Fprintf(w, `A BigFleet capacity provider for %[2]s: it serves bigfleet.v1alpha1.CapacityProvider
over gRPC and turns its calls into real servers.

Usage:
  %[1]s [serve] [flags]       run the provider
  %[1]s check-config [flags]  judge flags, environment and files without serving;
  %[3]s                       with --live, ask %[2]s too
  %[1]s version               or --version
%[4]s
env: the variable that is read when the flag is not given; with _FILE behind its
name, the file that holds the value.
`, v.Name, v.Title, strings.Repeat(" ", len(v.Name)), try)
	fmt.Fprint(w, flagHelp(v))
}

// indent puts every line of an error on a line of its own.
func indent(err error) string {
	return "  " + strings.ReplaceAll(err.Error(), "\n", "\n  ")
}
