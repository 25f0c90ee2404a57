package operator

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// format is how a command prints: --output.
type format string

const (
	formatTable format = "table"
	formatWide  format = "wide"
	formatJSON  format = "json"
	formatName  format = "name"
)

// declare adds the flag. The first of the choices is the default.
func (f *format) declare(c *cobra.Command, choices ...format) {
	c.Flags().StringVarP((*string)(f), "output", "o", string(choices[0]), "`format`: "+either(choices))
	completes(c, "output", func() []string {
		var out []string
		for _, choice := range choices {
			out = append(out, string(choice))
		}
		return out
	}())
}

func (f format) check(choices ...format) error {
	if slices.Contains(choices, f) {
		return nil
	}
	text := fmt.Sprintf("--output: %q is unknown, want %s", string(f), either(choices))
	name, _, _ := strings.Cut(string(f), "=")
	if hint := formatHints[name]; hint != "" {
		text += "; " + hint
	}
	return errors.New(text)
}

// either is "a, b or c".
func either[T ~string](words []T) string {
	all := make([]string, len(words))
	for i, w := range words {
		all[i] = string(w)
	}
	last := len(all) - 1
	if last < 1 {
		return strings.Join(all, "")
	}
	return strings.Join(all[:last], ", ") + " or " + all[last]
}

// declareSocket adds --socket for a command that must have it.
func declareSocket(f *pflag.FlagSet) *string {
	return f.String("socket", "", "the provider's --admin-socket `path`")
}

// declareSteps adds --socket for a command that can tell more with it.
func declareSteps(f *pflag.FlagSet) *string {
	return f.String("socket", "", "the provider's --admin-socket `path`: with it, steps, ages and operation ids are known")
}
