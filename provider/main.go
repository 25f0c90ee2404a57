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
		command = "version"
	case len(args) > 0 && !strings.HasPrefix(args[0], "-"):
		command, args = args[0], args[1:]
	}
	switch command {
	case "serve", checkCommand:
	case "version":
		fmt.Fprintf(stdout, "%s %s (%s)\n", v.Name, version, runtime.Version())
		return exitOK
	case "help":
		usage(stdout, v)
		return exitOK
	default:
		fmt.Fprintf(stderr, "unknown command %q; see --help\n", command)
		return exitUsage
	}
	cfg, err := Load(v, args, os.LookupEnv)
	if errors.Is(err, pflag.ErrHelp) {
		usage(stdout, v)
		return exitOK
	}
	if cfg != nil {
		err = errors.Join(err, cfg.Validate())
		if cfg.Live && command != checkCommand {
			err = errors.Join(err, errors.New("--live: only check-config has it"))
		}
		if command == checkCommand {
			err = errors.Join(err, checkStatePlace(cfg.State))
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
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	// Once told to stop, a second signal ends the process at once.
	context.AfterFunc(ctx, stop)
	if command == checkCommand {
		return checkConfig(ctx, cfg, version, stdout, stderr)
	}
	if err := Run(ctx, cfg, version, log); err != nil {
		log.Error("the provider stopped", telemetry.KeyError, err.Error())
		return exitFailed
	}
	return exitOK
}

// checkCommand judges the configuration without serving.
const checkCommand = "check-config"

// checkConfig says what a valid configuration comes to, and with --live what the
// cloud says to it.
func checkConfig(ctx context.Context, cfg *Config, version string, stdout, stderr io.Writer) int {
	_, security, err := cfg.TLS.open()
	if err != nil {
		fmt.Fprintf(stderr, "the configuration cannot be used:\n%s\n", indent(err))
		return exitUsage
	}
	fmt.Fprintf(stdout, "the configuration is usable: provider %s, %s, gRPC on %s (%s)\n", cfg.Provider, cfg.settings.Scope(cfg), cfg.Addr, security)
	if !cfg.Live {
		return exitOK
	}
	fine, err := checkLive(ctx, cfg, version, stdout)
	if err != nil {
		fmt.Fprintf(stderr, "the live check could not be made:\n%s\n", indent(err))
		return exitFailed
	}
	if !fine {
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
