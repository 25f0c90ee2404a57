// Package operator is the operator's command line. Its commands are of two
// kinds: those that talk to a running provider over gRPC, as any client can, and
// those that work on a state file.
package operator

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/signal"
	"runtime"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/pflag"
)

// Exit codes of Main.
const (
	exitOK     = 0
	exitFailed = 1 // the command did not do what it was asked
	exitUsage  = 2 // the command line cannot be used
)

// streams are what a command reads and writes.
type streams struct {
	in       io.Reader
	out, err io.Writer
}

// command is one command: what its help says, and what it does. setup declares
// its flags and returns what runs once they are parsed.
type command struct {
	name    string // one word or, for those on a state file, two
	args    string // as the help shows them
	summary string
	details string
	setup   func(f *pflag.FlagSet) runner
}

// runner runs a command with the arguments that are no flags. A *usageError
// says that it was called wrongly.
type runner func(ctx context.Context, s streams, args []string) error

func commands() []command {
	return []command{listCommand, getCommand, watchCommand, walkCommand, inspectCommand, checkCommand, backupCommand, restoreCommand, hostListCommand, hostUnlockCommand}
}

// usageError is a command line that cannot be used.
type usageError struct{ err error }

func (e *usageError) Error() string { return e.err.Error() }
func (e *usageError) Unwrap() error { return e.err }

// misused reports every fault of a command line at once; nil if there is none.
func misused(faults ...error) error {
	if err := errors.Join(faults...); err != nil {
		return &usageError{err}
	}
	return nil
}

// Main runs the command line and returns the exit code. args are without the
// program's name.
func Main(version string, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	s := streams{stdin, stdout, stderr}
	if len(args) == 0 {
		usage(stderr)
		return exitUsage
	}
	switch args[0] {
	case "help", "--help", "-h":
		usage(stdout)
		return exitOK
	case "version", "--version":
		fmt.Fprintf(stdout, "capacityctl %s (%s)\n", version, runtime.Version())
		return exitOK
	}
	if isGroup(args[0]) && len(args) > 1 && slices.Contains([]string{"help", "--help", "-h"}, args[1]) {
		usageOf(stdout, args[0])
		return exitOK
	}
	c, rest, err := find(args)
	if err == nil {
		err = c.run(s, rest)
	}
	var misuse *usageError
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &misuse):
		fmt.Fprintf(stderr, "capacityctl: %s\n\nSee capacityctl %s for how it is used.\n", indented(err), strings.TrimLeft(c.name+" --help", " "))
		return exitUsage
	default:
		fmt.Fprintf(stderr, "capacityctl: %s\n", indented(err))
		return exitFailed
	}
}

// find takes the command's name off the arguments.
func find(args []string) (command, []string, error) {
	for _, c := range commands() {
		words := strings.Fields(c.name)
		if len(args) >= len(words) && strings.Join(args[:len(words)], " ") == c.name {
			return c, args[len(words):], nil
		}
	}
	switch {
	case isGroup(args[0]):
		return command{name: args[0]}, nil, misused(fmt.Errorf("%s is followed by %s", args[0], followers(args[0])))
	case strings.HasPrefix(args[0], "-"):
		return command{}, nil, misused(fmt.Errorf("%s stands before the command; flags go behind it: capacityctl COMMAND %s", args[0], args[0]))
	default:
		return command{}, nil, misused(fmt.Errorf("unknown command %q", args[0]))
	}
}

// isGroup tells whether commands of two words begin with this one.
func isGroup(word string) bool {
	return slices.ContainsFunc(commands(), func(c command) bool { return strings.HasPrefix(c.name, word+" ") })
}

// followers names the second words of a group's commands.
func followers(group string) string {
	var words []string
	for _, c := range commands() {
		if second, ok := strings.CutPrefix(c.name, group+" "); ok {
			words = append(words, second)
		}
	}
	last := len(words) - 1
	return strings.Join(words[:last], ", ") + " or " + words[last]
}

func (c command) run(s streams, args []string) error {
	f := pflag.NewFlagSet(c.name, pflag.ContinueOnError)
	f.SortFlags = false
	f.Usage = func() {} // printed below, once
	run := c.setup(f)
	switch err := f.Parse(args); {
	case errors.Is(err, pflag.ErrHelp):
		fmt.Fprintf(s.out, "Usage: capacityctl %s %s\n\n%s.\n%s\nFlags:\n%s", c.name, c.args, c.summary, c.details, f.FlagUsagesWrapped(100))
		return nil
	case err != nil:
		return misused(err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	// A second signal ends the program at once.
	context.AfterFunc(ctx, stop)
	return run(ctx, s, f.Args())
}

// usageOf lists the commands of a group.
func usageOf(w io.Writer, group string) {
	fmt.Fprint(w, "Usage:\n")
	for _, c := range commands() {
		if strings.HasPrefix(c.name, group+" ") {
			fmt.Fprintf(w, "  capacityctl %-14s  %s\n", c.name, c.summary)
		}
	}
	fmt.Fprint(w, "\nEach has a --help.\n")
}

func usage(w io.Writer) {
	fmt.Fprint(w, "The operator's command line of a BigFleet capacity provider.\n\nUsage:\n")
	for _, c := range commands() {
		fmt.Fprintf(w, "  capacityctl %-14s  %s\n", c.name, c.summary)
	}
	fmt.Fprint(w, `  capacityctl version

Flags go behind the command. Those of the connection can be set in the
environment: CAPACITYCTL_ADDR for --addr, CAPACITYCTL_TLS_CA, _TLS_CERT,
_TLS_KEY, _TLS_SERVER_NAME and _INSECURE for theirs; a flag wins.

Each has a --help. Exit codes: 0 done, 1 not done, 2 the command line cannot be
used.
`)
}

// indented puts the further lines of an error under its first.
func indented(err error) string { return strings.ReplaceAll(err.Error(), "\n", "\n  ") }

// format is how a command prints: --output.
type format string

const (
	formatTable format = "table"
	formatJSON  format = "json"
)

func (f *format) declare(flags *pflag.FlagSet) {
	flags.StringVarP((*string)(f), "output", "o", string(formatTable), "`table` or json")
}

func (f format) check() error {
	if f != formatTable && f != formatJSON {
		return fmt.Errorf("--output: %q is unknown, want table or json", string(f))
	}
	return nil
}

// wantArgs checks the arguments that are no flags.
func wantArgs(args []string, names ...string) error {
	if len(args) == len(names) {
		return nil
	}
	if len(names) == 0 {
		return fmt.Errorf("unexpected argument %q", args[0])
	}
	return fmt.Errorf("it takes %s, and got %d arguments", strings.Join(names, " and "), len(args))
}
