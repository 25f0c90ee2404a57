package provider

import (
	"fmt"
	"os"
	"strings"
)

// fromEnvironment reads NAME, or the file that NAME_FILE names, and says which of
// the two it was. Both at once are a fault, since one of them would be ignored in
// silence, and so is one that is set and empty: it was meant to say something.
func fromEnvironment(name string, lookup func(string) (string, bool)) (source, value string, err error) {
	value, hasValue := lookup(name)
	path, hasPath := lookup(name + "_FILE")
	switch {
	case hasValue && hasPath:
		return "", "", fmt.Errorf("%s and %s_FILE are both set; unset one", name, name)
	case hasValue && strings.TrimSpace(value) == "":
		return "", "", fmt.Errorf("%s: set, but empty; give it a value, or unset it", name)
	case hasValue:
		return name, value, nil
	case !hasPath:
		return "", "", nil
	case strings.TrimSpace(path) == "":
		return "", "", fmt.Errorf("%s_FILE: set, but empty; want a file, or unset it", name)
	}
	source = name + "_FILE"
	content, err := os.ReadFile(path)
	switch {
	case err != nil:
		return "", "", fmt.Errorf("%s: %w", source, err)
	case len(strings.TrimSpace(string(content))) == 0:
		return "", "", fmt.Errorf("%s: %s is empty; write the value into it, or unset the variable", source, path)
	}
	return source, string(content), nil
}

// withoutLineBreak drops the one line break that text editors, echo and mounted
// files end in, wherever the value comes from. More than one is a fault: whoever
// compares values may not see it.
func withoutLineBreak(source, value string) (string, error) {
	if value == "" {
		return "", nil
	}
	if rest, ok := strings.CutSuffix(value, "\n"); ok {
		value = strings.TrimSuffix(rest, "\r")
	}
	if strings.HasSuffix(value, "\n") || strings.HasSuffix(value, "\r") {
		return "", fmt.Errorf("%s: the value ends in a newline even after one line break was dropped; remove it", source)
	}
	if value == "" {
		return "", fmt.Errorf("%s: the value is a newline and nothing else", source)
	}
	return value, nil
}
