package provider

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/spf13/pflag"
)

// parse reads one flag after the other, since pflag would end at the first that
// it cannot read.
func parse(f *pflag.FlagSet, args []string) (errs []error) {
	var rest []string
	for len(args) > 0 {
		n := 1
		if args[0] == "--" {
			n = len(args)
		}
		err := f.Parse(args[:n])
		if _, ok := errors.AsType[*pflag.ValueRequiredError](err); ok && len(args) > 1 {
			n = 2
			err = f.Parse(args[:n])
		}
		if err != nil {
			errs = append(errs, explained(args[0], err))
		}
		// An unknown flag may have its value behind it.
		if _, ok := errors.AsType[*pflag.NotExistError](err); ok && n < len(args) && !strings.HasPrefix(args[n], "-") {
			n++
		} else {
			rest = append(rest, f.Args()...)
		}
		args = args[n:]
	}
	if len(rest) > 0 {
		errs = append(errs, fmt.Errorf("unexpected argument %s; a flag's value stands behind it, as --flag=value or --flag value", shown(rest[0])))
	}
	return errs
}

// explained is pflag's complaint about an argument, in words that quote no more
// of it than may be shown: a secret in the wrong place is still one.
func explained(arg string, err error) error {
	if errors.Is(err, pflag.ErrHelp) {
		return err
	}
	if invalid, ok := errors.AsType[*pflag.InvalidValueError](err); ok {
		name, value := invalid.GetFlag().Name, shown(invalid.GetValue())
		form := map[string]string{
			"duration": "a number with its unit, such as 90s, 15m or 1h30m",
			"bool":     "true or false, after an equals sign",
			"int":      "a whole number",
			"float64":  "a number, such as 0.5",
		}[invalid.GetFlag().Value.Type()]
		if form == "" {
			form = "another value, see --help"
		}
		return fmt.Errorf("--%s: %s; want %s", name, value, form)
	}
	if _, ok := errors.AsType[*pflag.ValueRequiredError](err); ok {
		return err // it names a flag that there is
	}
	// Up to what no flag's name has in it, such as an equals sign or a space.
	name := arg[:len(arg)-len(strings.TrimLeft(arg, "-abcdefghijklmnopqrstuvwxyz0123456789"))]
	if len(name) > maxShownFlag || strings.Trim(name, "-") == "" {
		name = fmt.Sprintf("one of %d characters, which are not shown since they may hold a secret", utf8.RuneCountInString(arg))
	}
	if strings.HasPrefix(arg, "-") && !strings.HasPrefix(arg, "--") {
		return fmt.Errorf("unknown flag: %s; flags begin with two dashes", name)
	}
	return fmt.Errorf("unknown flag: %s", name)
}

const (
	// maxShown is how much of a value a message quotes. The secrets and keys that a
	// command line can hold are longer.
	maxShown = 16
	// maxShownFlag has room for every flag, and for no flag with a secret behind it.
	maxShownFlag = 30
)

// shown is a word of the command line as a message may quote it.
func shown(word string) string {
	if n := utf8.RuneCountInString(word); n > maxShown {
		return fmt.Sprintf("of %d characters, which are not shown since they may be a secret", n)
	}
	return fmt.Sprintf("%q", word)
}
