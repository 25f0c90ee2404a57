package operator

import (
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"

	pb "bigfleet-providers/proto/bigfleet/v1alpha1"
)

// completionTimeout bounds a question that a shell waits for while somebody
// types.
const completionTimeout = 2 * time.Second

func completionCommand(p *program) *cobra.Command {
	shells := map[string]func(*cobra.Command, io.Writer) error{
		"bash": func(c *cobra.Command, w io.Writer) error { return c.GenBashCompletionV2(w, true) },
		"zsh":  func(c *cobra.Command, w io.Writer) error { return c.GenZshCompletion(w) },
		"fish": func(c *cobra.Command, w io.Writer) error { return c.GenFishCompletion(w, true) },
	}
	return &cobra.Command{
		Use: "completion bash|zsh|fish", Short: "Print a shell's completion of this command line",
		Long: `
It completes commands, flags and their values; ids of machines, types and clusters
are asked of the provider that the flags or the environment name.
`,
		Example: `
source <(capacityctl completion bash)       # needs the package bash-completion
capacityctl completion bash >/etc/bash_completion.d/capacityctl
capacityctl completion zsh >"${fpath[1]}/_capacityctl"
capacityctl completion fish >~/.config/fish/completions/capacityctl.fish
`,
		Args:              cobra.ArbitraryArgs,
		ValidArgsFunction: cobra.FixedCompletions([]string{"bash", "zsh", "fish"}, cobra.ShellCompDirectiveNoFileComp),
		RunE: func(c *cobra.Command, args []string) error {
			if err := misused(wantArgs(args, "a shell")); err != nil {
				return err
			}
			write, ok := shells[args[0]]
			if !ok {
				return misused(fmt.Errorf("shell %q is unknown, want bash, zsh or fish", args[0]))
			}
			return write(c.Root(), p.out)
		},
	}
}

// completes gives a flag fixed values.
func completes(c *cobra.Command, flag string, values []string) {
	register(c, flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
}

// completesWith gives a flag the values that the machines have.
func (p *program) completesWith(c *cobra.Command, flag string, of func(*pb.Machine) string) {
	register(c, flag, func(c *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
		return p.ask(c.Context(), nil, of), cobra.ShellCompDirectiveNoFileComp
	})
}

func register(c *cobra.Command, flag string, f cobra.CompletionFunc) {
	if err := c.RegisterFlagCompletionFunc(flag, f); err != nil {
		panic(err) // no such flag, or twice: every run of the program would show it
	}
}

// machineIDs completes ids of machines in the given states, or in any, that were
// not given yet.
func (p *program) machineIDs(most int, states ...pb.MachineState) cobra.CompletionFunc {
	return func(c *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if most > 0 && len(args) >= most {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		found := p.ask(c.Context(), states, (*pb.Machine).GetId)
		found = slices.DeleteFunc(found, func(id string) bool { return slices.Contains(args, id) })
		return found, cobra.ShellCompDirectiveNoFileComp
	}
}

// ask lists what the machines have. A provider that does not answer soon
// completes nothing: there is no place for an error.
func (p *program) ask(ctx context.Context, states []pb.MachineState, of func(*pb.Machine) string) []string {
	if p.conn.check() != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, completionTimeout)
	defer cancel()
	seen := map[string]bool{}
	err := p.conn.with(func(c *client) error {
		l, err := c.List(ctx, &pb.ListFilter{States: states})
		for _, m := range l.GetMachines() {
			if v := of(m); v != "" {
				seen[printable(v)] = true
			}
		}
		return err
	})
	if err != nil {
		return nil
	}
	out := make([]string, 0, len(seen))
	for v := range seen {
		out = append(out, v)
	}
	slices.Sort(out)
	return out
}
