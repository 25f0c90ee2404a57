// Package flags refuses flags that were given without a value.
//
// --tls-ca="$CA" with CA unset would otherwise be the same as no --tls-ca, and
// what the flag was to protect is open.
package flags

import (
	"fmt"
	"strings"

	"github.com/spf13/pflag"
)

// emptyAnnotation marks a flag whose empty value says something.
const emptyAnnotation = "bigfleet_may_be_empty"

// AllowEmpty marks a flag that may be given without a value. Its usage says what
// that means.
func AllowEmpty(f *pflag.FlagSet, name string) {
	if err := f.SetAnnotation(name, emptyAnnotation, []string{}); err != nil {
		panic(err) // a flag that is not declared, by a mistake in the program
	}
}

// EmptyError says that a flag was given without a value.
type EmptyError struct {
	Flag string
	Need string // what the value is, such as file; "" if the usage does not say
}

func (e *EmptyError) Error() string {
	return fmt.Sprintf("--%s: given, but empty; give it its %s, or leave the flag out", e.Flag, e.Need)
}

// Empty returns a fault for every flag of text that was given without a value and
// needs one. Blanks alone are none.
func Empty(f *pflag.FlagSet) []*EmptyError {
	var faults []*EmptyError
	f.Visit(func(fl *pflag.Flag) {
		_, allowed := fl.Annotations[emptyAnnotation]
		kind, text := fl.Value.Type(), strings.TrimSpace(fl.Value.String())
		if !allowed && (kind == "string" && text == "" || kind == "stringSlice" && text == "[]") {
			need, _ := pflag.UnquoteUsage(fl)
			if need == "" || need == kind || kind == "stringSlice" {
				need = "value"
			}
			faults = append(faults, &EmptyError{fl.Name, need})
		}
	})
	return faults
}
