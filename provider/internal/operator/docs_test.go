package operator

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"bigfleet-providers/provider/internal/operator/terminal"
)

const (
	docsPage  = "../../../docs/capacityctl.md"
	docsBegin = "<!-- commands: generated -->\n"
	docsEnd   = "<!-- end of commands -->"
)

// TestDocs holds the page's list of commands to the program; -update writes it.
func TestDocs(t *testing.T) {
	content, err := os.ReadFile(docsPage)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(content), docsBegin)
	got, after, ok2 := strings.Cut(rest, docsEnd)
	if !ok || !ok2 {
		t.Fatalf("%s has no place for the commands", docsPage)
	}
	var want strings.Builder
	for _, c := range everyCommand(t) {
		document(&want, c)
	}
	root := newRoot(&program{colour: terminal.Auto}, "test")
	fmt.Fprint(&want, "\nOf all commands that ask a provider; `--color` of all:\n\n")
	flagTable(&want, root.PersistentFlags())
	want.WriteString("\n")
	if *update {
		if err := os.WriteFile(docsPage, []byte(before+docsBegin+want.String()+docsEnd+after), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(want.String(), got); diff != "" {
		t.Errorf("%s (-program +page), see go test -update:\n%s", docsPage, diff)
	}
}

func document(w *strings.Builder, c *cobra.Command) {
	fmt.Fprintf(w, "\n### `%s`\n\n%s.\n", usageLine(c), c.Short)
	if own, _ := flagsOf(c); own.HasAvailableFlags() {
		w.WriteString("\n")
		flagTable(w, own)
	}
}

func flagTable(w *strings.Builder, flags *pflag.FlagSet) {
	fmt.Fprint(w, "| Flag | Default | |\n|---|---|---|\n")
	flags.VisitAll(func(f *pflag.Flag) {
		value, usage := pflag.UnquoteUsage(f)
		name := "--" + f.Name
		if f.Shorthand != "" {
			name = "-" + f.Shorthand + ", " + name
		}
		if value != "" && f.Value.Type() != "bool" {
			name += " " + value
		}
		preset := f.DefValue
		if before, own, ok := strings.Cut(usage, " (default: "); ok { // its zero stands for something else
			own, env, _ := strings.Cut(strings.TrimSuffix(own, ")"), "; ")
			if preset, usage = own, before; env != "" {
				usage += " (" + env + ")"
			}
		} else if preset == "" || preset == "[]" {
			preset = "none"
		} else {
			preset = "`" + preset + "`"
		}
		fmt.Fprintf(w, "| `%s` | %s | %s |\n", name, preset, strings.ReplaceAll(usage, "|", "\\|"))
	})
}
