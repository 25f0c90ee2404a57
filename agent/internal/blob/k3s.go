package blob

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"

	"gopkg.in/yaml.v3"
)

var assignments = regexp.MustCompile(`(?m)^\s*(?:export\s+)?K3S_[A-Z_]+=`)

// K3s reads a blob for k3s, a configuration in YAML with server and token or the
// lines K3S_URL=… and K3S_TOKEN=…, and returns the configuration.
func K3s(body []byte) ([]byte, error) {
	body, err := Text(body)
	if err != nil {
		return nil, err
	}
	if assignments.Match(body) {
		return fromAssignments(string(body))
	}
	docs, err := documents(body)
	if err != nil {
		return nil, fmt.Errorf("the blob's YAML: %w", err)
	}
	const neither = "the blob is neither a k3s configuration with server and token nor lines with K3S_URL=… and K3S_TOKEN=…"
	if len(docs) != 1 || docs[0].Kind != yaml.MappingNode {
		return nil, errors.New(neither)
	}
	for _, keys := range [][]string{{"server"}, {"token", "token-file"}} {
		found := false
		for _, key := range keys {
			n := get(docs[0], key)
			found = found || n != nil && isScalar(n) && n.Value != ""
		}
		if !found {
			return nil, fmt.Errorf("%s: it has no %s", neither, strings.Join(keys, " or "))
		}
	}
	return render(docs)
}

// fromAssignments reads lines as the environment file of a service has them: the
// value is the rest of the line, whatever is in it, in quotes or without.
func fromAssignments(text string) ([]byte, error) {
	names := map[string]string{"K3S_URL": "server", "K3S_TOKEN": "token"}
	found := map[string]string{}
	for i, line := range strings.Split(text, "\n") {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		if rest, ok := strings.CutPrefix(line, "export"); ok && strings.TrimLeft(rest, " \t") != rest {
			line = strings.TrimLeft(rest, " \t")
		}
		name, value, _ := strings.Cut(line, "=")
		key, known := names[name]
		if !known {
			return nil, fmt.Errorf("the blob's line %d is neither K3S_URL=… nor K3S_TOKEN=…: use a k3s configuration in YAML", i+1)
		}
		if _, twice := found[key]; twice {
			return nil, fmt.Errorf("the blob has %s twice, see line %d", name, i+1)
		}
		value, err := unquote(value)
		if err != nil {
			return nil, fmt.Errorf("the blob's %s, line %d: %w", name, i+1, err)
		}
		found[key] = value
	}
	for _, name := range []string{"K3S_URL", "K3S_TOKEN"} {
		if found[names[name]] == "" {
			return nil, fmt.Errorf("the blob has no %s=…", name)
		}
	}
	return render([]*yaml.Node{mapping(field{"server", quoted(found["server"])}, field{"token", quoted(found["token"])})})
}

// errExpansion says that a value means one thing to a shell and another here. A
// lone $ is one of a password's characters.
var errExpansion = errors.New("$(…), ${…} or `…`, which a shell would replace; no shell reads the line, put it in '…' if it is meant")

// expansion is what a shell would replace, at the start of a text.
var expansion = regexp.MustCompile("^(?:`|\\$[({])")

// unquote takes the quotes off a value. Nothing in it is expanded.
func unquote(value string) (string, error) {
	if !utf8.ValidString(value) || strings.ContainsFunc(value, unicode.IsControl) {
		return "", errors.New("a control character, or no UTF-8")
	}
	if value == "" || value[0] != '"' && value[0] != '\'' {
		switch {
		case strings.ContainsAny(value, " \t"):
			return "", errors.New("a blank outside of quotes: one assignment a line, and nothing behind it")
		case strings.ContainsAny(value, "\"'\\"):
			return "", errors.New("a quote or a backslash inside: put the value in '…'")
		case strings.Contains(value, "`"), strings.Contains(value, "$("), strings.Contains(value, "${"):
			return "", errExpansion
		}
		return value, nil
	}
	var out strings.Builder
	quote, rest := rune(value[0]), value[1:]
	escaped := false
	for i, r := range rest {
		switch {
		case escaped:
			if !strings.ContainsRune("\"\\$`", r) {
				out.WriteByte('\\')
			}
			out.WriteRune(r)
			escaped = false
		case r == '\\' && quote == '"':
			escaped = true
		case quote == '"' && expansion.MatchString(rest[i:]):
			return "", errExpansion
		case r == quote:
			if after := strings.TrimSpace(rest[i+1:]); after != "" && !strings.HasPrefix(after, "#") {
				return "", errors.New("something stands behind the closing quote")
			}
			return out.String(), nil
		default:
			out.WriteRune(r)
		}
	}
	return "", fmt.Errorf("a %c that is not closed", quote)
}
