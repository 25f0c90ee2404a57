// Package cli is the command line of bigfleet-agent.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"runtime"
	runtimedebug "runtime/debug"
	"syscall"

	"github.com/spf13/pflag"

	"bigfleet-providers/agent"
	"bigfleet-providers/agent/internal/hook"
	"bigfleet-providers/agent/internal/plain"
	"bigfleet-providers/agent/internal/systemd"
	flagcheck "bigfleet-providers/shared/flags"
)

const usage = `bigfleet-agent carries out the provider's commands on this host.

Usage:
  bigfleet-agent [command] [flags]

Commands:
  run      work until SIGTERM (the default); a running hook is left to the next agent
  status   show what the running agent does, since when, and its last results
  check    test configuration, clock, network, TLS and token; exit 1 when something fails
  node ready|drain|leave
           for hooks: act on this host's node, as BIGFLEET_NODE_NAME and others say
  blob text|cloud-config|kubeadm|k3s BLOB OUTPUT
           for hooks: read a blob, refuse what cannot be applied, write the rest
  version  print the version

Flags:
`

// gcPercent keeps the heap near what is in use: collections are small and rare.
const gcPercent = 25

// Exit codes.
const (
	exitOK    = 0
	exitFault = 1
	exitUsage = 2
)

// Main runs the command line and returns the exit code. args is without the
// program's name.
func Main(ctx context.Context, version string, args []string, stdout, stderr io.Writer) int {
	flags := pflag.NewFlagSet("bigfleet-agent", pflag.ContinueOnError)
	flags.SetOutput(io.Discard) // errors are printed below, once
	config := flags.String("config", agent.DefaultConfigPath, "configuration `file`, readable by its owner alone")
	debug := flags.Bool("debug", false, "log at debug level")
	kubeconfig := flags.String("kubeconfig", "/etc/kubernetes/kubelet.conf", "`file` with the kubelet's credentials, for the command node")
	showVersion := flags.Bool("version", false, "print the version")
	err := flags.Parse(args)
	help := usage + flags.FlagUsages()
	if errors.Is(err, pflag.ErrHelp) {
		return printed(fmt.Fprint(stdout, help))
	}
	if err == nil {
		for _, fault := range flagcheck.Empty(flags) {
			err = errors.Join(err, fault)
		}
	}
	if err == nil && flags.Arg(0) == blobCommand {
		return result(stderr, runBlob(flags.Args()[1:], stdout))
	}
	if err == nil && flags.NArg() == 2 {
		switch flags.Arg(0) {
		case hook.SuperviseCommand: // by the service manager, for a hook's unit
			return hook.Supervise(flags.Arg(1), stdout, stderr)
		case nodeCommand:
			return result(stderr, runNode(ctx, flags.Arg(1), *kubeconfig, stdout))
		}
	}
	if err == nil && flags.NArg() > 1 {
		err = fmt.Errorf("one command at a time, got %q", flags.Args())
	}
	name := "run"
	if flags.NArg() == 1 {
		name = flags.Arg(0)
	}
	if err != nil {
		return usageFault(stderr, err)
	}
	if *showVersion {
		name = "version"
	}
	switch name {
	case "run":
		err = run(ctx, *config, version, *debug, stderr)
	case "status":
		err = status(*config, stdout)
	case "check":
		err = check(ctx, *config, version, stdout)
	case "version":
		return printed(fmt.Fprintf(stdout, "bigfleet-agent %s (%s)\n", version, runtime.Version()))
	case "help":
		return printed(fmt.Fprint(stdout, help))
	default:
		return usageFault(stderr, fmt.Errorf("unknown command %q", name))
	}
	return result(stderr, err)
}

func result(stderr io.Writer, err error) int {
	if err != nil {
		_, _ = fmt.Fprintln(stderr, "bigfleet-agent:", plain.Text(err.Error())) // nowhere else to say it
		return exitFault
	}
	return exitOK
}

func usageFault(stderr io.Writer, err error) int {
	_, _ = fmt.Fprintf(stderr, "bigfleet-agent: %v (see bigfleet-agent --help)\n", err) // nowhere else to say it
	return exitUsage
}

func printed(_ int, err error) int {
	if err != nil {
		return exitFault
	}
	return exitOK
}

func run(ctx context.Context, path, version string, debug bool, stderr io.Writer) error {
	cfg, err := agent.LoadConfig(path)
	if err != nil {
		return err
	}
	level := slog.LevelInfo
	if debug {
		level = slog.LevelDebug
	}
	log := slog.New(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: level}))
	// A journal that goes away must not end the agent: a write to a broken
	// standard error would (os/signal). Caught rather than ignored, which hooks
	// would inherit.
	broken := make(chan os.Signal, 1)
	signal.Notify(broken, syscall.SIGPIPE)
	defer signal.Stop(broken)
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	// A host's memory is for its workloads, and an agent makes little garbage.
	runtimedebug.SetGCPercent(gcPercent)
	// The path of this program, which an upgrade replaces while a hook runs.
	program, err := os.Executable()
	if err != nil {
		return err
	}
	notifier := systemd.New(log)
	return agent.Run(ctx, cfg, agent.Options{
		Log: log, Notifier: notifier, Watchdog: notifier.Interval(), StatusFile: cfg.StatusFile(), Version: version,
		Program: program,
	})
}
