// Package operator is the operator's command line. Its commands are of three
// kinds: those that talk to a running provider over gRPC, as any client can;
// those that ask it over its admin socket; and those that work on a state file.
package operator

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os/signal"
	"runtime"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"bigfleet-providers/provider/internal/operator/terminal"
	"bigfleet-providers/shared/flags"
)

// Exit codes of Main.
const (
	exitOK     = 0
	exitFailed = 1 // the command did not do what it was asked
	exitUsage  = 2 // the command line cannot be used
)

// program is one run of the command line.
type program struct {
	args     []string
	in       io.Reader
	out, err io.Writer
	colour   terminal.When
	conn     connection
}

// stdout is the standard output as the flags say that it is written.
func (p *program) stdout() *terminal.Output { return terminal.NewOutput(p.out, p.colour) }

// page prints what show writes at once: whoever reads only its head, as
// "list | head" does, must not make a failure of the rest.
func (p *program) page(show func(o *terminal.Output) error) error {
	var text bytes.Buffer
	o := *p.stdout()
	out := o.Writer
	o.Writer = &text
	failure := show(&o)
	_, err := out.Write(text.Bytes())
	return errors.Join(failure, err)
}

// stderr is where progress and questions go that must not mix with an answer.
func (p *program) stderr() *terminal.Output { return terminal.NewOutput(p.err, p.colour) }

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

// errSaid ends a command that has said already what went wrong.
var errSaid = errors.New("said already")

// Main runs the command line and returns the exit code. args are without the
// program's name.
func Main(version string, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	// A second signal ends the program at once.
	context.AfterFunc(ctx, stop)

	root := newRoot(&program{args: args, in: stdin, out: stdout, err: stderr, colour: terminal.Auto}, version)
	root.SetArgs(args)
	if len(args) == 0 {
		root.SetArgs([]string{}) // nil would be the process's own
	}
	c, err := root.ExecuteContextC(ctx)
	var misuse *usageError
	switch {
	case err == nil:
		return exitOK
	case errors.Is(err, errSaid):
		return exitFailed
	case errors.As(err, &misuse):
		fmt.Fprintf(stderr, "capacityctl: %s\n\nSee %s --help for how it is used.\n", indented(err), c.CommandPath())
		return exitUsage
	default:
		fmt.Fprintf(stderr, "capacityctl: %s\n", indented(err))
		return exitFailed
	}
}

// The groups of the overview.
const (
	groupMachines = "machines"
	groupProvider = "provider"
	groupFiles    = "files"
	groupOther    = "other"
)

// newRoot makes the tree of commands.
func newRoot(p *program, version string) *cobra.Command {
	root := &cobra.Command{
		Use:   "capacityctl",
		Short: "The operator's command line of a BigFleet capacity provider",
		Long: `
Flags of the connection and --color may stand before or behind the command. Those
of the connection can be set in the environment: CAPACITYCTL_ADDR for --addr,
CAPACITYCTL_TLS_CA, _TLS_CERT, _TLS_KEY, _TLS_SERVER_NAME and _INSECURE for
theirs; a flag wins. NO_COLOR turns colours off.

Exit codes: 0 done, 1 not done, 2 the command line cannot be used.
`,
		SuggestionsMinimumDistance: 2,

		Version:           fmt.Sprintf("%s (%s)", version, runtime.Version()),
		Args:              cobra.ArbitraryArgs, // judged below
		SilenceUsage:      true,
		SilenceErrors:     true,
		CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true},
		PersistentPreRunE: func(c *cobra.Command, _ []string) error {
			var empty []error
			for _, f := range flags.Empty(c.Flags()) {
				empty = append(empty, f)
			}
			if isConnected(c) {
				p.conn.empty = errors.Join(empty...) // told with all other faults
				return nil
			}
			return misused(append(empty, p.conn.unused(c))...)
		},
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) > 0 {
				return misused(unknownCommand(c, args[0]))
			}
			help(c, p.err)
			return &usageError{errors.New("a command is missing")}
		},
	}
	root.SetIn(p.in)
	root.SetOut(p.out)
	root.SetErr(p.err)
	root.SetVersionTemplate("capacityctl {{.Version}}\n")
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error { return misused(p.hinted(c, err)) })
	root.SetHelpFunc(func(c *cobra.Command, _ []string) {
		var text bytes.Buffer // at once, as a page
		help(c, &text)
		_, _ = p.out.Write(text.Bytes()) // cobra has no way to take an error
	})
	root.PersistentFlags().Var(&p.colour, "color", "`when` to use colours: auto, always or never; auto is on a terminal without NO_COLOR")
	p.conn.declare(root.PersistentFlags())
	completes(root, "color", []string{string(terminal.Auto), string(terminal.Always), string(terminal.Never)})

	for _, g := range [][2]string{{groupMachines, "Machines"}, {groupProvider, "The provider"}, {groupFiles, "Its state file and hosts"}, {groupOther, "Other"}} {
		root.AddGroup(&cobra.Group{ID: g[0], Title: g[1]})
	}
	add := func(group string, commands ...*cobra.Command) {
		for _, c := range commands {
			c.GroupID = group
			place(c, len(root.Commands()))
			root.AddCommand(c)
		}
	}
	add(groupMachines, p.listCommand(), p.getCommand(), p.watchCommand())
	for _, k := range kinds {
		add(groupMachines, p.transitionCommand(k))
	}
	add(groupMachines, p.waitCommand(), p.walkCommand())
	add(groupProvider, p.topCommand(), p.doctorCommand())
	add(groupFiles,
		group("state", "Look at state files, copy them and put them back", inspectCommand(p), checkCommand(p), backupCommand(p), restoreCommand(p)),
		group("host", "See which hosts use the machines' tokens, and untie one", hostListCommand(p), hostUnlockCommand(p)),
		releaseCommand(p))
	add(groupOther, completionCommand(p), versionCommand(p))
	root.SetHelpCommandGroupID(groupOther)
	return root
}

// group is a command that stands before others.
func group(name, summary string, commands ...*cobra.Command) *cobra.Command {
	g := &cobra.Command{
		Use: name, Short: summary, Args: cobra.ArbitraryArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return misused(fmt.Errorf("%s is followed by %s", name, followers(c)))
		},
	}
	g.AddCommand(commands...)
	return g
}

// followers names the second words of a group's commands.
func followers(g *cobra.Command) string {
	var words []string
	for _, c := range g.Commands() {
		if c.IsAvailableCommand() {
			words = append(words, c.Name())
		}
	}
	last := len(words) - 1
	return strings.Join(words[:last], ", ") + " or " + words[last]
}

func unknownCommand(c *cobra.Command, word string) error {
	text := fmt.Sprintf("unknown command %q", word)
	if hint := commandHints[word]; hint != "" && !c.HasParent() {
		return errors.New(text + ": " + hint)
	}
	if meant := c.SuggestionsFor(word); len(meant) > 0 {
		text += "; did you mean " + strings.Join(meant, " or ") + "?"
	}
	return errors.New(text)
}

func versionCommand(p *program) *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Show the program's version", Args: cobra.ArbitraryArgs,
		RunE: func(c *cobra.Command, args []string) error {
			if err := misused(wantArgs(args)); err != nil {
				return err
			}
			_, err := fmt.Fprintf(p.out, "capacityctl %s\n", c.Root().Version)
			return err
		},
	}
}

// indented puts the further lines of an error under its first.
func indented(err error) string { return strings.ReplaceAll(err.Error(), "\n", "\n  ") }

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
