package operator

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// helpWidth is what a help text's flags are wrapped to.
const helpWidth = 100

// usesConnection marks a command that talks gRPC.
const usesConnection = "connection"

// connected marks the command as one that takes the flags of the connection.
func connected(c *cobra.Command) *cobra.Command {
	c.Annotations = map[string]string{usesConnection: ""}
	return c
}

// position is where a command stands in the overview: in the order of its use,
// which cobra would lose.
const position = "position"

func place(c *cobra.Command, n int) {
	if c.Annotations == nil {
		c.Annotations = map[string]string{}
	}
	c.Annotations[position] = fmt.Sprintf("%02d", n)
}

// inOrder returns the commands behind a command in the order of their use.
func inOrder(c *cobra.Command) []*cobra.Command {
	return slices.SortedFunc(slices.Values(c.Commands()), func(a, b *cobra.Command) int {
		return cmp.Or(cmp.Compare(a.Annotations[position], b.Annotations[position]), cmp.Compare(a.Name(), b.Name()))
	})
}

func isConnected(c *cobra.Command) bool {
	_, ok := c.Annotations[usesConnection]
	return ok
}

// help writes what a command is for and how it is used.
func help(c *cobra.Command, w io.Writer) {
	fmt.Fprintf(w, "%s.\n\nUsage: %s\n", c.Short, usageLine(c))
	if c.Long != "" {
		fmt.Fprintf(w, "\n%s\n", strings.Trim(c.Long, "\n"))
	}
	if c.Example != "" {
		fmt.Fprintf(w, "\nExamples:\n  %s\n", strings.ReplaceAll(strings.Trim(c.Example, "\n"), "\n", "\n  "))
	}
	helpCommands(c, w)
	own, shared := flagsOf(c)
	for _, part := range []struct {
		title string
		flags *pflag.FlagSet
	}{{"Flags", own}, {"Connection and colours", shared}} {
		if part.flags.HasAvailableFlags() {
			fmt.Fprintf(w, "\n%s:\n%s", part.title, part.flags.FlagUsagesWrapped(helpWidth))
		}
	}
	if c.HasAvailableSubCommands() {
		fmt.Fprintf(w, "\nMore about a command: %s COMMAND --help\n", c.CommandPath())
	}
}

// usageLine is a command with its arguments.
func usageLine(c *cobra.Command) string {
	switch {
	case c.HasAvailableSubCommands():
		return c.CommandPath() + " COMMAND"
	case c.HasParent():
		return c.Parent().CommandPath() + " " + c.Use
	default:
		return c.Use
	}
}

// helpCommands lists the commands behind a command, in their groups.
func helpCommands(c *cobra.Command, w io.Writer) {
	list := func(title, group string) {
		begun := false
		for _, sub := range inOrder(c) {
			if sub.GroupID != group || !sub.IsAvailableCommand() && sub.Name() != "help" {
				continue
			}
			if !begun {
				fmt.Fprintf(w, "\n%s:\n", title)
				begun = true
			}
			fmt.Fprintf(w, "  %-11s  %s\n", sub.Name(), sub.Short)
		}
	}
	for _, g := range c.Groups() {
		list(g.Title, g.ID)
	}
	list("Commands", "")
}

// flagsOf returns a command's own flags, and those of the ones that all commands
// share which mean something to it.
func flagsOf(c *cobra.Command) (own, shared *pflag.FlagSet) {
	shared = pflag.NewFlagSet("shared", pflag.ContinueOnError)
	shared.SortFlags = false
	own = pflag.NewFlagSet("own", pflag.ContinueOnError)
	own.SortFlags = false
	c.Root().PersistentFlags().VisitAll(func(f *pflag.Flag) {
		if c.HasParent() && (isConnected(c) || f.Name == "color") || !c.HasParent() && f.Name != "help" {
			shared.AddFlag(f)
		}
	})
	c.LocalFlags().VisitAll(func(f *pflag.Flag) {
		if c.Root().PersistentFlags().Lookup(f.Name) == nil && f.Name != "help" && f.Name != "version" {
			own.AddFlag(f)
		}
	})
	return own, shared
}
